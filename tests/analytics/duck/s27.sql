-- Decisions of coordinators by cause, without what one said at or after the end of its term.
WITH rows AS (
  SELECT r.*, ts_wall_us - coalesce(c.offset_us, 0) AS t
  FROM (SELECT $KEY, leader_epoch, node_id, ts_wall_us, transactional_id, cause, n_coalesced, txn_start_us
    FROM transitions WHERE event_type = 'TRANSACTION_CHANGE' AND partition IS NOT NULL) r
  ASOF LEFT JOIN clocks c ON c.cluster_id = r.cluster_id AND c.clock_node = r.node_id AND r.ts_wall_us >= c.own_us
), believed AS (
  SELECT rows.*, topic FROM rows LEFT JOIN terms USING ($KEY, leader_epoch) JOIN groups USING ($KEY)
  WHERE t < coalesce(term_end, $FOREVER)
)
SELECT $BY, transactional_id, coalesce(sum(n_coalesced) FILTER (cause = 'committed'), 0)::BIGINT AS committed,
  coalesce(sum(n_coalesced) FILTER (cause = 'aborted'), 0)::BIGINT AS aborted_by_producer,
  coalesce(sum(n_coalesced) FILTER (cause = 'timeout'), 0)::BIGINT AS timed_out,
  coalesce(sum(n_coalesced) FILTER (cause = 'fenced'), 0)::BIGINT AS fenced,
  coalesce(sum(n_coalesced) FILTER (cause = 'marker_refused'), 0)::BIGINT AS refused_markers,
  max(ts_wall_us - txn_start_us) FILTER (cause IN ('committed', 'aborted', 'timeout', 'fenced')) AS longest_us
FROM believed JOIN windows ON $WITHIN GROUP BY $BY, transactional_id
