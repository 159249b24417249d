-- Per EPOCH_START: what the epochs before it had beyond its start, known before the commit and with zombies; what an
-- epoch in between had already cut is not cut again. Per TRUNCATION: what the replica reported.
-- Both in controller time. A sum of 0 that leaves out what is not known says nothing.
WITH own_starts AS (
  SELECT $KEY, leader_epoch, max(topic) AS topic, any_value(node_id) AS starter, min(ts_wall_us) AS own_us,
    min(start_offset) AS start_offset
  FROM transitions WHERE event_type = 'EPOCH_START' GROUP BY ALL
), starts AS (
  SELECT s.cluster_id, topic_id, partition, leader_epoch, topic, s.own_us - coalesce(offset_us, 0) AS t, start_offset
  FROM own_starts s ASOF LEFT JOIN clocks c
    ON c.cluster_id = s.cluster_id AND c.clock_node = s.starter AND s.own_us >= c.own_us
), created AS (
  SELECT DISTINCT $KEY, new_leader_epoch AS leader_epoch, true AS is_first
  FROM control_rows WHERE event_type = 'LEADER_CHANGE' AND reason = 'created'
), seen AS (
  SELECT $KEY, leader_epoch, max(leader_leo) FILTER (NOT is_zombie) AS leo, max(leader_leo) AS leo_zombie,
    max(hw) FILTER (NOT is_zombie) AS hw
  FROM looks WHERE is_leader GROUP BY ALL
), ends AS (
  -- An epoch that nobody looked at had at least the log that it started with.
  SELECT $KEY, leader_epoch AS e, coalesce(leo, start_offset) AS leo, coalesce(leo_zombie, start_offset) AS leo_zombie, hw
  FROM seen FULL JOIN starts USING ($KEY, leader_epoch)
), before AS (
  SELECT s.*, e.e, e.leo, e.leo_zombie, e.hw,
    (SELECT min(x.start_offset) FROM starts x WHERE x.cluster_id = s.cluster_id AND x.topic_id = s.topic_id
      AND x.partition = s.partition AND x.leader_epoch > e.e AND x.leader_epoch < s.leader_epoch) AS kept
  FROM starts s LEFT JOIN ends e ON e.cluster_id = s.cluster_id AND e.topic_id = s.topic_id
    AND e.partition = s.partition AND e.e < s.leader_epoch
), cuts AS (
  SELECT $KEY, topic, t, leader_epoch,
    CASE WHEN bool_or(leo IS NOT NULL)
      THEN greatest(0, arg_max(least(leo, kept), e) FILTER (leo IS NOT NULL) - any_value(start_offset))
      WHEN bool_or(is_first) THEN 0 END AS tail,
    CASE WHEN bool_or(leo_zombie IS NOT NULL)
      THEN greatest(0, arg_max(least(leo_zombie, kept), e) FILTER (leo_zombie IS NOT NULL) - any_value(start_offset))
      WHEN bool_or(is_first) THEN 0 END AS tail_zombie,
    CASE WHEN bool_or(hw IS NOT NULL) THEN greatest(0, max(least(hw, kept)) - any_value(start_offset))
      WHEN bool_or(is_first) THEN 0 END AS lost
  FROM before LEFT JOIN created USING ($KEY, leader_epoch) GROUP BY $KEY, topic, t, leader_epoch
), epochs AS (
  SELECT $BY, count(*) AS epochs, count(*) FILTER (lost IS NULL) AS epochs_unknown,
    $AT_LEAST(tail) AS tail_cut_records, $AT_LEAST(tail_zombie) AS tail_cut_with_zombies_records,
    $AT_LEAST(lost) AS committed_lost_records
  FROM cuts JOIN windows ON $WITHIN GROUP BY $BY
), reported AS (
  SELECT s.cluster_id, topic_id, partition, topic, ts_wall_us - coalesce(c.offset_us, 0) AS t,
    greatest(0, from_leo - to_leo) AS cut, committed_cut
  FROM (SELECT * FROM transitions WHERE event_type = 'TRUNCATION') s ASOF LEFT JOIN clocks c
    ON c.cluster_id = s.cluster_id AND c.clock_node = s.node_id AND s.ts_wall_us >= c.own_us
), truncations AS (
  SELECT $BY, count(*) AS truncations, sum(cut) AS truncated_records, max(cut) AS truncated_max_records,
    count(*) FILTER (committed_cut IS NULL) AS own_hw_unknown, $AT_LEAST(committed_cut) AS committed_cut_records
  FROM reported JOIN windows ON $WITHIN GROUP BY $BY
)
SELECT * FROM epochs FULL JOIN truncations USING ($BY)
