-- From the commit of a removal to the commit of the next add; phases: until unfenced for the last time (never fenced:
-- nothing), until proposed, until committed. A return at the end of a window is out of it.
-- Stays that a window cuts, that began unseen or ended otherwise are in the sums and not in the percentiles.
WITH seen AS (
  SELECT *, lag(replicas) OVER (PARTITION BY $KEY ORDER BY place) AS before FROM states WHERE t1 > t0 OR is_last
), each AS (
  SELECT * EXCLUDE (before), unnest(list_distinct(list_concat(replicas, coalesce(before, [])))) AS replica_id FROM seen
), placed AS (
  -- A state that a hole behind it makes unknown may have begun with a return that was read.
  SELECT $KEY, topic, replica_id, place, t0, t1, known,
    CASE WHEN NOT known AND NOT isr_is_reported THEN 'unknown' WHEN list_contains(isr, replica_id) THEN 'rejoined'
         WHEN NOT list_contains(replicas, replica_id) THEN 'reassigned' WHEN known THEN 'out' ELSE 'unknown' END AS here
  FROM each
), steps AS (
  SELECT *, lag(CASE WHEN known THEN here ELSE 'unknown' END) OVER own AS was, lead(here) OVER own AS next,
    sum(CASE WHEN here = 'out' THEN 0 ELSE 1 END) OVER (own ROWS UNBOUNDED PRECEDING) AS stay
  FROM placed WINDOW own AS (PARTITION BY $KEY, replica_id ORDER BY place)
), stays AS (
  SELECT $KEY, topic, replica_id, stay, min(t0) AS t0, max(t1) AS t1, arg_max_null(next, place) AS ended_by,
    coalesce(arg_min_null(was, place) = 'rejoined', false) AS seen_leaving
  FROM steps WHERE here = 'out' GROUP BY ALL
), sessions AS (
  SELECT cluster_id, subject_node_id AS replica_id, phase, ts_wall_us AS at_us
  FROM transitions WHERE event_type = 'NODE_SESSION' AND phase IN ('fence', 'unfence')
), asked AS (
  SELECT $KEY, node_id, ts_wall_us, unnest(proposed_isr) AS replica_id FROM transitions
  WHERE event_type = 'ALTER_PARTITION' AND phase = 'proposed'
), proposed AS (
  SELECT a.cluster_id, topic_id, partition, replica_id, ts_wall_us - coalesce(offset_us, 0) AS at_us FROM asked a
  ASOF LEFT JOIN clocks c ON a.cluster_id = c.cluster_id AND a.node_id = c.clock_node AND a.ts_wall_us >= c.own_us
), with_sessions AS (
  SELECT s.*, n.at_us AS session_us, n.phase
  FROM stays s ASOF LEFT JOIN sessions n ON n.cluster_id = s.cluster_id AND n.replica_id = s.replica_id
    AND s.t1 >= n.at_us
), phased AS (
  SELECT *, CASE WHEN phase IS NULL THEN t0 WHEN phase = 'unfence' THEN greatest(session_us, t0) END AS up_us
  FROM with_sessions
), complete AS (
  SELECT s.* EXCLUDE (session_us, phase), min(p.at_us) AS proposed_us
  FROM phased s LEFT JOIN proposed p ON p.cluster_id = s.cluster_id AND p.topic_id = s.topic_id
    AND p.partition = s.partition AND p.replica_id = s.replica_id AND p.at_us BETWEEN s.up_us AND s.t1
  GROUP BY ALL
), pieces AS (
  SELECT $BY, replica_id, t0, t1, up_us, proposed_us, $DUR AS dur,
    t0 >= window_start AND t1 < window_end AND seen_leaving AND coalesce(ended_by = 'rejoined', false) AS is_whole,
    t1 < window_end AND coalesce(ended_by = 'reassigned', false) AS is_reassigned
  FROM complete JOIN windows ON $OVERLAP
)
SELECT $BY, replica_id, count(*) FILTER (is_whole) AS rejoins, count(*) FILTER (is_reassigned) AS reassigned,
  count(*) FILTER (NOT is_whole AND NOT is_reassigned) AS censored,
  sum(dur) AS out_us, $RANK(CASE WHEN is_whole THEN dur END, 50) AS p50_us,
  $RANK(CASE WHEN is_whole THEN dur END, 95) AS p95_us, max(dur) FILTER (is_whole) AS max_us,
  max(dur) FILTER (NOT is_whole AND NOT is_reassigned) AS max_censored_us, sum(up_us - t0) FILTER (is_whole) AS down_us,
  sum(proposed_us - up_us) FILTER (is_whole) AS catch_up_us, sum(t1 - proposed_us) FILTER (is_whole) AS admission_us
FROM pieces GROUP BY $BY, replica_id
