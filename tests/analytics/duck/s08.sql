-- Committed transitions with somebody gone, with somebody new, and how many.
SELECT $BY, count(*) FILTER (len(gone) > 0) AS shrinks, count(*) FILTER (len(came) > 0) AS expands,
  sum(len(gone)) AS removals, sum(len(came)) AS adds
FROM moves JOIN windows ON $WITHIN GROUP BY $BY
