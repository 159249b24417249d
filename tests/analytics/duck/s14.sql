-- Proposals by how they stood at the end of the window; latency of those that were answered, one clock.
WITH reported AS (SELECT * FROM transitions WHERE event_type = 'ALTER_PARTITION'),
own AS (
  SELECT $KEY, topic, node_id, leader_epoch, coalesce(min(ts_wall_us) FILTER (phase = 'proposed'),
      min(ts_wall_us - latency_us) FILTER (phase = 'result')) AS t,
    max(latency_us) FILTER (phase = 'result') AS latency_us, max(error_code) FILTER (phase = 'result') AS error_code,
    min(ts_wall_us) FILTER (phase = 'result') AS answered_us, min(ts_wall_us) FILTER (phase = 'timeout') AS timeout_us
  FROM reported GROUP BY $KEY, topic, node_id, incarnation, leader_epoch, request_id
), once AS (
  -- In controller time, all moments of a proposal by the offset at the first that is known.
  SELECT o.* REPLACE (t - coalesce(offset_us, 0) AS t, answered_us - coalesce(offset_us, 0) AS answered_us,
    timeout_us - coalesce(offset_us, 0) AS timeout_us)
  FROM (SELECT *, coalesce(t, answered_us, timeout_us) AS first_us FROM own) o ASOF LEFT JOIN clocks c
    ON c.cluster_id = o.cluster_id AND c.clock_node = o.node_id AND first_us >= c.own_us
), ended AS (
  SELECT $BY, latency_us, error_code, t, timeout_us, least(coalesce(term_end, $FOREVER), window_end) AS last_us,
    CASE WHEN answered_us < window_end AND error_code = 0 THEN 'committed'
         WHEN answered_us < window_end THEN 'refused' WHEN timeout_us < window_end THEN 'timeout'
         WHEN term_end < window_end THEN 'abandoned' ELSE 'open' END AS ended_as
  FROM once LEFT JOIN terms USING ($KEY, leader_epoch) JOIN windows ON $WITHIN
), codes AS (SELECT $BY, error_code, count(*) AS n FROM ended WHERE ended_as = 'refused' GROUP BY ALL),
refused AS (
  SELECT $BY, map_from_entries(list((error_code, n) ORDER BY error_code)) AS refused_by_code FROM codes GROUP BY $BY
), stood AS (
  SELECT *, CASE WHEN ended_as IN ('committed', 'refused') THEN latency_us END AS waited,
    CASE ended_as WHEN 'timeout' THEN timeout_us - t WHEN 'abandoned' THEN last_us - t WHEN 'open' THEN last_us - t END
      AS stuck
  FROM ended
)
SELECT $BY, count(*) AS proposals, count(*) FILTER (ended_as = 'committed') AS committed,
  count(*) FILTER (ended_as = 'refused') AS refused, count(*) FILTER (ended_as = 'timeout') AS timeout,
  count(*) FILTER (ended_as = 'abandoned') AS abandoned, count(*) FILTER (ended_as = 'open') AS open,
  $RANK(waited, 50) AS p50_us, $RANK(waited, 95) AS p95_us, $RANK(waited, 99) AS p99_us, max(waited) AS max_us,
  max(stuck) AS max_stuck_us, any_value(refused_by_code) AS refused_by_code
FROM stood LEFT JOIN refused USING ($BY) GROUP BY $BY
