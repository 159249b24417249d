-- v = HW at each local sample. Delay of the first sight of v: its time - the first time the epoch's leader had at least
-- v, by an advance or when it took up its epoch. Behind: the leader's HW as of the sample - v. All in controller time.
WITH reported AS (
  SELECT $KEY, leader_epoch, node_id, new_hw AS hw, last_us AS reported_us, true AS leads FROM advances
  UNION ALL BY NAME SELECT $KEY, leader_epoch, node_id, hw, ts_wall_us AS reported_us, true AS leads
  FROM transitions WHERE event_type = 'EPOCH_START'
  UNION ALL BY NAME SELECT $KEY, topic, leader_epoch, node_id, hw, ts_wall_us AS reported_us, false AS leads
  FROM local_samples
), timed AS (
  SELECT s.* EXCLUDE (reported_us), reported_us - coalesce(offset_us, 0) AS t, err_us
  FROM reported s ASOF LEFT JOIN clocks c
    ON c.cluster_id = s.cluster_id AND c.clock_node = s.node_id AND s.reported_us >= c.own_us
), reached AS (
  -- Of equal heights the first; a lower one that came later is passed over by the join.
  SELECT $KEY, leader_epoch, hw AS reached_hw, min(t) AS reached_us, arg_min(err_us, t) AS reached_err_us
  FROM timed WHERE leads GROUP BY $KEY, leader_epoch, hw
), risen AS (
  SELECT $KEY, leader_epoch, t AS risen_us, max(hw) AS leader_hw FROM timed WHERE leads GROUP BY $KEY, leader_epoch, t
), seen AS (
  SELECT *, hw IS DISTINCT FROM lag(hw) OVER (PARTITION BY $KEY, leader_epoch, node_id ORDER BY t) AS is_first
  FROM timed WHERE NOT leads
), joined AS (
  SELECT s.*, CASE WHEN is_first THEN t - reached_us END AS delay, err_us + reached_err_us AS both_err_us,
    CASE WHEN leader_hw >= hw THEN leader_hw - hw END AS behind, leader_hw < hw AS is_ahead
  FROM seen s
  ASOF LEFT JOIN reached r ON r.cluster_id = s.cluster_id AND r.topic_id = s.topic_id AND r.partition = s.partition
    AND r.leader_epoch = s.leader_epoch AND s.hw <= r.reached_hw
  ASOF LEFT JOIN risen l ON l.cluster_id = s.cluster_id AND l.topic_id = s.topic_id AND l.partition = s.partition
    AND l.leader_epoch = s.leader_epoch AND s.t >= l.risen_us
)
SELECT $BY, node_id AS replica_id, count(delay) AS observations, $RANK(delay, 50) AS p50_us, $RANK(delay, 95) AS p95_us,
  max(delay) AS max_us, max(behind) AS behind_max_records, avg(behind) AS behind_mean_records,
  count(*) FILTER (is_ahead) AS n_ahead, count(*) FILTER (delay < 0) AS n_negative, max(both_err_us) FILTER (delay IS NOT NULL) AS clock_err_us
FROM joined JOIN windows ON $WITHIN GROUP BY $BY, node_id
