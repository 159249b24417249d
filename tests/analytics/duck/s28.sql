-- Moves: from the first target to the step that ends one. What leaders sent to the replicas that they add, who joined
-- last, and whose end let a queued one start.
WITH steps AS (
  SELECT $KEY, topic, partition_epoch, meta_offset, seq, t, phase, adding_replicas, removing_replicas,
    phase IN ('completed', 'cancelled') AS ends,
    coalesce(lag(phase) OVER own IN ('completed', 'cancelled'), true) AS begins, lag(phase) OVER own AS was
  FROM control_rows WHERE event_type = 'REASSIGNMENT'
  WINDOW own AS (PARTITION BY $KEY ORDER BY partition_epoch, meta_offset, seq)
), numbered AS (
  SELECT *, sum(begins::INT) OVER (PARTITION BY $KEY ORDER BY partition_epoch, meta_offset, seq) AS move FROM steps
), found AS (
  SELECT $KEY, topic, move, min(t) AS t0, min(t) FILTER (phase = 'started') AS started_us,
    max(t) FILTER (ends) AS ended_us, max(phase) FILTER (ends) AS outcome, bool_or(NOT ends) AS is_begin_seen,
    flatten(list(adding_replicas)) AS added, min(partition_epoch) AS first, max(partition_epoch) AS last
  FROM numbered GROUP BY ALL
), runs AS (
  SELECT found.*, coalesce(ended_us, greatest(heard_us, t0)) AS t1 FROM found LEFT JOIN heard USING ($KEY)
), pieces AS (
  SELECT $BY, outcome IS NOT NULL AND t1 < window_end AS is_over, $DUR AS dur,
    greatest(0, least(t1, window_end, coalesce(started_us, t1)) - $A) AS queued
  FROM runs JOIN windows ON $OVERLAP WHERE t1 > t0
), ran AS (
  SELECT $BY, count(*) FILTER (NOT is_over) AS unfinished, sum(queued) AS queued_us, sum(dur - queued) AS running_us
  FROM pieces GROUP BY $BY
), lengths AS (
  SELECT $BY, outcome, CASE WHEN is_begin_seen AND outcome = 'completed' THEN t1 - t0 END AS whole
  FROM runs JOIN windows ON t1 >= window_start AND t1 < window_end WHERE outcome IS NOT NULL
), ended AS (
  SELECT $BY, count(*) FILTER (outcome = 'completed') AS completed, count(*) FILTER (outcome = 'cancelled') AS cancelled,
    $RANK(whole, 50) AS p50_us, $RANK(whole, 95) AS p95_us, max(whole) AS max_us
  FROM lengths GROUP BY $BY
), fetched AS (
  SELECT $KEY, node_id, replica_id, ts_wall_us, interval_ms, bytes, throttled_ms FROM raw_samples
  WHERE event_type = 'FETCH_STATS' AND partition IS NOT NULL
  QUALIFY row_number() OVER (PARTITION BY cluster_id, node_id, incarnation, seq) = 1
), timed AS (
  SELECT f.* EXCLUDE (ts_wall_us), ts_wall_us - coalesce(c.offset_us, 0) AS t FROM fetched f
  ASOF LEFT JOIN clocks c ON c.cluster_id = f.cluster_id AND c.clock_node = f.node_id AND f.ts_wall_us >= c.own_us
), sent AS (
  SELECT timed.*, topic FROM timed JOIN groups USING ($KEY) WHERE EXISTS (SELECT 1 FROM runs r
    WHERE r.cluster_id = timed.cluster_id AND r.topic_id = timed.topic_id AND r.partition = timed.partition
      AND list_contains(r.added, timed.replica_id) AND timed.t > r.started_us AND timed.t - interval_ms * 1000 < r.t1)
), copied AS (
  SELECT $BY, sum(bytes)::BIGINT AS copied_bytes, (sum(throttled_ms) * 1000)::BIGINT AS throttled_us FROM sent JOIN windows ON $WITHIN GROUP BY $BY
), joins AS (
  SELECT $KEY, partition_epoch, unnest(list_filter(new_isr, lambda r: NOT list_contains(old_isr, r))) AS node
  FROM distinct_changes
), last_to_join AS (
  SELECT $KEY, topic, move, t1 AS t, arg_max(node, partition_epoch * 100000 + node) AS node
  FROM runs JOIN joins USING ($KEY)
  WHERE outcome = 'completed' AND list_contains(added, node) AND partition_epoch > first AND partition_epoch <= last
  GROUP BY ALL
), waits AS (
  SELECT $BY, node, count(*) AS n FROM last_to_join JOIN windows ON $WITHIN GROUP BY ALL
), waited AS (
  SELECT $BY, map_from_entries(list((node, n) ORDER BY node)) AS waited_for FROM waits GROUP BY $BY
), turns AS (
  SELECT DISTINCT b.cluster_id, b.topic_id, b.partition, b.topic, b.partition_epoch, b.t,
    unnest(list_concat(list_intersect(b.adding_replicas, e.adding_replicas),
      list_intersect(b.removing_replicas, e.removing_replicas))) AS node
  FROM steps b JOIN steps e ON e.cluster_id = b.cluster_id AND e.meta_offset = b.meta_offset AND e.ends
  WHERE b.phase = 'started' AND b.was = 'queued'
), turned AS (
  SELECT $BY, node, count(*) AS n FROM turns JOIN windows ON $WITHIN GROUP BY ALL
), queued AS (
  SELECT $BY, map_from_entries(list((node, n) ORDER BY node)) AS queued_for FROM turned GROUP BY $BY
)
SELECT $BY, completed, cancelled, unfinished, queued_us, running_us, p50_us, p95_us, max_us, copied_bytes, throttled_us,
  waited_for, queued_for
FROM ran FULL JOIN ended USING ($BY) FULL JOIN copied USING ($BY) FULL JOIN waited USING ($BY)
FULL JOIN queued USING ($BY)
