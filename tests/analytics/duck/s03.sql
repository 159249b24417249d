-- T(t) = t - append time of the record at HW while LEO > HW, else 0. Without append time: t - the first look of the
-- epoch that saw LEO > HW(t), which is at most one interval late.
WITH reached AS (
  SELECT $KEY, leader_epoch, incarnation, leader_leo AS reached_leo, min(t0) AS reached_us FROM own_looks GROUP BY ALL
), waiting AS (
  SELECT o.*, coalesce(hw_next_append_us, reached_us) AS since, hw_next_append_us IS NULL AS is_estimated
  FROM own_looks o
  ASOF LEFT JOIN reached r ON o.cluster_id = r.cluster_id AND o.topic_id = r.topic_id AND o.partition = r.partition
    AND o.leader_epoch = r.leader_epoch AND o.incarnation = r.incarnation AND o.hw < r.reached_leo
  WHERE leader_leo > hw
), every AS (
  SELECT * FROM waiting UNION ALL BY NAME
  SELECT *, NULL::BIGINT AS since, false AS is_estimated FROM own_looks WHERE leader_leo <= hw
), pieces AS (SELECT $BY, since, is_estimated, $A AS e0, $B AS e1, $DUR AS dur FROM every JOIN windows ON $OVERLAP)
SELECT $BY, sum(dur) AS known_us,
  coalesce(sum((e0 + e1 - 2 * since)::HUGEINT * dur), 0)::DOUBLE / (2 * sum(dur)) AS mean_us,
  coalesce(max(e1 - since), 0) AS max_us, coalesce(sum(dur) FILTER (since IS NOT NULL), 0) AS waiting_us,
  coalesce(sum(dur) FILTER (is_estimated), 0) AS estimated_us, count(*) FILTER (e0 < since) AS n_negative
FROM pieces GROUP BY $BY
