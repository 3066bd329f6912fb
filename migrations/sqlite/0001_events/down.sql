DROP TABLE last_batch;
DROP TABLE entry;
DROP TABLE event;
