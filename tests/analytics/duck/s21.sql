-- HW - committed offset, per group, over the time in which both are known; above the HW it is in no figure.
WITH pieces AS (SELECT $BY, group_id, hw - committed AS v, $DUR AS dur FROM lag_spans JOIN windows ON $OVERLAP),
sound AS (SELECT * FROM pieces WHERE v >= 0),
ranks AS ($RANKS(sound, v, group_id, p50_records 50, p95_records 95, p99_records 99))
SELECT $BY, group_id, sum(dur) AS known_us,
  sum(v::HUGEINT * dur) FILTER (v >= 0)::DOUBLE / sum(dur) FILTER (v >= 0) AS mean_records,
  any_value(p50_records) AS p50_records, any_value(p95_records) AS p95_records, any_value(p99_records) AS p99_records,
  max(v) FILTER (v >= 0) AS max_records, coalesce(sum(dur) FILTER (v > 0), 0) AS behind_us,
  coalesce(sum(dur) FILTER (v < 0), 0) AS ahead_us
FROM pieces LEFT JOIN ranks USING ($BY, group_id) GROUP BY $BY, group_id
