INSERT INTO {usage} AS stored (prefix, key, {record})
VALUES {rows}
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
RETURNING prefix, key, {record}
