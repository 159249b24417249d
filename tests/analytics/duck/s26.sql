-- Times in which one transaction held the LSO back: from the first word of it to its decision, the next such time of the
-- same term, or three minutes after the last word; never beyond the term. And sums of those that took less than a second.
-- What was decided at or after the end of a term is not believed.
WITH told AS (
  SELECT r.*, coalesce(c.offset_us, 0) AS shift
  FROM (SELECT $KEY, leader_epoch, first_offset, node_id, event_type, ts_wall_us, held_since_us, first_us, last_us,
      producer_id, outcome, held_ms, n_coalesced FROM transitions
    WHERE event_type IN ('TRANSACTION_OPEN', 'TRANSACTION_DECIDED') AND partition IS NOT NULL) r
  ASOF LEFT JOIN clocks c ON c.cluster_id = r.cluster_id AND c.clock_node = r.node_id AND r.ts_wall_us >= c.own_us
), rows AS (
  SELECT told.* FROM told LEFT JOIN terms USING ($KEY, leader_epoch)
  WHERE event_type = 'TRANSACTION_OPEN' OR coalesce(last_us - shift < term_end, true)
), spoken AS (
  SELECT $KEY, leader_epoch, first_offset,
    min(coalesce(held_since_us, first_us - held_ms * 1000) - shift) AS t0, max(producer_id) AS producer_id,
    min(first_us - shift) FILTER (event_type = 'TRANSACTION_DECIDED') AS decided_us, min(outcome) AS outcome,
    max(ts_wall_us - shift) AS heard_us
  FROM rows WHERE first_offset IS NOT NULL GROUP BY ALL
), ended AS (
  SELECT s.*, topic, term_end, least(coalesce(decided_us, least(lead(t0) OVER (PARTITION BY $KEY, leader_epoch
    ORDER BY t0, first_offset), heard_us + 180000000)), term_end) AS t1
  FROM spoken s LEFT JOIN terms USING ($KEY, leader_epoch) JOIN groups USING ($KEY)
), figures AS (
  SELECT $BY, producer_id, $DUR AS dur,
    CASE WHEN t1 < window_end THEN outcome END AS became
  FROM ended JOIN windows ON $OVERLAP WHERE t1 > t0
), long AS (
  SELECT $BY, producer_id, count(*) FILTER (became = 'commit') AS committed, count(*) FILTER (became = 'abort') AS aborted,
    count(*) FILTER (became IS NULL) AS undecided, sum(dur) AS held_us, max(dur) AS longest_us
  FROM figures GROUP BY $BY, producer_id
), short AS (
  SELECT $BY, NULL::BIGINT AS producer_id, coalesce(sum(n_coalesced) FILTER (outcome = 'commit'), 0) AS committed,
    coalesce(sum(n_coalesced) FILTER (outcome = 'abort'), 0) AS aborted, 0 AS undecided, sum(held_ms) * 1000 AS held_us,
    NULL::BIGINT AS longest_us
  FROM (SELECT *, last_us - shift AS t FROM rows WHERE first_offset IS NULL) m JOIN groups USING ($KEY)
  JOIN windows ON $WITHIN GROUP BY $BY
)
SELECT $BY, producer_id, sum(committed)::BIGINT AS committed, sum(aborted)::BIGINT AS aborted,
  sum(undecided)::BIGINT AS undecided, sum(held_us)::BIGINT AS held_us, max(longest_us) AS longest_us
FROM (SELECT * FROM long UNION ALL BY NAME SELECT * FROM short) GROUP BY $BY, producer_id
