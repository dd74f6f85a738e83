WITH fresh AS (
    INSERT INTO {batches} AS stored (ledger, number) VALUES (%s, %s)
    ON CONFLICT (ledger) DO UPDATE SET number = excluded.number, written_at = now()
    WHERE stored.number < excluded.number RETURNING 1
)
INSERT INTO {usage} AS stored (prefix, key, {record})
SELECT prefix, key, uses, uses, last_used, before, merit
FROM unnest(
    %s::text[], %s::text[], %s::bigint[], %s::double precision[], %s::double precision[],
    %s::integer[]
) AS touch (prefix, key, uses, last_used, before, merit)
WHERE EXISTS (SELECT 1 FROM fresh)
ORDER BY prefix COLLATE "C", key COLLATE "C"
ON CONFLICT (prefix, key) DO UPDATE SET
    uses = stored.uses + excluded.uses,
    decayed = CASE
        WHEN excluded.last_used IS NULL THEN stored.decayed
        WHEN stored.last_used IS NULL THEN excluded.decayed
        ELSE {faded_stored} + {faded_added} END,
    last_used = greatest(stored.last_used, excluded.last_used),
    before = CASE
        WHEN excluded.last_used IS NULL THEN stored.before
        WHEN stored.last_used IS NULL THEN excluded.before
        ELSE greatest(
            excluded.before, least(stored.last_used, excluded.last_used), stored.before
        ) END,
    merit = greatest(-{most_merit}, least(stored.merit + excluded.merit, {most_merit}))
