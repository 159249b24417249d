-- LEO of the leader - LEO of the replica, as the leader knew it, by expected state.
WITH pieces AS (
  SELECT $BY, replica_id, expected_state, leader_leo - leo AS v, $DUR AS dur
  FROM believed JOIN windows ON $OVERLAP WHERE NOT is_leader AND leo IS NOT NULL
), ranks AS ($RANKS(pieces, v, p50_records 50, p95_records 95, p99_records 99, replica_id, expected_state))
SELECT $BY, replica_id, expected_state, sum(dur) AS known_us, sum(v::HUGEINT * dur)::DOUBLE / sum(dur) AS mean_records,
  any_value(p50_records) AS p50_records, any_value(p95_records) AS p95_records, any_value(p99_records) AS p99_records,
  max(v) AS max_records
FROM pieces LEFT JOIN ranks USING ($BY, replica_id, expected_state) GROUP BY $BY, replica_id, expected_state
