-- Refusals by error; and how often and how long none had a partition that a member had had, while the group had members:
-- owners are counted up and down.
WITH steps AS (
  SELECT $KEY, group_id, t0 AS at_us, 1 AS step FROM owned UNION ALL SELECT $KEY, group_id, t1, -1 FROM owned
), counted AS (
  SELECT $KEY, group_id, at_us, sum(sum(step)) OVER times AS n, lead(at_us) OVER times AS next_us
  FROM steps GROUP BY $KEY, group_id, at_us WINDOW times AS (PARTITION BY $KEY, group_id ORDER BY at_us)
), alive AS (
  SELECT $KEY, group_id, t, place, n_members > 0 AS lives,
    lag(n_members > 0) OVER (PARTITION BY $KEY, group_id ORDER BY place) AS lived
  FROM group_rows WHERE event_type = 'GROUP_CHANGE'
), lives AS (
  SELECT cluster_id, group_id, lives, t AS l0,
    coalesce(lead(t) OVER (PARTITION BY $KEY, group_id ORDER BY place), heard_us) AS l1
  FROM alive LEFT JOIN heard USING ($KEY) WHERE lives IS DISTINCT FROM lived
), spans AS (
  SELECT $KEY, c.group_id, true AS is_free, greatest(at_us, l0) AS t0, least(coalesce(next_us, $FOREVER), l1) AS t1
  FROM counted c JOIN lives l USING (cluster_id, group_id)
  WHERE n = 0 AND lives AND at_us < l1 AND coalesce(next_us, $FOREVER) > l0
  UNION ALL SELECT $KEY, group_id, false, at_us, next_us FROM counted WHERE n > 0
), pieces AS (
  SELECT $BY, group_id, CASE WHEN is_free THEN $DUR END AS free FROM spans JOIN groups USING ($KEY)
  JOIN windows ON $OVERLAP
), spent AS (
  SELECT $BY, group_id, count(free) AS unowned, coalesce(sum(free), 0) AS unowned_us, max(free) AS unowned_longest_us
  FROM pieces GROUP BY $BY, group_id
), reported AS (SELECT $BY, group_id, n_commits, n_error FROM commits JOIN windows ON $WITHIN),
errors AS (
  SELECT $BY, group_id, unnest(map_keys(n_error)) AS error, unnest(map_values(n_error)) AS n FROM reported
), summed AS (SELECT $BY, group_id, error, sum(n) AS n FROM errors WHERE n > 0 GROUP BY $BY, group_id, error),
named AS (
  SELECT $BY, group_id, sum(n) AS refused, map_from_entries(list((error, n) ORDER BY error)) AS refused_by_error
  FROM summed GROUP BY $BY, group_id
), counts AS (SELECT $BY, group_id, sum(n_commits) AS commits FROM reported GROUP BY $BY, group_id)
SELECT $BY, group_id, commits, CASE WHEN commits IS NOT NULL THEN coalesce(refused, 0) END AS refused, refused_by_error,
  unowned, unowned_us, unowned_longest_us
FROM counts LEFT JOIN named USING ($BY, group_id) FULL JOIN spent USING ($BY, group_id)
