-- A flap: removed within 10 minutes of its own return. A session: removals at most 10 minutes apart;
-- flapping if one of the window follows another, which may lie before the window.
WITH both_ways AS (
  SELECT $KEY, topic, partition_epoch, t, true AS goes, unnest(gone) AS replica_id FROM moves
  UNION ALL SELECT $KEY, topic, partition_epoch, t, false, unnest(came) FROM moves
), looked AS (
  SELECT *, last_value(CASE WHEN NOT goes THEN t END IGNORE NULLS) OVER earlier AS came_us,
    last_value(CASE WHEN goes THEN t END IGNORE NULLS) OVER earlier AS went_us
  FROM both_ways
  WINDOW earlier AS (PARTITION BY $KEY, replica_id ORDER BY partition_epoch
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), gone AS (
  SELECT *, coalesce(t - came_us <= 600000000, false) AS is_flap,
    coalesce(t - went_us <= 600000000, false) AS follows,
    sum(CASE WHEN t - went_us <= 600000000 THEN 0 ELSE 1 END)
      OVER (PARTITION BY $KEY, replica_id ORDER BY partition_epoch) AS session
  FROM looked WHERE goes
), sessions AS (
  SELECT $BY, topic_id AS of_topic, partition AS of_partition, replica_id, session, count(*) AS n,
    count(*) FILTER (is_flap) AS n_flaps, bool_or(follows) AS is_flapping
  FROM gone JOIN windows ON $WITHIN GROUP BY ALL
)
SELECT $BY, replica_id, sum(n) AS removals, sum(n_flaps) AS flaps, count(*) AS sessions,
  count(*) FILTER (is_flapping) AS flapping_sessions
FROM sessions GROUP BY $BY, replica_id
