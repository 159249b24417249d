-- Shrinks at most 5 s apart form a chain, planned ones apart from others; who was removed, who led, which rack. Labels
-- from three shrinks on.
WITH racks AS (
  SELECT cluster_id, subject_node_id AS replica_id, arg_max(rack, ts_wall_us) AS rack
  FROM transitions WHERE event_type = 'NODE_SESSION' AND rack IS NOT NULL GROUP BY ALL
), reported AS (
  SELECT *, CASE WHEN cause IN ('controlled_shutdown', 'reassign', 'preferred', 'created') THEN 'planned'
    ELSE 'unplanned' END AS kind
  FROM removals LEFT JOIN racks USING (cluster_id, replica_id)
),
apart AS (
  SELECT *, CASE WHEN t - lag(t) OVER timewise <= 5000000 THEN 0 ELSE 1 END AS is_apart FROM reported
  WINDOW timewise AS (PARTITION BY cluster_id, kind ORDER BY t, topic_id, partition, partition_epoch, replica_id)
), chained AS (
  SELECT *, sum(is_apart) OVER (PARTITION BY cluster_id, kind
    ORDER BY t, topic_id, partition, partition_epoch, replica_id) AS chain FROM apart
), whole AS (
  SELECT cluster_id, kind, chain, min(t) AS t, max(t) AS ended_us, count(DISTINCT (topic_id, partition, partition_epoch))
    AS shrinks, count(DISTINCT (topic_id, partition)) AS partitions, count(*) AS removals,
    count(DISTINCT replica_id) AS nodes
  FROM chained GROUP BY ALL
), nodes AS (
  SELECT cluster_id, kind, chain, replica_id AS top_node, count(*) AS n_node FROM chained GROUP BY cluster_id, kind, chain, replica_id
  QUALIFY row_number() OVER (PARTITION BY cluster_id, kind, chain ORDER BY n_node DESC, top_node) = 1
), leaders AS (
  SELECT cluster_id, kind, chain, leader AS top_leader, count(*) AS n_leader
  FROM chained WHERE leader IS NOT NULL GROUP BY cluster_id, kind, chain, leader
  QUALIFY row_number() OVER (PARTITION BY cluster_id, kind, chain ORDER BY n_leader DESC, top_leader) = 1
), by_rack AS (
  SELECT cluster_id, kind, chain, rack AS top_rack, count(*) AS n_rack FROM chained WHERE rack IS NOT NULL GROUP BY cluster_id, kind, chain, rack
  QUALIFY row_number() OVER (PARTITION BY cluster_id, kind, chain ORDER BY n_rack DESC, top_rack) = 1
), assigned AS (
  SELECT $KEY, unnest(arg_max(replicas, place)) AS top_node FROM states GROUP BY $KEY
), hosted AS (
  SELECT cluster_id, top_node, count(*) / sum(count(*)) OVER (PARTITION BY cluster_id) AS hosted_share
  FROM assigned GROUP BY cluster_id, top_node
), shares AS (
  SELECT *, n_node / removals AS node_share, n_leader / removals AS leader_share, n_rack / removals AS rack_share
  FROM whole JOIN nodes USING (cluster_id, kind, chain) LEFT JOIN leaders USING (cluster_id, kind, chain)
  LEFT JOIN by_rack USING (cluster_id, kind, chain) LEFT JOIN hosted USING (cluster_id, top_node)
)
SELECT cluster_id, window_start, window_end, t AS began_us, kind, ended_us, shrinks, partitions, removals, nodes,
  CASE WHEN shrinks < 3 THEN NULL WHEN node_share >= 0.8 THEN 'single_node'
       WHEN leader_share >= 0.8 AND nodes >= 2 THEN 'leader_side' WHEN rack_share >= 0.8 AND nodes >= 2 THEN 'rack'
       ELSE 'mixed' END AS label,
  top_node, node_share, node_share / hosted_share AS node_lift, top_leader, leader_share, top_rack, rack_share
FROM shares JOIN windows ON $WITHIN
