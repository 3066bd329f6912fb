DROP TABLE last_batch;
DROP SEQUENCE origin;
DROP TABLE entry;
DROP TABLE event;
