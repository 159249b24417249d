-- Per change of leader the nearest shrink within 10 s, or of the same partition epoch; ties go to the earlier epoch. Then
-- per shrink the nearest change of leader in the same way.
WITH shrinks AS (SELECT * FROM moves WHERE len(gone) > 0),
near AS (
  SELECT c.*, s.partition_epoch AS shrink_epoch FROM leader_changes c
  LEFT JOIN shrinks s ON s.cluster_id = c.cluster_id AND s.topic_id = c.topic_id
    AND s.partition = c.partition AND (abs(s.t - c.t) <= 10000000 OR s.partition_epoch = c.partition_epoch)
  QUALIFY row_number() OVER (PARTITION BY c.cluster_id, c.topic_id, c.partition, c.partition_epoch
    ORDER BY s.partition_epoch = c.partition_epoch DESC NULLS LAST, abs(s.t - c.t), s.partition_epoch) = 1
), changes AS (
  SELECT $BY, count(*) AS leader_changes, count(*) FILTER (shrink_epoch = partition_epoch) AS simultaneous,
    count(*) FILTER (shrink_epoch < partition_epoch) AS shrink_precedes,
    count(*) FILTER (shrink_epoch > partition_epoch) AS shrink_follows,
    count(*) FILTER (shrink_epoch IS NULL) AS unrelated
  FROM near JOIN windows ON $WITHIN GROUP BY $BY
), of_shrinks AS (
  SELECT s.*, (SELECT c.partition_epoch FROM leader_changes c
    WHERE c.cluster_id = s.cluster_id AND c.topic_id = s.topic_id AND c.partition = s.partition
      AND (c.partition_epoch = s.partition_epoch OR abs(c.t - s.t) <= 10000000)
    ORDER BY c.partition_epoch <> s.partition_epoch, abs(c.t - s.t), c.partition_epoch LIMIT 1) AS change_epoch
  FROM shrinks s
), counted AS (
  SELECT $BY, count(*) AS shrinks, count(*) FILTER (change_epoch = partition_epoch) AS shrinks_simultaneous,
    count(*) FILTER (change_epoch > partition_epoch) AS shrinks_before,
    count(*) FILTER (change_epoch < partition_epoch) AS shrinks_after,
    count(*) FILTER (change_epoch IS NULL) AS shrinks_unrelated
  FROM of_shrinks JOIN windows ON $WITHIN GROUP BY $BY
)
SELECT * FROM changes FULL JOIN counted USING ($BY)
