CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE items (
    id INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    ttl_minutes REAL,
    indexed TEXT NOT NULL,
    value TEXT NOT NULL
);
CREATE UNIQUE INDEX items_name ON items (namespace, key);
CREATE UNIQUE INDEX items_seq ON items (seq);
CREATE INDEX items_expiry ON items (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE traits (
    id INTEGER PRIMARY KEY,
    thread TEXT,
    position REAL NOT NULL,
    speaker TEXT,
    flags INTEGER NOT NULL,
    supersedes TEXT,
    terms BLOB NOT NULL
);
CREATE TABLE vectors (id INTEGER PRIMARY KEY, digest BLOB NOT NULL, vectors BLOB);
CREATE INDEX vectors_pending ON vectors (id) WHERE vectors IS NULL;
CREATE TABLE vocabulary (id INTEGER PRIMARY KEY, term TEXT NOT NULL UNIQUE);
CREATE TABLE tombstones (seq INTEGER PRIMARY KEY, namespace TEXT NOT NULL, key TEXT NOT NULL);
CREATE TABLE usage (
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    uses INTEGER NOT NULL,
    decayed REAL NOT NULL,
    last_used REAL,
    before REAL,
    merit INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, key)
) WITHOUT ROWID;
