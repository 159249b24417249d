-- B = bytes between HW and LEO, subtracted within one look; its integral.
WITH pieces AS (
  SELECT $BY, leo_bytes - hw_bytes AS v, $DUR AS dur FROM own_looks JOIN windows ON $OVERLAP
  WHERE leo_bytes IS NOT NULL AND hw_bytes IS NOT NULL
)
SELECT $BY, sum(dur) AS known_us, sum(v::HUGEINT * dur)::DOUBLE / sum(dur) AS mean_bytes, max(v) AS max_bytes,
  sum(v::HUGEINT * dur)::DOUBLE / 1000000 AS byte_seconds
FROM pieces GROUP BY $BY
