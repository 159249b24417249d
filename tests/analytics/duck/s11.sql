-- No acks=all write: under the minimum or leaderless; no read: leaderless. From commit to EPOCH_START apart.
WITH pieces AS (SELECT $BY, leader, isr_size, min_isr, $DUR AS dur FROM known_states JOIN windows ON $OVERLAP),
times AS (
  SELECT $BY, sum(dur) AS known_us,
    coalesce(sum(dur) FILTER (leader IS NULL OR isr_size < min_isr), 0) AS write_unavailable_us,
    coalesce(sum(dur) FILTER (leader IS NULL), 0) AS read_unavailable_us
  FROM pieces GROUP BY $BY
), gaps AS (
  SELECT $KEY, topic, term_start AS t0, least(began_us, term_end) AS t1 FROM activations JOIN groups USING ($KEY)
  WHERE began_us > term_start
), waited AS (SELECT $BY, sum($DUR) AS activation_gap_us FROM gaps JOIN windows ON $OVERLAP GROUP BY $BY)
SELECT * EXCLUDE (activation_gap_us), coalesce(activation_gap_us, 0) AS activation_gap_us
FROM times LEFT JOIN waited USING ($BY)
