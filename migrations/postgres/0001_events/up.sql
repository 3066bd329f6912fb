-- The same tables as on SQLite. The position is the order in which events are served (see
-- src/store/position.rs). Its index is therefore the time index, and new events are added at the
-- right edge of the index.
CREATE TABLE event (
    position BIGINT NOT NULL PRIMARY KEY,
    -- The relay and the write batch that stored the event (see src/store/postgres/origin.rs). A
    -- read leaves out the events that its own relay committed after the read began.
    batch BIGINT NOT NULL,
    -- Seconds since the Unix epoch. Negative (-1 - seconds) for deletions, which are hidden when
    -- they expire but never purged.
    expires_at BIGINT,
    json TEXT NOT NULL
);

CREATE INDEX event_expires_at ON event (expires_at) WHERE expires_at IS NOT NULL;

-- The index for every other way to find events: a 64-bit key (see src/store/keys.rs) and the
-- position of the event.
CREATE TABLE entry (
    key BIGINT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (key, position)
);

-- Each start of a relay has its own origin. Its batches count from 1. The `batch` of an event holds
-- 24 bits of origin and 39 bits of number.
CREATE SEQUENCE origin AS BIGINT MINVALUE 1 MAXVALUE 16777215;

-- The last batch of each origin, with a token of the transaction that wrote it. If the answer to a
-- COMMIT is lost, the token shows whether the transaction was committed.
CREATE TABLE last_batch (
    origin BIGINT NOT NULL PRIMARY KEY,
    batch BIGINT NOT NULL,
    token BIGINT NOT NULL
);
