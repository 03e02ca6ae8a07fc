CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS accounts (
    id INTEGER PRIMARY KEY,
    owner TEXT NOT NULL UNIQUE COLLATE NOCASE,
    x TEXT NOT NULL,
    y TEXT NOT NULL,
    nonce INTEGER NOT NULL,
    key_nonce INTEGER NOT NULL,
    key_seed TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS updates (
    number INTEGER PRIMARY KEY,
    account INTEGER NOT NULL REFERENCES accounts,
    hash TEXT NOT NULL,
    x TEXT NOT NULL,
    y TEXT NOT NULL,
    nonce INTEGER NOT NULL,
    key_seed TEXT NOT NULL,
    fee_token INTEGER NOT NULL,
    fee TEXT NOT NULL,
    valid_until INTEGER NOT NULL,
    received_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    status TEXT NOT NULL,
    reason TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS pending ON updates (account) WHERE status IN ('received', 'processing');
