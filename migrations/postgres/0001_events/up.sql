-- The same tables as on SQLite. The position is the order in which events are served (see
-- src/store/position.rs), so its index is the time index and new events go to its right edge.
CREATE TABLE event (
    position BIGINT NOT NULL PRIMARY KEY,
    -- Which relay's which write batch stored it (see src/store/postgres/origin.rs): a read leaves
    -- out what its own relay committed after it began.
    batch BIGINT NOT NULL,
    -- Seconds since the epoch. Below zero (-1 - seconds) for deletions, which are hidden when
    -- they expire but never purged.
    expires_at BIGINT,
    json TEXT NOT NULL
);

CREATE INDEX event_expires_at ON event (expires_at) WHERE expires_at IS NOT NULL;

-- Every other way to find events: a 64-bit key (see src/store/keys.rs) and where the event is.
CREATE TABLE entry (
    key BIGINT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (key, position)
);

-- Each start of a relay is an origin of its own: its batches count from 1 within 24 bits of origin
-- and 39 bits of number.
CREATE SEQUENCE origin AS BIGINT MINVALUE 1 MAXVALUE 16777215;

-- The last batch of each origin. The token is of the transaction that wrote last: where a COMMIT's
-- answer got lost, it tells whether that was committed.
CREATE TABLE last_batch (
    origin BIGINT NOT NULL PRIMARY KEY,
    batch BIGINT NOT NULL,
    token BIGINT NOT NULL
);
