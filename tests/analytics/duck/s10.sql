-- Time in each state; without a leader is a state of its own.
WITH pieces AS (SELECT $BY, leader, isr_size, rf, min_isr, $DUR AS dur FROM known_states JOIN windows ON $OVERLAP)
SELECT $BY, sum(dur) AS known_us,
  coalesce(sum(dur) FILTER (leader IS NOT NULL AND isr_size >= rf), 0) AS full_us,
  coalesce(sum(dur) FILTER (leader IS NULL OR isr_size < rf), 0) AS under_replicated_us,
  coalesce(sum(dur) FILTER (leader IS NOT NULL AND isr_size < rf), 0) AS under_replicated_led_us,
  coalesce(sum(dur) FILTER (leader IS NOT NULL AND isr_size > min_isr), 0) AS above_min_us,
  coalesce(sum(dur) FILTER (leader IS NOT NULL AND isr_size = min_isr), 0) AS at_min_us,
  coalesce(sum(dur) FILTER (leader IS NOT NULL AND isr_size < min_isr), 0) AS under_min_us,
  coalesce(sum(dur) FILTER (leader IS NULL), 0) AS leaderless_us
FROM pieces GROUP BY $BY
