-- Per EPOCH_START: what the epochs before it had beyond its start, known before the commit and with zombies; what an
-- epoch in between had already cut is not cut again. Per TRUNCATION: what the replica reported.
-- What was lost in bytes lies between positions that looks know; avoidable is what another live replica had.
-- All in controller time. A sum of 0 that leaves out what is not known says nothing.
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
), bounds AS (
  -- From the next epoch's start to the highest HW of this one; its leader alone counted these bytes.
  SELECT $KEY, leader_epoch, top - least(min(leo_bytes) FILTER (leader_leo >= following),
      min(hw_bytes) FILTER (hw >= following)) AS least_bytes,
    top - greatest(max(leo_bytes) FILTER (leader_leo <= following), max(hw_bytes) FILTER (hw <= following)) AS most_bytes
  FROM looks JOIN (SELECT $KEY, leader_epoch,
      CASE WHEN max(hw) = max(hw) FILTER (hw_bytes IS NOT NULL) THEN max(hw_bytes) END AS top
    FROM looks WHERE is_leader AND NOT is_zombie GROUP BY ALL) USING ($KEY, leader_epoch)
  JOIN (SELECT k.*, (SELECT arg_min(x.start_offset, x.leader_epoch) FROM starts x WHERE x.cluster_id = k.cluster_id
      AND x.topic_id = k.topic_id AND x.partition = k.partition AND x.leader_epoch > k.leader_epoch) AS following
    FROM (SELECT DISTINCT $KEY, leader_epoch FROM looks) k) USING ($KEY, leader_epoch)
  WHERE is_leader AND NOT is_zombie GROUP BY $KEY, leader_epoch, top
), elections AS (
  SELECT $KEY, new_leader_epoch AS leader_epoch, bool_or(coalesce(election_type = 'unclean', false)) AS is_unclean,
    max(new_leader) AS leader, max(d.live_set) AS live
  FROM control_rows c LEFT JOIN (SELECT cluster_id, incarnation, meta_offset, live_set FROM transitions
    WHERE event_type = 'CONTROLLER_DECISION' AND decision = 'unclean_election') d
    USING (cluster_id, incarnation, meta_offset)
  WHERE event_type = 'LEADER_CHANGE' AND new_leader >= 0 GROUP BY ALL
), replicas AS (
  SELECT $KEY, leader_epoch AS e, replica_id, arg_max(leo, (t1, leo)) AS reached
  FROM looks WHERE NOT is_zombie AND leo IS NOT NULL GROUP BY ALL
), ends AS (
  -- An epoch that nobody looked at had at least the log that it started with.
  SELECT $KEY, leader_epoch AS e, coalesce(leo, start_offset) AS leo, coalesce(leo_zombie, start_offset) AS leo_zombie, hw
  FROM seen FULL JOIN starts USING ($KEY, leader_epoch)
), proved AS (
  -- By the own HW of a replica that cut its log to where the epoch starts, the last one that starts there.
  SELECT cluster_id, topic_id, partition, e AS leader_epoch, max(hw_before) AS proved_hw FROM (
    SELECT c.cluster_id, c.topic_id, c.partition, c.hw_before, (SELECT max(s.leader_epoch) FROM starts s
      WHERE s.cluster_id = c.cluster_id AND s.topic_id = c.topic_id AND s.partition = c.partition
        AND s.start_offset = c.to_leo AND s.leader_epoch <= c.leader_epoch) AS e
    FROM transitions c WHERE event_type = 'TRUNCATION' AND committed_cut > 0
  ) WHERE e IS NOT NULL GROUP BY ALL
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
    CASE WHEN bool_or(hw IS NOT NULL) THEN greatest(0, max(least(hw, kept)) FILTER (hw IS NOT NULL) - any_value(start_offset))
      WHEN bool_or(is_first) THEN 0 ELSE any_value(proved_hw) - any_value(start_offset) END AS lost,
    bool_or(hw IS NOT NULL OR coalesce(is_first, false)) AS is_measured
  FROM before LEFT JOIN created USING ($KEY, leader_epoch) LEFT JOIN proved USING ($KEY, leader_epoch)
  GROUP BY $KEY, topic, t, leader_epoch
), previous AS (
  -- The epoch right before; what one before that had is not known in bytes.
  SELECT $KEY, leader_epoch, max(e) AS e FROM before WHERE e IS NOT NULL GROUP BY ALL
), sized AS (
  SELECT $KEY, leader_epoch, x.hw AS own_hw, least_bytes, most_bytes
  FROM previous p JOIN ends x USING ($KEY, e)
  LEFT JOIN (SELECT $KEY, leader_epoch AS e, least_bytes, most_bytes FROM bounds) USING ($KEY, e)
), furthest AS (
  -- Of each replica the last epoch that saw it, and no more of it than the epochs since then have left.
  SELECT l.cluster_id, l.topic_id, l.partition, l.leader_epoch, max(reached) AS reached FROM (
    SELECT el.*, r.replica_id, least(r.reached, (SELECT min(x.start_offset) FROM starts x
        WHERE x.cluster_id = el.cluster_id AND x.topic_id = el.topic_id AND x.partition = el.partition
          AND x.leader_epoch > r.e AND x.leader_epoch < el.leader_epoch)) AS reached
    FROM elections el JOIN replicas r ON r.cluster_id = el.cluster_id AND r.topic_id = el.topic_id
      AND r.partition = el.partition AND r.e < el.leader_epoch
      AND r.replica_id <> el.leader AND list_contains(el.live, r.replica_id)
    QUALIFY row_number() OVER (PARTITION BY el.cluster_id, el.topic_id, el.partition, el.leader_epoch, r.replica_id
      ORDER BY r.e DESC) = 1
  ) l GROUP BY ALL
), measured AS (
  SELECT cuts.*,
    CASE WHEN lost = 0 THEN 0 WHEN lost > 0 AND own_hw = start_offset + lost THEN least_bytes END AS least_bytes,
    CASE WHEN lost = 0 THEN 0 WHEN lost > 0 AND own_hw = start_offset + lost THEN most_bytes END AS most_bytes,
    CASE WHEN NOT is_unclean OR lost = 0 THEN 0 WHEN is_measured AND live IS NOT NULL
      THEN greatest(0, least(lost, coalesce(reached, start_offset) - start_offset)) END AS avoidable
  FROM cuts JOIN (SELECT $KEY, leader_epoch, start_offset FROM starts) USING ($KEY, leader_epoch)
  LEFT JOIN sized USING ($KEY, leader_epoch) LEFT JOIN elections el USING ($KEY, leader_epoch)
  LEFT JOIN furthest USING ($KEY, leader_epoch)
), epochs AS (
  SELECT $BY, count(*) AS epochs, count(*) FILTER (NOT is_measured) AS epochs_unknown,
    $AT_LEAST(tail) AS tail_cut_records, $AT_LEAST(tail_zombie) AS tail_cut_with_zombies_records,
    $AT_LEAST(lost) AS committed_lost_records,
    $AT_LEAST(least_bytes) AS committed_lost_min_bytes,
    CASE WHEN count(most_bytes) = count(*) THEN sum(most_bytes) END AS committed_lost_max_bytes,
    $AT_LEAST(avoidable) AS avoidable_lost_records
  FROM measured JOIN windows ON $WITHIN GROUP BY $BY
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
