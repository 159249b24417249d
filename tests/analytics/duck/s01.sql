-- h(t) = LEO of the leader - HW, over the leader's looks; negative ones are in no figure.
WITH pieces AS (SELECT $BY, leader_leo - hw AS v, $DUR AS dur FROM own_looks JOIN windows ON $OVERLAP),
sound AS (SELECT * FROM pieces WHERE v >= 0),
ranks AS ($RANKS(sound, v, p50_records 50, p95_records 95, p99_records 99))
SELECT $BY, sum(dur) AS known_us,
  sum(v::HUGEINT * dur) FILTER (v >= 0)::DOUBLE / sum(dur) FILTER (v >= 0) AS mean_records,
  any_value(p50_records) AS p50_records, any_value(p95_records) AS p95_records, any_value(p99_records) AS p99_records,
  max(v) FILTER (v >= 0) AS max_records, count(*) FILTER (v < 0) AS n_negative
FROM pieces LEFT JOIN ranks USING ($BY) GROUP BY $BY
