-- A = max(0, acked offset - HW).
WITH pieces AS (
  SELECT $BY, greatest(0, acked_offset - hw) AS v, $DUR AS dur FROM own_looks JOIN windows ON $OVERLAP
  WHERE acked_offset IS NOT NULL
), ranks AS ($RANKS(pieces, v, p50_records 50, p95_records 95, p99_records 99))
SELECT $BY, sum(dur) AS known_us, sum(v::HUGEINT * dur)::DOUBLE / sum(dur) AS mean_records,
  any_value(p50_records) AS p50_records, any_value(p95_records) AS p95_records, any_value(p99_records) AS p99_records,
  max(v) AS max_records, coalesce(sum(dur) FILTER (v > 0), 0) AS at_risk_us
FROM pieces LEFT JOIN ranks USING ($BY) GROUP BY $BY
