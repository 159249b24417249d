-- t - when the HW first passed the committed offset, 0 while it is not above it. Where no HW at or below the offset was
-- reported by then, this is only a lower bound. Estimated: what passed the offset is a look, before any advance over it.
-- An epoch that starts at or below the offset puts another record there: only sights since then, and of no later such
-- epoch, are of the record that stands there.
WITH starts AS (
  SELECT $KEY, leader_epoch, min(start_offset) AS start_offset FROM transitions WHERE event_type = 'EPOCH_START' GROUP BY ALL
), asked AS (
  SELECT DISTINCT $KEY, leader_epoch, committed FROM lag_spans
), epochs AS (
  SELECT DISTINCT $KEY, leader_epoch AS e FROM own_looks UNION SELECT DISTINCT $KEY, leader_epoch FROM moved
), same AS (
  SELECT a.*, e FROM asked a JOIN epochs USING ($KEY) WHERE NOT EXISTS (
    SELECT 1 FROM starts s WHERE s.cluster_id = a.cluster_id AND s.topic_id = a.topic_id AND s.partition = a.partition
      AND s.leader_epoch > least(a.leader_epoch, e) AND s.leader_epoch <= greatest(a.leader_epoch, e)
      AND s.start_offset <= a.committed)
), looked AS (
  SELECT $KEY, s.leader_epoch, committed, min(t0) AS look_us FROM same s
  JOIN (SELECT $KEY, leader_epoch AS e, t0, hw FROM own_looks) USING ($KEY, e) WHERE hw > committed GROUP BY ALL
), rose AS (
  SELECT $KEY, leader_epoch, committed, min(last_us) AS rise_us, min(first_us) FILTER (is_first) AS rise_began_us
  FROM (SELECT $KEY, s.leader_epoch, committed, last_us, first_us,
      last_us = min(last_us) OVER (PARTITION BY $KEY, s.leader_epoch, committed) AS is_first
    FROM same s JOIN (SELECT $KEY, leader_epoch AS e, last_us, first_us, new_hw FROM moved) USING ($KEY, e)
    WHERE new_hw > committed)
  GROUP BY ALL
), low AS (
  SELECT $KEY, committed, min(at_us) AS low_us FROM (SELECT DISTINCT $KEY, committed FROM asked) JOIN (
    SELECT $KEY, t0 AS at_us, hw FROM own_looks UNION ALL SELECT $KEY, first_us, old_hw FROM moved) USING ($KEY)
  WHERE hw <= committed GROUP BY ALL
), passed AS (
  SELECT *, least(look_us, rise_us) AS since,
    coalesce(rise_us IS NULL OR look_us < rise_began_us, false) AS is_estimated,
    coalesce(low_us <= least(look_us, rise_us), false) AS is_exact
  FROM asked LEFT JOIN looked USING ($KEY, leader_epoch, committed)
  LEFT JOIN rose USING ($KEY, leader_epoch, committed)
  LEFT JOIN low USING ($KEY, committed)
), pieces AS (
  SELECT $BY, group_id, hw > committed AS is_behind, NOT (hw > committed) OR is_exact AS is_known, is_estimated,
    CASE WHEN hw > committed THEN $A - since ELSE 0 END AS age0,
    CASE WHEN hw > committed THEN $B - since ELSE 0 END AS age1, $DUR AS dur
  FROM lag_spans JOIN passed USING ($KEY, leader_epoch, committed) JOIN windows ON $OVERLAP
)
SELECT $BY, group_id, coalesce(sum(dur) FILTER (is_known), 0) AS known_us,
  sum((age0 + age1)::HUGEINT * dur) FILTER (is_known)::DOUBLE / (2 * sum(dur) FILTER (is_known)) AS mean_us,
  max(age1) FILTER (is_known) AS max_us,
  coalesce(sum(dur) FILTER (is_known AND is_behind AND is_estimated), 0) AS estimated_us,
  max(age1) FILTER (NOT is_known) AS at_least_us
FROM pieces GROUP BY $BY, group_id
