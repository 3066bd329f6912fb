-- The members of the relay. The key is 64 hexadecimal digits, the form in which people see it.
CREATE TABLE member (
    pubkey TEXT COLLATE "C" NOT NULL PRIMARY KEY CHECK (length(pubkey) = 64),
    role TEXT NOT NULL CHECK (role IN ('member', 'agent', 'admin', 'owner'))
);
