-- More than a minute in which a member has a partition, the group is behind there by a known lag, its offset does not
-- move, and the HW rises.
WITH behind AS (
  SELECT *, CASE WHEN lag(t1) OVER earlier = t0 AND lag(committed) OVER earlier = committed THEN 0 ELSE 1 END AS begins
  FROM lag_spans WHERE hw > committed WINDOW earlier AS (PARTITION BY $KEY, group_id ORDER BY t0)
), runs AS (
  SELECT *, sum(begins) OVER (PARTITION BY $KEY, group_id ORDER BY t0) AS run FROM behind
), had AS (
  SELECT r.* EXCLUDE (t0, t1), o.member_id, o.t0 AS since, greatest(r.t0, o.t0) AS t0, least(r.t1, o.t1) AS t1
  FROM runs r JOIN owned o ON o.cluster_id = r.cluster_id AND o.topic_id = r.topic_id AND o.partition = r.partition
    AND o.group_id = r.group_id AND o.t0 < r.t1 AND o.t1 > r.t0
), episodes AS (
  SELECT $KEY, topic, group_id, member_id, min(t0) AS t0, max(t1) AS t1, arg_max(hw, t0) - arg_min(hw, t0) AS grew,
    arg_max(hw, t0) - min(committed) AS lag
  FROM had GROUP BY $KEY, topic, group_id, member_id, run, since
), figures AS (
  SELECT $BY, group_id, member_id, count(*) AS episodes, sum($DUR) AS total_us, max($DUR) AS longest_us,
    max(grew) AS grew_records, max(lag) AS lag_records
  FROM episodes JOIN windows ON $OVERLAP WHERE t1 - t0 > 60000000 AND grew > 0 GROUP BY $BY, group_id, member_id
), looked AS (SELECT $BY, group_id, sum($DUR) AS known_us FROM lag_spans JOIN windows ON $OVERLAP GROUP BY $BY, group_id)
SELECT $BY, group_id, member_id, known_us, coalesce(episodes, 0) AS episodes, coalesce(total_us, 0) AS total_us,
  longest_us, grew_records, lag_records
FROM looked LEFT JOIN figures USING ($BY, group_id)
