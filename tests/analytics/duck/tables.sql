-- What all statistics share, after STATISTICS.md#conventions: distinct events, the control plane as step functions,
-- terms, looks as intervals, clocks. $KEY is the key of a partition; files are views raw_transitions and raw_samples.

-- Two controllers that measured the same node: what they measured differs by how far their clocks are apart. Of several
-- nodes the median counts, and what errors and a tenth of a second of drift may explain is no difference.
CREATE TABLE ahead AS
WITH reigns AS (
  SELECT cluster_id, incarnation, subject_node_id AS node, dense_rank() OVER (PARTITION BY cluster_id ORDER BY incarnation)
    AS place, arg_min(offset_us, ts_wall_us) AS first_us, arg_min(err_us, ts_wall_us) AS first_err,
    arg_max(offset_us, ts_wall_us) AS last_us, arg_max(err_us, ts_wall_us) AS last_err
  FROM raw_transitions WHERE event_type = 'CLOCK_SAMPLE' AND node_id = -1 GROUP BY cluster_id, incarnation, node
), steps AS (
  SELECT b.cluster_id, b.incarnation, CASE WHEN abs(a.last_us - b.first_us) > a.last_err + b.first_err + 100000
    THEN a.last_us - b.first_us ELSE 0 END AS step
  FROM reigns a JOIN reigns b ON b.cluster_id = a.cluster_id AND b.node = a.node AND b.place = a.place + 1
), medians AS (
  SELECT cluster_id, incarnation, list(step ORDER BY abs(step))[(count(*) + 1) // 2] AS step FROM steps GROUP BY ALL
)
SELECT cluster_id, incarnation, sum(step) OVER (PARTITION BY cluster_id ORDER BY incarnation)::BIGINT AS ahead_us
FROM medians;

CREATE TABLE transitions AS
SELECT * EXCLUDE (c, i, ahead_us) REPLACE (ts_wall_us - coalesce(ahead_us, 0) AS ts_wall_us,
    last_heartbeat_us - coalesce(ahead_us, 0) AS last_heartbeat_us, offset_us + coalesce(ahead_us, 0) AS offset_us),
  count(*) OVER identity AS n_copies
FROM raw_transitions r LEFT JOIN (SELECT cluster_id AS c, incarnation AS i, ahead_us FROM ahead) a
  ON a.c = r.cluster_id AND a.i = r.incarnation AND r.node_id = -1
WINDOW identity AS (PARTITION BY cluster_id, node_id, incarnation, seq)
QUALIFY row_number() OVER (PARTITION BY cluster_id, node_id, incarnation, seq) = 1;

-- Order is that of partition epochs; a decision's rows happen at once; time does not go back along the order. A row of a
-- type that only a newer version knows has its place in the order, and nothing of what it says.
CREATE TABLE control_rows AS
WITH named AS (
  SELECT *, event_type IN ('ISR_CHANGE', 'LEADER_CHANGE', 'REASSIGNMENT') AS decides, event_type NOT IN ($KNOWN_TYPES) AS is_foreign
  FROM transitions WHERE node_id = -1 AND partition IS NOT NULL
), rows AS (
  SELECT * FROM named
  WHERE (NOT is_foreign AND event_type IN ('ISR_CHANGE', 'LEADER_CHANGE', 'CONFIG_CHANGE', 'STATE_SNAPSHOT',
    'REASSIGNMENT'))
  UNION ALL BY NAME
  SELECT $KEY, topic, event_type, node_id, incarnation, seq, meta_offset, ts_wall_us, n_copies, leader_epoch,
    partition_epoch, decides, is_foreign FROM named WHERE is_foreign AND partition_epoch IS NOT NULL
), timed AS (
  SELECT *, CASE WHEN decides THEN min(ts_wall_us) OVER (PARTITION BY $KEY, partition_epoch, decides)
            ELSE ts_wall_us END AS reported_us FROM rows
), placed AS (
  SELECT * EXCLUDE (topic), max(topic) OVER (PARTITION BY $KEY) AS topic, max(reported_us) OVER so_far AS t,
    -- A hole in the epochs; a snapshot of an epoch whose transition was not seen is one as well, and so is a row that is
    -- not understood, of which it is known when it was.
    greatest(0, coalesce((partition_epoch - lag(partition_epoch) OVER ordered) % 1024, 0)
      - CASE WHEN event_type = 'STATE_SNAPSHOT' OR is_foreign THEN 0 ELSE 1 END) AS lost_before,
    is_foreign AND coalesce(partition_epoch > lag(partition_epoch) OVER ordered, false) AS is_unread
  FROM timed
  WINDOW ordered AS (PARTITION BY $KEY ORDER BY partition_epoch, meta_offset, ts_wall_us, seq),
    so_far AS (PARTITION BY $KEY ORDER BY partition_epoch, meta_offset, ts_wall_us, seq ROWS UNBOUNDED PRECEDING)
), stepped AS (
  -- The last step of a reassignment so far: one that is queued has changed no replicas, and what was lost may have been
  -- its end.
  SELECT *, last_value(CASE
      WHEN event_type = 'REASSIGNMENT' AND phase <> 'queued' THEN {'runs': phase = 'started', 'adding': adding_replicas}
      -- A record that begins inside a reassignment.
      WHEN event_type = 'STATE_SNAPSHOT' AND len(original_replicas) > 0 THEN {'runs': true, 'adding': adding_replicas}
      WHEN lost_before > 0 THEN {'runs': false, 'adding': NULL::INTEGER[]} END IGNORE NULLS) OVER (PARTITION BY $KEY
    ORDER BY partition_epoch, meta_offset, ts_wall_us, seq ROWS UNBOUNDED PRECEDING) AS step
  FROM placed
)
SELECT * EXCLUDE (step), coalesce(step.runs, false) AS is_moving, CASE WHEN step.runs THEN step.adding ELSE [] END AS adding
FROM stepped;

-- One row per interval [t0, t1); is_last: what held once its partition epoch was decided.
CREATE TABLE states AS
WITH counted AS (
  SELECT *, sum(CASE WHEN lost_before > 0 THEN 1 ELSE 0 END) OVER (PARTITION BY $KEY
    ORDER BY partition_epoch, meta_offset, ts_wall_us, seq ROWS UNBOUNDED PRECEDING) AS holes
  FROM control_rows
), words AS (
  SELECT cluster_id, max(ts_wall_us) AS last_us, max(ts_wall_us) FILTER (event_type = 'EXPORT_HEARTBEAT') AS beat_us,
    max(ts_wall_us) FILTER (event_type = 'EXPORT_HEARTBEAT' AND ext['final'] = 'true') AS end_us
  FROM transitions WHERE node_id = -1 GROUP BY cluster_id
), heard AS (
  SELECT cluster_id, CASE WHEN end_us = last_us THEN end_us ELSE greatest(last_us, beat_us + 30000000) END AS heard_us
  FROM words WHERE beat_us IS NOT NULL
), held AS (
  SELECT $KEY, topic, partition_epoch, t AS t0,
    -- Behind the last row: to the controller's last word, and not beyond the hour, whose successor has no snapshot.
    coalesce(lead(t) OVER ordered, greatest(t, least(heard_us, (t // 3600000000 + 1) * 3600000000))) AS t1,
    last_value(leader_epoch IGNORE NULLS) OVER so_far AS leader_epoch,
    last_value(new_leader IGNORE NULLS) OVER so_far AS new_leader,
    last_value(CASE WHEN new_leader IS NOT NULL THEN leader_epoch END IGNORE NULLS) OVER so_far AS leader_reported_in,
    last_value(new_isr IGNORE NULLS) OVER so_far AS isr,
    -- Behind a hole the ISR has to be reported again.
    coalesce(last_value(CASE WHEN new_isr IS NOT NULL THEN holes END IGNORE NULLS) OVER so_far = holes, false)
      AS isr_is_reported,
    -- While a reassignment runs, the original ones.
    last_value(CASE WHEN NOT is_moving THEN replicas WHEN len(original_replicas) > 0 THEN original_replicas END
      IGNORE NULLS) OVER so_far AS replicas,
    last_value(min_isr IGNORE NULLS) OVER so_far AS reported_min_isr,
    last_value(lag_time_max_ms IGNORE NULLS) OVER so_far * 1000 AS lag_time_max_us,
    coalesce(last_value(topic_deleted IGNORE NULLS) OVER so_far, false) AS is_deleted,
    coalesce(lead(lost_before - is_unread::INT) OVER ordered, 0) = 0 AS is_whole,
    lead(partition_epoch) OVER ordered IS DISTINCT FROM partition_epoch AS is_last,
    row_number() OVER ordered AS place
  FROM counted LEFT JOIN heard USING (cluster_id)
  WINDOW ordered AS (PARTITION BY $KEY ORDER BY partition_epoch, meta_offset, ts_wall_us, seq),
    so_far AS (PARTITION BY $KEY ORDER BY partition_epoch, meta_offset, ts_wall_us, seq ROWS UNBOUNDED PRECEDING)
)
SELECT $KEY, topic, partition_epoch, place, t0, t1, leader_epoch, isr, replicas, lag_time_max_us, is_last, isr_is_reported,
  CASE WHEN new_leader >= 0 THEN new_leader END AS leader, len(replicas) AS rf, len(isr) AS isr_size,
  least(len(replicas), reported_min_isr) AS min_isr,
  is_whole AND coalesce(leader_epoch = leader_reported_in, false) AND isr_is_reported AND replicas IS NOT NULL
    AND reported_min_isr IS NOT NULL AS known
FROM held WHERE NOT is_deleted;

CREATE VIEW known_states AS SELECT * FROM states WHERE known AND t1 > t0;

CREATE TABLE terms AS
WITH begun AS (
  SELECT $KEY, leader_epoch, min(t) AS term_start, max(new_leader) FILTER (new_leader >= 0) AS term_leader,
    coalesce(min(t) FILTER (event_type = 'LEADER_CHANGE') = min(t), false) AS is_start_reported
  FROM control_rows WHERE leader_epoch IS NOT NULL AND NOT coalesce(topic_deleted, false) GROUP BY ALL
), deleted AS (SELECT $KEY, min(t) AS deleted_us FROM control_rows WHERE topic_deleted GROUP BY ALL)
SELECT begun.*, coalesce(lead(term_start) OVER (PARTITION BY $KEY ORDER BY leader_epoch), deleted_us, $FOREVER)
  AS term_end
FROM begun LEFT JOIN deleted USING ($KEY);

-- A node's time minus the offset is the controller's; the first measurement also counts for what was before.
CREATE TABLE clocks AS
SELECT cluster_id, subject_node_id AS clock_node, offset_us, err_us,
  CASE WHEN lag(seq) OVER own IS NULL THEN -$FOREVER ELSE ts_wall_us + offset_us END AS own_us
FROM transitions WHERE event_type = 'CLOCK_SAMPLE'
WINDOW own AS (PARTITION BY cluster_id, subject_node_id ORDER BY ts_wall_us);

CREATE TABLE distinct_changes AS
SELECT $KEY, topic, partition_epoch, min(t) AS t, any_value(old_isr) AS old_isr, any_value(new_isr) AS new_isr,
  any_value(cause) AS cause, any_value(initiator) AS initiator, any_value(removed) AS removed, any_value(adding) AS adding
FROM control_rows WHERE event_type = 'ISR_CHANGE' GROUP BY $KEY, topic, partition_epoch;

-- Whom a reassignment takes away has not gone, and whom it adds has not come back.
CREATE VIEW moves AS
SELECT $KEY, topic, partition_epoch, t, cause, initiator, removed,
  list_filter(old_isr, lambda r: NOT list_contains(new_isr, r) AND cause IS DISTINCT FROM 'reassign') AS gone,
  list_filter(new_isr, lambda r: NOT list_contains(old_isr, r) AND NOT list_contains(adding, r)) AS came
FROM distinct_changes;

CREATE TABLE leader_changes AS
SELECT $KEY, topic, partition_epoch, min(t) AS t, any_value(old_leader) AS old_leader,
  any_value(new_leader) AS new_leader, any_value(new_leader_epoch) AS new_leader_epoch
FROM control_rows WHERE event_type = 'LEADER_CHANGE' AND reason IS DISTINCT FROM 'created'
  -- The epoch that a reassignment begins under the same leader.
  AND NOT (reason IS NOT DISTINCT FROM 'reassign' AND old_leader IS NOT DISTINCT FROM new_leader)
GROUP BY $KEY, topic, partition_epoch;

-- Removals with how far the replica had come, which the leader's echo knows, in controller time. All moments of a row
-- were reported by one reading of its clock, so one offset belongs to the row.
CREATE TABLE removals AS
WITH gone AS (
  SELECT $KEY, topic, partition_epoch, t, cause, initiator, removed, unnest(gone) AS replica_id FROM moves
), echoes AS (
  SELECT $KEY, partition_epoch, any_value(node_id) AS teller, any_value(ts_wall_us) AS echoed_us,
    any_value(removed) AS echoed
  FROM transitions WHERE event_type = 'ISR_CHANGE' AND node_id <> -1 GROUP BY ALL
), starts AS (
  SELECT $KEY, leader_epoch, any_value(node_id) AS starter, min(ts_wall_us) AS began_us
  FROM transitions WHERE event_type = 'EPOCH_START' GROUP BY ALL
), joined AS (
  SELECT g.*, teller, echoed_us, starter, began_us, s.leader, s.lag_time_max_us,
    coalesce(list_filter(echoed, lambda m: m.replica_id = g.replica_id)[1],
             list_filter(g.removed, lambda m: m.replica_id = g.replica_id)[1]) AS member
  FROM gone g LEFT JOIN echoes USING ($KEY, partition_epoch)
  LEFT JOIN (SELECT * FROM states WHERE is_last) s USING ($KEY, partition_epoch)
  LEFT JOIN starts USING ($KEY, leader_epoch)
)
SELECT j.* EXCLUDE (member, removed, starter, began_us), c.err_us AS clock_err_us,
  member.last_fetch_us - coalesce(c.offset_us, 0) AS last_fetch_us,
  member.last_caught_up_us - coalesce(c.offset_us, 0) AS last_caught_up_us,
  began_us - coalesce(b.offset_us, 0) AS epoch_start_us
FROM joined j
ASOF LEFT JOIN clocks c ON j.cluster_id = c.cluster_id AND j.teller = c.clock_node AND j.echoed_us >= c.own_us
ASOF LEFT JOIN clocks b ON j.cluster_id = b.cluster_id AND j.starter = b.clock_node AND j.began_us >= b.own_us;

-- When the leader of a term took it up, in controller time.
CREATE TABLE activations AS
WITH starts AS (
  SELECT $KEY, leader_epoch, any_value(node_id) AS starter, min(ts_wall_us) AS own_began_us
  FROM transitions WHERE event_type = 'EPOCH_START' GROUP BY ALL
)
SELECT terms.cluster_id, terms.topic_id, terms.partition, terms.leader_epoch, term_start, term_end, own_began_us - coalesce(offset_us, 0) AS began_us, err_us AS clock_err_us
FROM terms JOIN starts s USING ($KEY, leader_epoch)
ASOF LEFT JOIN clocks c ON s.cluster_id = c.cluster_id AND s.starter = c.clock_node AND s.own_began_us >= c.own_us
WHERE term_leader IS NOT NULL;

CREATE TABLE groups AS SELECT DISTINCT $KEY, topic FROM control_rows;

-- What coordinators reported of groups and members, in controller time, in the order of their epochs and numbers. What
-- one reported at or after the end of its term is left out.
CREATE TABLE group_rows AS
WITH rows AS (
  SELECT cluster_id, topic_id, partition, event_type, node_id, leader_epoch, incarnation, seq, ts_wall_us, group_id,
    old_state, new_state, n_members, member_id, assigned, cause IS NOT DISTINCT FROM 'repeated' AS is_repeated
  FROM transitions WHERE event_type IN ('GROUP_CHANGE', 'MEMBER_CHANGE') AND partition IS NOT NULL
), timed AS (
  SELECT r.*, ts_wall_us - coalesce(c.offset_us, 0) AS at_us FROM rows r ASOF LEFT JOIN clocks c
    ON c.cluster_id = r.cluster_id AND c.clock_node = r.node_id AND r.ts_wall_us >= c.own_us
)
SELECT timed.*, max(at_us) OVER so_far AS t, row_number() OVER so_far AS place
FROM timed LEFT JOIN terms USING ($KEY, leader_epoch) WHERE at_us < coalesce(term_end, $FOREVER)
WINDOW so_far AS (PARTITION BY $KEY, group_id ORDER BY leader_epoch, incarnation, seq);

CREATE TABLE heard AS SELECT $KEY, max(t1) AS heard_us FROM states GROUP BY $KEY;

-- Which member had which partition; times that touch are one.
CREATE TABLE owned AS
WITH held AS (
  SELECT cluster_id, group_id, member_id, unnest(assigned) AS named, t AS t0,
    coalesce(lead(t) OVER (PARTITION BY $KEY, group_id, member_id ORDER BY place), heard_us) AS t1
  FROM group_rows LEFT JOIN heard USING ($KEY) WHERE event_type = 'MEMBER_CHANGE'
), placed AS (
  SELECT cluster_id, split_part(named, ':', 1) AS topic_id, split_part(named, ':', 2)::INTEGER AS partition, group_id,
    member_id, t0, t1 FROM held WHERE t1 > t0
), apart AS (
  SELECT *, CASE WHEN t0 <= max(t1) OVER (PARTITION BY $KEY, group_id, member_id ORDER BY t0, t1
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) THEN 0 ELSE 1 END AS begins FROM placed
), numbered AS (
  SELECT *, sum(begins) OVER (PARTITION BY $KEY, group_id, member_id ORDER BY t0, t1) AS run FROM apart
)
SELECT $KEY, group_id, member_id, min(t0) AS t0, max(t1) AS t1 FROM numbered GROUP BY $KEY, group_id, member_id, run;
