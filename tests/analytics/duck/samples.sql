-- Looks of leaders as intervals, and the high watermarks of both sides; only for statistics that read samples.

CREATE TABLE looks AS
WITH rows AS (
  SELECT * FROM raw_samples WHERE event_type = 'REPLICA_SAMPLE'
  QUALIFY row_number() OVER (PARTITION BY cluster_id, node_id, incarnation, seq) = 1
), told AS (
  -- In controller time, as terms are.
  SELECT r.* REPLACE (ts_wall_us - coalesce(offset_us, 0) AS ts_wall_us,
    hw_next_append_us - coalesce(c.offset_us, 0) AS hw_next_append_us)
  FROM (SELECT * EXCLUDE (offset_us, err_us) FROM rows) r ASOF LEFT JOIN clocks c
    ON c.cluster_id = r.cluster_id AND c.clock_node = r.node_id AND r.ts_wall_us >= c.own_us
), timed AS (
  SELECT $KEY, topic, node_id, incarnation, leader_epoch, replica_id, sample_id, leo, durable_leo, leader_leo, hw,
    acked_offset, leo_bytes, hw_bytes, hw_next_append_us, in_isr, in_maximal_isr, expected_state,
    max(ts_wall_us) OVER (series ROWS UNBOUNDED PRECEDING) AS at_us, lead(ts_wall_us) OVER series AS next_us,
    interval_ms * 3000 AS silence_us
  FROM told
  WINDOW series AS (PARTITION BY $KEY, replica_id, leader_epoch, node_id, incarnation ORDER BY seq)
)
SELECT timed.* EXCLUDE (next_us, silence_us), replica_id = node_id AS is_leader,
  coalesce(at_us >= term_end, false) AS is_zombie, greatest(at_us, term_start) AS t0,
  -- Of nulls least takes no notice: the last look holds until it is silence, or until the term is over.
  least(CASE WHEN next_us IS NOT NULL THEN greatest(next_us, at_us) END, at_us + silence_us, term_end) AS t1
FROM timed LEFT JOIN terms USING ($KEY, leader_epoch);

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
