-- A leader's "lag" is lag_stuck if the last fetch is longer ago than T, else lag_slow; other causes are as declared.
SELECT $BY, replica_id, leader AS leader_id,
  CASE WHEN cause IS DISTINCT FROM 'lag' THEN coalesce(cause, 'unknown')
       WHEN last_fetch_us IS NULL OR lag_time_max_us IS NULL THEN 'lag_unknown'
       WHEN t - last_fetch_us > lag_time_max_us THEN 'lag_stuck' ELSE 'lag_slow' END AS removal_cause,
  count(*) AS removals,
  count(*) FILTER (cause = 'lag' AND t - epoch_start_us < lag_time_max_us) AS young_epoch
FROM removals JOIN windows ON $WITHIN GROUP BY ALL
