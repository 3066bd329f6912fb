-- The position is the order in which events are served (see src/store/position.rs), so the row key
-- is the time index and new events are appended.
CREATE TABLE event (
    position INTEGER NOT NULL PRIMARY KEY,
    -- The write batch that stored it: a read leaves out what was committed after it began.
    batch INTEGER NOT NULL,
    -- Seconds since the epoch. Below zero (-1 - seconds) for deletions, which are hidden when
    -- they expire but never purged.
    expires_at INTEGER,
    json TEXT NOT NULL
) STRICT;

CREATE INDEX event_expires_at ON event (expires_at) WHERE expires_at IS NOT NULL;

-- Every other way to find events: a 64-bit key (see src/store/keys.rs) and where the event is.
CREATE TABLE entry (
    key INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (key, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE last_batch (
    only_row INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 0),
    batch INTEGER NOT NULL
) STRICT;

INSERT INTO last_batch (only_row, batch) VALUES (0, 0);
