-- From a change with which a group was Stable or Empty no more to the first with which it is again. Who changed last
-- before that was waited for.
WITH changes AS (
  SELECT *, new_state IN ('Assigning', 'Reconciling') AS moves, old_state IN ('Assigning', 'Reconciling') AS moved
  FROM group_rows WHERE event_type = 'GROUP_CHANGE'
), followed AS (
  SELECT *, coalesce(lag(moves) OVER (PARTITION BY $KEY, group_id ORDER BY place), false) AS was_moving FROM changes
), starts AS (
  SELECT $KEY, group_id, place, t AS t0, NOT moved AS is_start_seen,
    lead(place) OVER later AS next_place, lead(t) OVER later AS next_us
  FROM followed WHERE moves AND NOT (moved AND was_moving)
  WINDOW later AS (PARTITION BY $KEY, group_id ORDER BY place)
), ends AS (
  SELECT $KEY, group_id, s.place, min(c.place) AS end_place, min(c.t) AS end_us, arg_min(c.moved, c.place) AS is_end_seen
  FROM starts s JOIN changes c USING ($KEY, group_id)
  WHERE NOT c.moves AND c.place > s.place AND (s.next_place IS NULL OR c.place < s.next_place)
  GROUP BY $KEY, group_id, s.place
), spans AS (
  SELECT s.*, topic, end_place, coalesce(end_us, next_us, heard_us) AS t1, coalesce(is_end_seen, false) AS is_end_seen
  FROM starts s LEFT JOIN ends USING ($KEY, group_id, place) LEFT JOIN heard USING ($KEY) JOIN groups USING ($KEY)
), slow AS (
  SELECT $KEY, group_id, s.place, arg_max(m.member_id, m.place) AS slowest
  FROM spans s JOIN group_rows m USING ($KEY, group_id)
  WHERE m.event_type = 'MEMBER_CHANGE' AND NOT m.is_repeated AND m.place > s.place
    AND m.place < coalesce(s.end_place, s.next_place, 9000000000)
  GROUP BY $KEY, group_id, s.place
), pieces AS (
  SELECT $BY, group_id, slowest, t0, $DUR AS dur,
    t0 >= window_start AND t1 < window_end AND is_start_seen AND is_end_seen AS is_whole
  FROM spans LEFT JOIN slow USING ($KEY, group_id, place) JOIN windows ON $OVERLAP WHERE t1 > t0
), waited AS (
  SELECT $BY, group_id, slowest, count(*) AS n FROM pieces WHERE is_whole AND slowest IS NOT NULL GROUP BY ALL
), named AS (
  SELECT $BY, group_id, map_from_entries(list((slowest, n) ORDER BY slowest)) AS waited_for FROM waited
  GROUP BY $BY, group_id
), lengths AS (SELECT *, CASE WHEN is_whole THEN dur END AS whole FROM pieces)
SELECT $BY, group_id, count(whole) AS rebalances, count(*) FILTER (NOT is_whole) AS unfinished, sum(dur) AS total_us,
  $RANK(whole, 50) AS p50_us, $RANK(whole, 95) AS p95_us, max(whole) AS max_us,
  max(dur) FILTER (NOT is_whole) AS max_unfinished_us,
  (list(slowest ORDER BY dur DESC, t0) FILTER (is_whole))[1] AS slowest_member, any_value(waited_for) AS waited_for
FROM lengths LEFT JOIN named USING ($BY, group_id) GROUP BY $BY, group_id
