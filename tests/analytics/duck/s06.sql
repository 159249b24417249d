-- Per look: LEO of the leader less the best and the worst LEO of the other members; HW less that of living outsiders.
WITH members AS (
  SELECT *, in_isr AND NOT is_leader AS is_member, expected_state IN ('catching_up', 'reassigning') AND NOT in_isr
    AS is_outsider FROM believed
), cuts AS (
  SELECT $KEY, topic, any_value(t0) FILTER (is_leader) AS t0, any_value(t1) FILTER (is_leader) AS t1,
    count(*) FILTER (is_member) AS n_members, count(*) FILTER (is_member AND leo IS NULL) AS n_unknown,
    max(leader_leo) AS leader_leo, max(leo) FILTER (is_member) AS best, min(leo) FILTER (is_member) AS worst,
    max(greatest(0, hw - leo)) FILTER (is_outsider AND leo IS NOT NULL) AS unclean,
    count(*) FILTER (is_member AND leo < hw) AS n_below
  FROM members GROUP BY $KEY, topic, node_id, incarnation, leader_epoch, sample_id
), pieces AS (
  SELECT $BY, CASE WHEN n_unknown = 0 THEN leader_leo - best END AS clean_best,
    CASE WHEN n_unknown = 0 THEN leader_leo - worst END AS clean_worst, unclean, n_below, n_members, $DUR AS dur
  FROM cuts JOIN windows ON $OVERLAP
)
SELECT $BY, sum(dur) AS known_us,
  sum(clean_worst::HUGEINT * dur)::DOUBLE / sum(dur) FILTER (clean_worst IS NOT NULL) AS clean_worst_mean_records,
  max(clean_worst) AS clean_worst_max_records, max(clean_best) AS clean_best_max_records,
  max(unclean) AS unclean_committed_max_records,
  coalesce(sum(dur) FILTER (n_members = 0), 0) AS no_clean_successor_us, sum(n_below) AS n_below_hw
FROM pieces GROUP BY $BY
