-- What the audit counts of refusals, at the time of the event.
WITH rows AS (
  SELECT r.*, ts_wall_us - coalesce(c.offset_us, 0) AS t
  FROM (SELECT cluster_id, node_id, ts_wall_us, principal, rule, method, n_coalesced FROM transitions
    WHERE event_type = 'AUDIT' AND outcome = 'REFUSED') r
  ASOF LEFT JOIN clocks c ON c.cluster_id = r.cluster_id AND c.clock_node = r.node_id AND r.ts_wall_us >= c.own_us
), counted AS (
  SELECT $BY, principal, rule, method, sum(n_coalesced)::BIGINT AS n FROM rows JOIN windows ON $WITHIN GROUP BY ALL
)
SELECT $BY, principal, rule, sum(n)::BIGINT AS refusals,
  coalesce(map_from_entries(list((method, n) ORDER BY method) FILTER (method IS NOT NULL)), MAP {}) AS methods
FROM counted GROUP BY $BY, principal, rule
