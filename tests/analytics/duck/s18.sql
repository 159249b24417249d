-- Maximal intervals with LEO > HW and the HW constant for at least 1 s, from the later of the last advance and the
-- first look at LEO > HW, to the next advance, the end of the term, or as far as it is known.
WITH waiting AS (
  SELECT $KEY, topic, leader_epoch, incarnation, hw, min(t0) AS seen_us, max(t1) AS held_us,
    arg_max(sample_id, t0) AS sample_id
  FROM own_looks WHERE leader_leo > hw GROUP BY ALL
), came AS (
  SELECT $KEY, leader_epoch, incarnation, new_hw AS hw, max(last_us) AS came_us FROM moved GROUP BY ALL
), went AS (
  SELECT $KEY, leader_epoch, incarnation, old_hw AS hw, min(first_us) AS went_us FROM moved GROUP BY ALL
), joined AS (
  SELECT w.*, term_end, went_us, greatest(seen_us, came_us) AS t0,
    least(coalesce(went_us, least(held_us, lead(seen_us) OVER (PARTITION BY $KEY, leader_epoch, incarnation
      ORDER BY hw))), term_end) AS t1
  FROM waiting w LEFT JOIN came USING ($KEY, leader_epoch, incarnation, hw)
  LEFT JOIN went USING ($KEY, leader_epoch, incarnation, hw) LEFT JOIN terms USING ($KEY, leader_epoch)
), blocking AS (
  -- Who is at the HW at the last look was there all the time.
  SELECT $KEY, leader_epoch, incarnation, hw, sample_id, list_distinct(list(replica_id)) AS blockers
  FROM believed WHERE in_maximal_isr AND durable_leo = hw AND leader_leo > hw GROUP BY ALL
), episodes AS (
  SELECT j.*, b.blockers, coalesce(went_us >= term_end OR (went_us IS NULL AND held_us >= term_end), false) AS by_epoch,
    -- Of a term that was never reported the end is not known either.
    went_us IS NULL AND coalesce(held_us < term_end, true) AS is_lost,
    EXISTS (SELECT 1 FROM states u WHERE u.cluster_id = j.cluster_id AND u.topic_id = j.topic_id
      AND u.partition = j.partition AND u.known AND u.leader IS NOT NULL AND u.isr_size < u.min_isr AND u.t0 < j.t1 AND u.t1 > j.t0
      AND u.t1 > u.t0) AS is_under_min
  FROM joined j LEFT JOIN blocking b USING ($KEY, leader_epoch, incarnation, hw, sample_id) WHERE t1 - t0 >= 1000000
), pieces AS (
  SELECT $BY, is_under_min, by_epoch, is_lost, blockers, t1 >= window_end AS goes_on, $DUR AS dur
  FROM episodes JOIN windows ON $OVERLAP
), figures AS (
  SELECT $BY, count(*) AS episodes, sum(dur) AS total_us, max(dur) AS longest_us,
    count(*) FILTER (is_under_min) AS under_min_episodes, count(*) FILTER (by_epoch AND NOT goes_on) AS ended_by_epoch,
    count(*) FILTER (goes_on OR is_lost) AS censored
  FROM pieces GROUP BY $BY
), named AS (SELECT $BY, unnest(blockers) AS blocker FROM pieces WHERE NOT is_under_min),
counted AS (SELECT $BY, blocker, count(*) AS n FROM named GROUP BY ALL),
blamed AS (SELECT $BY, map_from_entries(list((blocker, n) ORDER BY blocker)) AS blockers FROM counted GROUP BY $BY),
looked AS (SELECT $BY, sum($DUR) AS known_us FROM own_looks JOIN windows ON $OVERLAP GROUP BY $BY)
SELECT $BY, known_us, coalesce(episodes, 0) AS episodes, coalesce(total_us, 0) AS total_us, longest_us,
  coalesce(under_min_episodes, 0) AS under_min_episodes, coalesce(ended_by_epoch, 0) AS ended_by_epoch,
  coalesce(censored, 0) AS censored, blockers
FROM looked LEFT JOIN figures USING ($BY) LEFT JOIN blamed USING ($BY)
