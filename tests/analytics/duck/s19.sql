-- Detect: last heartbeat -> fence of the old leader; elect: fence -> commit; activate: commit -> EPOCH_START.
-- Where nobody could be elected at once, the fence is that of the last leader. A start after the window is out of it.
WITH every AS (
  SELECT *, last_value(CASE WHEN old_leader >= 0 THEN old_leader END IGNORE NULLS) OVER so_far AS lost_node,
    last_value(CASE WHEN old_leader >= 0 THEN t END IGNORE NULLS) OVER so_far AS lost_us
  FROM leader_changes
  WINDOW so_far AS (PARTITION BY $KEY ORDER BY partition_epoch ROWS UNBOUNDED PRECEDING)
), changes AS (SELECT * FROM every WHERE new_leader >= 0),
fences AS (
  SELECT cluster_id, subject_node_id AS lost_node, ts_wall_us AS fenced_us, cause, last_heartbeat_us
  FROM transitions WHERE event_type = 'NODE_SESSION' AND phase = 'fence'
), matched AS (
  SELECT c.*, CASE WHEN lost_us - fenced_us <= 60000000 THEN fenced_us END AS fenced_us, cause, last_heartbeat_us
  FROM changes c ASOF LEFT JOIN fences f
    ON f.cluster_id = c.cluster_id AND f.lost_node = c.lost_node AND c.lost_us >= f.fenced_us
), phases AS (
  SELECT m.*, CASE WHEN cause <> 'controlled_shutdown' AND fenced_us IS NOT NULL THEN fenced_us - last_heartbeat_us END
      AS detect_us,
    t - fenced_us AS elect_us, CASE WHEN began_us < window_end THEN began_us - t END AS activate_us, a.clock_err_us, window_start, window_end
  FROM matched m LEFT JOIN activations a ON a.cluster_id = m.cluster_id AND a.topic_id = m.topic_id
    AND a.partition = m.partition AND a.leader_epoch = m.new_leader_epoch
  JOIN windows ON t >= window_start AND t < window_end
)
SELECT $BY, count(*) AS leader_changes, count(elect_us) AS failovers,
  $RANK(detect_us, 50) AS detect_p50_us, max(detect_us) AS detect_max_us,
  $RANK(elect_us, 50) AS elect_p50_us, max(elect_us) AS elect_max_us,
  $RANK(activate_us, 50) AS activate_p50_us, max(activate_us) AS activate_max_us,
  max(detect_us + elect_us + activate_us) AS total_max_us, count(*) FILTER (activate_us < 0) AS n_negative,
  max(clock_err_us) AS clock_err_us
FROM phases GROUP BY $BY
