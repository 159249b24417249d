-- t - when the HW first passed the committed offset, 0 while it is not above it. Where no HW at or below the offset was
-- reported by then, this is only a lower bound. Estimated: what passed the offset is a look, before any advance over it.
WITH asked AS (SELECT DISTINCT $KEY, committed FROM lag_spans),
looked AS (
  SELECT $KEY, committed, min(t0) AS look_us FROM asked JOIN own_looks USING ($KEY) WHERE hw > committed GROUP BY ALL
), rose AS (
  SELECT $KEY, committed, min(last_us) AS rise_us, min(first_us) FILTER (is_first) AS rise_began_us
  FROM (SELECT $KEY, committed, last_us, first_us,
      last_us = min(last_us) OVER (PARTITION BY $KEY, committed) AS is_first
    FROM asked JOIN moved USING ($KEY) WHERE new_hw > committed)
  GROUP BY ALL
), low AS (
  SELECT $KEY, committed, min(at_us) AS low_us FROM asked JOIN (
    SELECT $KEY, t0 AS at_us, hw FROM own_looks UNION ALL SELECT $KEY, first_us, old_hw FROM moved) USING ($KEY)
  WHERE hw <= committed GROUP BY ALL
), passed AS (
  SELECT *, least(look_us, rise_us) AS since,
    coalesce(rise_us IS NULL OR look_us < rise_began_us, false) AS is_estimated,
    coalesce(low_us <= least(look_us, rise_us), false) AS is_exact
  FROM asked LEFT JOIN looked USING ($KEY, committed) LEFT JOIN rose USING ($KEY, committed)
  LEFT JOIN low USING ($KEY, committed)
), pieces AS (
  SELECT $BY, group_id, hw > committed AS is_behind, NOT (hw > committed) OR is_exact AS is_known, is_estimated,
    CASE WHEN hw > committed THEN $A - since ELSE 0 END AS age0,
    CASE WHEN hw > committed THEN $B - since ELSE 0 END AS age1, $DUR AS dur
  FROM lag_spans JOIN passed USING ($KEY, committed) JOIN windows ON $OVERLAP
)
SELECT $BY, group_id, coalesce(sum(dur) FILTER (is_known), 0) AS known_us,
  sum((age0 + age1)::HUGEINT * dur) FILTER (is_known)::DOUBLE / (2 * sum(dur) FILTER (is_known)) AS mean_us,
  max(age1) FILTER (is_known) AS max_us,
  coalesce(sum(dur) FILTER (is_known AND is_behind AND is_estimated), 0) AS estimated_us,
  max(age1) FILTER (NOT is_known) AS at_least_us
FROM pieces GROUP BY $BY, group_id
