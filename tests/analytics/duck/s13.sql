-- Commit of the removal - last caught up, by who started the change.
WITH delays AS (
  SELECT $BY, coalesce(initiator, 'unknown') AS removed_by, t - last_caught_up_us AS delay, lag_time_max_us, clock_err_us
  FROM removals JOIN windows ON $WITHIN
)
SELECT $BY, removed_by, count(*) AS removals, count(*) FILTER (delay IS NULL) AS unknown, min(delay) AS min_us,
  $RANK(delay, 50) AS p50_us, $RANK(delay, 95) AS p95_us, max(delay) AS max_us,
  count(*) FILTER (delay < lag_time_max_us) AS below_limit,
  count(*) FILTER (2 * delay > 3 * lag_time_max_us) AS above_expected, count(*) FILTER (delay < 0) AS n_negative,
  max(clock_err_us) AS clock_err_us
FROM delays GROUP BY $BY, removed_by
