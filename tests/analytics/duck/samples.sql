-- Looks of leaders as intervals, and the high watermarks of both sides; only for statistics that read samples.

-- When each epoch began: its commit, or if that was not reported its EPOCH_START.
CREATE TABLE spans AS
WITH starts AS (
  SELECT $KEY, leader_epoch, any_value(node_id) AS starter, min(ts_wall_us) AS start_us
  FROM transitions WHERE event_type = 'EPOCH_START' GROUP BY ALL
), taken AS (
  SELECT s.* EXCLUDE (starter, start_us), start_us - coalesce(offset_us, 0) AS taken_up_us
  FROM starts s ASOF LEFT JOIN clocks c
    ON s.cluster_id = c.cluster_id AND s.starter = c.clock_node AND s.start_us >= c.own_us
)
SELECT $KEY, leader_epoch, term_end, taken_up_us,
  CASE WHEN is_start_reported THEN term_start ELSE least(term_start, taken_up_us) END AS began_us
FROM terms FULL JOIN taken USING ($KEY, leader_epoch);

CREATE TABLE reported_looks AS
WITH rows AS (
  SELECT * FROM raw_samples WHERE event_type = 'REPLICA_SAMPLE'
  QUALIFY row_number() OVER (PARTITION BY cluster_id, node_id, incarnation, seq) = 1
)
-- In controller time, as terms are.
SELECT r.* REPLACE (ts_wall_us - coalesce(offset_us, 0) AS ts_wall_us,
    hw_next_append_us - coalesce(c.offset_us, 0) AS hw_next_append_us)
  FROM (SELECT * EXCLUDE (offset_us, err_us) FROM rows) r ASOF LEFT JOIN clocks c
    ON c.cluster_id = r.cluster_id AND c.clock_node = r.node_id AND r.ts_wall_us >= c.own_us;

-- Until when each leader is believed: the first sign of a later one, which had a higher epoch, or the same and came later.
CREATE TABLE leaders AS
WITH firsts AS (
  SELECT $KEY, leader_epoch, node_id, incarnation, min(ts_wall_us) AS first_us FROM reported_looks GROUP BY ALL
), signs AS (
  SELECT f.*, greatest(first_us, began_us) AS sign_us FROM firsts f LEFT JOIN spans USING ($KEY, leader_epoch)
)
SELECT s.cluster_id, s.topic_id, s.partition, s.leader_epoch, s.node_id, s.incarnation, least(
  (SELECT min(x.sign_us) FROM signs x WHERE x.cluster_id = s.cluster_id AND x.topic_id = s.topic_id
    AND x.partition = s.partition AND (x.leader_epoch > s.leader_epoch OR (x.leader_epoch = s.leader_epoch
      AND (x.sign_us > s.sign_us OR (x.sign_us = s.sign_us AND x.incarnation > s.incarnation)
        OR (x.sign_us = s.sign_us AND x.incarnation = s.incarnation AND x.node_id > s.node_id))))),
  (SELECT min(greatest(e.taken_up_us, e.began_us)) FROM spans e WHERE e.cluster_id = s.cluster_id
    AND e.topic_id = s.topic_id AND e.partition = s.partition AND e.leader_epoch > s.leader_epoch
    AND e.taken_up_us IS NOT NULL)) AS succeeded_us
FROM signs s;

CREATE TABLE looks AS
WITH timed AS (
  SELECT $KEY, topic, node_id, incarnation, leader_epoch, replica_id, sample_id, leo, durable_leo, leader_leo, hw,
    acked_offset, leo_bytes, hw_bytes, hw_next_append_us, in_isr, in_maximal_isr, expected_state,
    max(ts_wall_us) OVER (series ROWS UNBOUNDED PRECEDING) AS at_us, lead(ts_wall_us) OVER series AS next_us,
    interval_ms * 3000 AS silence_us
  FROM reported_looks
  WINDOW series AS (PARTITION BY $KEY, replica_id, leader_epoch, node_id, incarnation ORDER BY seq)
)
SELECT timed.* EXCLUDE (next_us, silence_us), replica_id = node_id AS is_leader,
  coalesce(at_us >= least(term_end, succeeded_us), false) AS is_zombie, greatest(at_us, began_us) AS t0,
  -- Of nulls least takes no notice: the last look holds until it is silence, or until the term is over.
  least(CASE WHEN next_us IS NOT NULL THEN greatest(next_us, at_us) END, at_us + silence_us, term_end, succeeded_us) AS t1
FROM timed LEFT JOIN spans USING ($KEY, leader_epoch)
LEFT JOIN leaders USING ($KEY, leader_epoch, node_id, incarnation);

CREATE VIEW believed AS SELECT * FROM looks WHERE NOT is_zombie AND t1 > t0;
CREATE VIEW own_looks AS SELECT * FROM believed WHERE is_leader;

CREATE TABLE advances AS
SELECT $KEY, topic, node_id, leader_epoch, incarnation, old_hw, new_hw, first_us, last_us
FROM raw_samples WHERE event_type = 'HW_ADVANCE' AND partition IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY cluster_id, node_id, incarnation, seq) = 1;

CREATE VIEW moved AS
SELECT a.* REPLACE (first_us - coalesce(offset_us, 0) AS first_us, last_us - coalesce(offset_us, 0) AS last_us)
FROM advances a ASOF LEFT JOIN clocks c
  ON c.cluster_id = a.cluster_id AND c.clock_node = a.node_id AND a.last_us >= c.own_us;

CREATE TABLE local_samples AS
SELECT $KEY, topic, leader_epoch, node_id, incarnation, seq, hw, ts_wall_us
FROM raw_samples WHERE event_type = 'LOCAL_SAMPLE'
QUALIFY row_number() OVER (PARTITION BY cluster_id, node_id, incarnation, seq) = 1;

-- What groups have committed, each report once, in controller time.
CREATE TABLE commits AS
WITH rows AS (
  SELECT cluster_id, topic_id, partition, node_id, incarnation, seq, ts_wall_us, group_id, committed, n_commits, n_error,
    coordinator_epoch
  FROM raw_samples WHERE event_type = 'GROUP_OFFSETS' AND partition IS NOT NULL
  QUALIFY row_number() OVER (PARTITION BY cluster_id, node_id, incarnation, seq) = 1
), timed AS (
  SELECT r.*, ts_wall_us - coalesce(c.offset_us, 0) AS own_us FROM rows r ASOF LEFT JOIN clocks c
    ON c.cluster_id = r.cluster_id AND c.clock_node = r.node_id AND r.ts_wall_us >= c.own_us
)
SELECT $KEY, topic, group_id, node_id, incarnation, seq, committed, n_commits, n_error, coordinator_epoch,
  max(own_us) OVER (PARTITION BY $KEY, group_id, node_id, incarnation ORDER BY seq) AS t
FROM timed JOIN groups USING ($KEY);
