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
), shared AS (
  SELECT a.*, e, min(start_offset) AS start_offset
  FROM (SELECT DISTINCT $KEY, leader_epoch FROM asked) a JOIN epochs USING ($KEY)
  LEFT JOIN starts s ON s.cluster_id = a.cluster_id AND s.topic_id = a.topic_id AND s.partition = a.partition
    AND s.leader_epoch > least(a.leader_epoch, e) AND s.leader_epoch <= greatest(a.leader_epoch, e)
  GROUP BY ALL
), same AS (
  SELECT a.*, e FROM asked a JOIN shared USING ($KEY, leader_epoch) WHERE start_offset IS NULL OR start_offset > committed
), above AS (
  SELECT $KEY, e, hw, min(min(look_us)) OVER higher AS look_us, min(min(rise)) OVER higher AS rise FROM (
    SELECT $KEY, leader_epoch AS e, hw, t0 AS look_us, NULL AS rise FROM own_looks
    UNION ALL SELECT $KEY, leader_epoch, new_hw, NULL, {'last_us': last_us, 'first_us': first_us} FROM moved)
  WHERE hw IS NOT NULL GROUP BY $KEY, e, hw WINDOW higher AS (PARTITION BY $KEY, e ORDER BY hw DESC)
), below AS (
  SELECT $KEY, hw, min(min(at_us)) OVER (PARTITION BY $KEY ORDER BY hw) AS low_us FROM (
    SELECT $KEY, t0 AS at_us, hw FROM own_looks UNION ALL SELECT $KEY, first_us, old_hw FROM moved)
  WHERE hw IS NOT NULL GROUP BY $KEY, hw
), risen AS (
  SELECT s.* EXCLUDE (e), min(look_us) AS look_us, min(rise) AS rise FROM same s
  ASOF JOIN above x ON x.cluster_id = s.cluster_id AND x.topic_id = s.topic_id AND x.partition = s.partition
    AND x.e = s.e AND x.hw > s.committed
  GROUP BY ALL
), passed AS (
  SELECT r.*, least(look_us, rise.last_us) AS since,
    coalesce(rise IS NULL OR look_us < rise.first_us, false) AS is_estimated,
    coalesce(low_us <= least(look_us, rise.last_us), false) AS is_exact
  FROM (asked LEFT JOIN risen USING ($KEY, leader_epoch, committed)) r
  ASOF LEFT JOIN below b ON b.cluster_id = r.cluster_id AND b.topic_id = r.topic_id AND b.partition = r.partition
    AND b.hw <= r.committed
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
