-- Per change of leader the nearest shrink within 10 s, or of the same partition epoch; ties go to the earlier epoch.
WITH near AS (
  SELECT c.*, s.partition_epoch AS shrink_epoch FROM leader_changes c
  LEFT JOIN (SELECT * FROM moves WHERE len(gone) > 0) s ON s.cluster_id = c.cluster_id AND s.topic_id = c.topic_id
    AND s.partition = c.partition AND (abs(s.t - c.t) <= 10000000 OR s.partition_epoch = c.partition_epoch)
  QUALIFY row_number() OVER (PARTITION BY c.cluster_id, c.topic_id, c.partition, c.partition_epoch
    ORDER BY s.partition_epoch = c.partition_epoch DESC NULLS LAST, abs(s.t - c.t), s.partition_epoch) = 1
)
SELECT $BY, count(*) AS leader_changes, count(*) FILTER (shrink_epoch = partition_epoch) AS simultaneous,
  count(*) FILTER (shrink_epoch < partition_epoch) AS shrink_precedes,
  count(*) FILTER (shrink_epoch > partition_epoch) AS shrink_follows,
  count(*) FILTER (shrink_epoch IS NULL) AS unrelated
FROM near JOIN windows ON $WITHIN GROUP BY $BY
