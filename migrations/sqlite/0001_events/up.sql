-- The position is the order in which events are served (see src/store/position.rs). The row key is
-- therefore the time index, and new events are appended.
CREATE TABLE event (
    position INTEGER NOT NULL PRIMARY KEY,
    -- The write batch that stored the event. A read leaves out the events that were committed after
    -- the read began.
    batch INTEGER NOT NULL,
    -- Seconds since the Unix epoch. Negative (-1 - seconds) for deletions, which are hidden when
    -- they expire but never purged.
    expires_at INTEGER,
    json TEXT NOT NULL
) STRICT;

CREATE INDEX event_expires_at ON event (expires_at) WHERE expires_at IS NOT NULL;

-- The index for every other way to find events: a 64-bit key (see src/store/keys.rs) and the
-- position of the event.
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
