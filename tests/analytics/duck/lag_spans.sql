-- Rows of the table of this name, of one slice of the partitions: every group meets every step of its partition's HW,
-- which is the one join of a day that does not fit into memory as a whole.
--
-- Where a group stands beside the HW: between two moments at which anything changed, what held at the first of them. A
-- report of a group is believed until the next one, and for three minutes, if no later coordinator reported before; the
-- HW as its leader's look is, and within a look it is what the leader's looks and advances have reached so far.
WITH ordered AS (
  SELECT * FROM commits WHERE $SLICE WINDOW so_far AS (PARTITION BY $KEY, group_id
    ORDER BY t, coordinator_epoch NULLS FIRST, node_id, incarnation, seq)
  QUALIFY coalesce(coordinator_epoch = max(coordinator_epoch) OVER so_far, true)
), reported AS (
  SELECT $KEY, topic, group_id, committed, t AS t0, least(lead(t) OVER (PARTITION BY $KEY, group_id
    ORDER BY t, coordinator_epoch NULLS FIRST, node_id, incarnation, seq), t + 180000000) AS t1
  FROM ordered
), held AS (SELECT * FROM reported WHERE t1 > t0),
sliced_looks AS (SELECT * FROM own_looks WHERE $SLICE),
rises AS (
  SELECT $KEY, leader_epoch, node_id, incarnation, t0 AS at_us, hw FROM sliced_looks
  UNION ALL SELECT $KEY, leader_epoch, node_id, incarnation, last_us, new_hw FROM moved WHERE $SLICE
), tops AS (
  SELECT $KEY, leader_epoch, node_id, incarnation, at_us, max(max(hw)) OVER (
    PARTITION BY $KEY, leader_epoch, node_id, incarnation ORDER BY at_us) AS hw
  FROM rises GROUP BY $KEY, leader_epoch, node_id, incarnation, at_us
), changes AS (
  SELECT $KEY, at_us FROM tops UNION SELECT $KEY, unnest([t0, t1]) FROM sliced_looks
), cuts AS (
  SELECT $KEY, topic, group_id, unnest([t0, t1]) AS at_us FROM held
  UNION SELECT $KEY, topic, group_id, at_us FROM changes JOIN (SELECT DISTINCT $KEY, topic, group_id FROM held) g USING ($KEY)
), spans AS (
  SELECT $KEY, topic, group_id, at_us AS t0, lead(at_us) OVER (PARTITION BY $KEY, group_id ORDER BY at_us) AS t1 FROM cuts
)
SELECT s.cluster_id, s.topic_id, s.partition, s.topic, s.group_id, s.t0, s.t1, o.leader_epoch, p.hw, h.committed
FROM spans s
ASOF JOIN held h ON h.cluster_id = s.cluster_id AND h.topic_id = s.topic_id AND h.partition = s.partition
  AND h.group_id = s.group_id AND s.t0 >= h.t0
ASOF JOIN sliced_looks o ON o.cluster_id = s.cluster_id AND o.topic_id = s.topic_id AND o.partition = s.partition
  AND s.t0 >= o.t0
ASOF JOIN tops p ON p.cluster_id = s.cluster_id AND p.topic_id = s.topic_id AND p.partition = s.partition
  AND p.leader_epoch = o.leader_epoch AND p.node_id = o.node_id AND p.incarnation = o.incarnation AND s.t0 >= p.at_us
WHERE s.t1 <= h.t1 AND s.t1 <= o.t1 AND h.committed IS NOT NULL;
