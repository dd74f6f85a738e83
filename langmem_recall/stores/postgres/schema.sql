-- What a database gets from `RecallStore.setup`, version by version: applied in order, each once and
-- as a whole, only ever added to. {WORDS} is schema.WORDS. Step 2 was withdrawn; step 5 drops an
-- index that an earlier one made over whole texts, so that the table refused large ones.
-- version 0
CREATE TABLE langmem_recall_usage (
    prefix text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    uses bigint NOT NULL,
    decayed double precision NOT NULL,
    last_used double precision,
    before double precision,
    merit integer NOT NULL,
    PRIMARY KEY (prefix, key)
);

-- version 1
IF to_regclass('store') IS NOT NULL THEN
    WITH moved AS (
        DELETE FROM store
        WHERE prefix ~>=~ 'langmem_recall.usage.' AND prefix ~<~ 'langmem_recall.usage/'
        RETURNING prefix, key, value
    )
    INSERT INTO langmem_recall_usage
    SELECT substr(prefix, 22), key, (value->>'uses')::bigint,
        (value->>'decayed')::double precision, (value->>'last_used')::double precision,
        (value->>'before')::double precision, coalesce((value->>'merit')::integer, 0)
    FROM moved WHERE value ? 'uses';
END IF;

-- version 2
NULL;

-- version 3
CREATE TABLE langmem_recall_lots (
    ledger text PRIMARY KEY,
    number bigint NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now()
);

-- version 4
IF to_regclass('store') IS NOT NULL THEN
    CREATE INDEX IF NOT EXISTS langmem_recall_first_words ON store USING gin (({WORDS}));
END IF;

-- version 5
DROP INDEX IF EXISTS langmem_recall_words;
