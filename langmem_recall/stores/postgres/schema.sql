-- What a database gets from `RecallStore.setup`, version by version: applied in order, each once and
-- as a whole, only ever added to. No blocks: Citus overlooks the tables that they make. A version with
-- a condition is applied where that holds. {WORDS} is schema.WORDS. Steps 1, 2 and 3 were withdrawn;
-- step 5 drops an index that an earlier one made over whole texts, so that the table refused large ones.
-- version 0
CREATE TABLE IF NOT EXISTS langmem_recall_usage (
    prefix text NOT NULL,
    key text NOT NULL,
    uses bigint NOT NULL,
    decayed double precision NOT NULL,
    last_used double precision,
    before double precision,
    merit integer NOT NULL,
    PRIMARY KEY (prefix, key)
);
-- version 1
-- version 2
-- version 3
-- version 4 if to_regclass('store') IS NOT NULL
CREATE INDEX IF NOT EXISTS langmem_recall_first_words ON store USING gin (({WORDS}));
-- version 5
DROP INDEX IF EXISTS langmem_recall_words;
-- version 6 if (SELECT collname = 'C' FROM pg_attribute JOIN pg_collation c ON c.oid = attcollation WHERE attrelid = 'langmem_recall_usage'::regclass AND attname = 'prefix')
ALTER TABLE langmem_recall_usage
    ALTER COLUMN prefix TYPE text COLLATE "default", ALTER COLUMN key TYPE text COLLATE "default";
-- version 7
CREATE INDEX IF NOT EXISTS langmem_recall_usage_prefix
    ON langmem_recall_usage (prefix text_pattern_ops);
-- version 8
CREATE TABLE IF NOT EXISTS langmem_recall_batches (
    prefix text NOT NULL,
    ledger text NOT NULL,
    number bigint NOT NULL,
    written_at timestamptz NOT NULL,
    PRIMARY KEY (prefix, ledger, number)
);
DROP TABLE IF EXISTS langmem_recall_lots;
-- version 9
CREATE TABLE IF NOT EXISTS langmem_recall_records (
    prefix text NOT NULL,
    kind text NOT NULL,
    key text NOT NULL,
    value jsonb NOT NULL,
    PRIMARY KEY (prefix, kind, key)
);
CREATE INDEX IF NOT EXISTS langmem_recall_records_prefix
    ON langmem_recall_records (prefix text_pattern_ops);
-- version 10
CREATE TABLE IF NOT EXISTS langmem_recall_settings (
    name text PRIMARY KEY,
    value jsonb NOT NULL
);
-- version 11 if obj_description(to_regclass('store_vectors'), 'pg_class') LIKE 'langmem_recall embedder: %'
INSERT INTO langmem_recall_settings (name, value) VALUES (
    'embedder', to_jsonb(substr(obj_description(to_regclass('store_vectors'), 'pg_class'), 26))
) ON CONFLICT (name) DO NOTHING;
