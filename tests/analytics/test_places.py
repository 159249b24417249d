"""Partitions identified by a number: two with the same number are rejected, and names are restored at the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from strandline_analytics.scope import Grouping, Scope
from strandline_analytics.silver.kept import numbered
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result

pytestmark = pytest.mark.timeout(300)  # Each may be the first to wait for the session.

_BEGUN = """
{"t": 0, "event_type": "CONFIG_CHANGE", "partition_epoch": 0, "min_isr": 1, "replicas": [1, 2]}
{"t": 0, "event_type": "LEADER_CHANGE", "partition_epoch": 1, "new_leader": 1, "new_isr": [1, 2]}
"""
_LOOK = (
    '{"t": 0, "event_type": "REPLICA_SAMPLE", "node_id": 1, "sample_id": %d, "seq": %d, "interval_ms": 20000, '
    '"replica_id": 1, "leo": 9, "leader_leo": 9, "hw": 2, "in_isr": true, "expected_state": "member"%s}'
)


def test_two_partitions_of_one_number_are_refused(spark: SparkSession) -> None:
    """If two partitions have the same hash nothing is answered, and the message says what to do."""
    partitions = spark.createDataFrame([("c", "T", 0), ("c", "T", 1)], "cluster_id STRING, topic_id STRING, n INT")

    with pytest.raises(PySparkException, match=r"Rule: a hash names one\. Ask about one cluster"):
        numbered(partitions, ("cluster_id", "topic_id")).collect()


@pytest.mark.parametrize("grouping", Grouping)
def test_looks_at_a_unreported_partition_count_nowhere(silver: Callable[[str], Silver], grouping: Grouping) -> None:
    """A partition without control plane is in no group of a result, so no group is covered for longer than it lasts."""
    strange = ', "partition": 7'
    tables = silver("\n".join((_BEGUN, _LOOK % (1, 1, ""), _LOOK % (2, 2, strange))))

    (row,) = result(ALL["s01"], tables, Scope(start_us=0, end_us=60_000_000, grouping=grouping)).collect()

    assert (row.max_records, row.coverage) == (7, 1.0)
