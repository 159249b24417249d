"""A collection with the metadata log of its time in one export: looks and decisions together, by Spark."""

from __future__ import annotations

from typing import Any

import pytest
from metadata_log_bytes import HEAD, NO_OP, START_MS, TOPIC_ID, batch, change, ids, node
from pyspark.sql import Row, SparkSession

from strandline.core.state_events import ClockSample
from strandline.core.types import LeaderEpoch, NodeId, TopicPartition
from strandline.export.destination import LocalDirectory
from strandline_analytics.scope import Grouping, Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.sources.exports import open_exports
from strandline_analytics.sources.kafka.availability import unavailable
from strandline_analytics.sources.kafka.source_words import Level
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result
from strandline_kafka.collector.answers import Position
from strandline_kafka.collector.cluster import Broker, Cluster, Partition
from strandline_kafka.collector.files import Decisions, Files, Rows
from strandline_kafka.collector.looks import Answers, Looks
from strandline_kafka.collector.states import States
from strandline_kafka.metadata.events import HistoryEvent
from strandline_kafka.metadata.writing import EventFiles

BEGIN_MS = START_MS + 60_000
SECOND = 1_000_000
SCOPE = Scope(start_us=BEGIN_MS * 1_000, end_us=BEGIN_MS * 1_000 + 8 * SECOND, grouping=Grouping.PARTITION)
TP = TopicPartition(TOPIC_ID, 0)
NODES = tuple(map(NodeId, (1, 2, 3)))


def shown(isr: tuple[int, ...]) -> Cluster:
    one = Partition(
        tp=TP, topic="t", leader=NodeId(1), leader_epoch=LeaderEpoch(0), replicas=NODES,
        isr=frozenset(map(NodeId, isr)), offline=frozenset(),
    )  # fmt: skip
    return Cluster(cluster_id="c", brokers={n: Broker("h", n) for n in NODES}, partitions={TP: one}, refused={})


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Silver:
    """Eight looks, one a second: node 3 stands still from the third on, and the log has its removal at 5.2 s.

    A second reign of the controller measured a broker's clock 37 s ahead, which is not the clock of the looks.
    """
    root = tmp_path_factory.mktemp("decided")
    made = node(
        root, 1, *HEAD, batch(5, NO_OP, at_ms=BEGIN_MS), batch(6, change(t0=ids(1, 2)), at_ms=BEGIN_MS + 5_200),
        batch(7, NO_OP, at_ms=BEGIN_MS + 8_000),
    )  # fmt: skip
    out = LocalDirectory(root / "export")
    decisions = Decisions((made,), "c", out, BEGIN_MS * 1_000, None)
    decisions.take(0)
    clocks = EventFiles(out, "c", {}.get)
    clocks.begin(2, BEGIN_MS * 1_000 + 8 * SECOND)
    clocks.add(BEGIN_MS * 1_000 + 8 * SECOND, HistoryEvent(None, ClockSample(NodeId(1), 37 * SECOND, 5_000)))
    clocks.end(None)
    rows, looks, states = Rows("c", BEGIN_MS), Looks(), States()
    found: list[dict[str, Any]] = []
    for second in range(8):
        at = (BEGIN_MS * 1_000 + second * SECOND, second * SECOND)
        cluster = shown((1, 2, 3) if second < 6 else (1, 2))
        end = 100 + 10 * second
        ends = {n: {("t", 0): Position(0, end, 0)} for n in (NODES if second < 2 else NODES[:2])}
        hw = {NODES[0]: {("t", 0): Position(0, end if second < 2 else 110 if second < 6 else end, 0)}}
        answers = Answers(before=cluster, hw1=hw, ends=ends, hw2=hw, after=cluster, log_starts={})
        found += rows.of_state(states.changed(cluster, {}, {"t": 2}), at)
        found += rows.of_look(looks.take(answers, 1_000).samples, {TP.topic_id: "t"}, at)
    found += rows.beat((BEGIN_MS * 1_000 + 20 * SECOND, 20 * SECOND), is_final=True)
    files = Files(out, "c")
    files.write(found)
    files.describe({"source": "kafka", "levels": ["metadata-log", "collector"], "metadata-log": decisions.source})
    return open_exports(spark, [str(root / "export")])


def rows_of(silver: Silver, stat: str, scope: Scope = SCOPE) -> list[Row]:
    return result(ALL[stat], silver, scope).collect()


# Queries planned from scratch; the first waits for the session.
@pytest.mark.timeout(300)
def test_looks_are_as_they_were_and_by_their_own_clock(both: Silver) -> None:
    """S1 and S2 are those of the looks alone, over the whole time, whatever a broker's clock was."""
    (s01,) = rows_of(both, "s01")
    assert (s01.mean_records, s01.max_records, s01.coverage) == (12.5, 40, 1.0)
    by = {(row.replica_id, row.expected_state): row.max_records for row in rows_of(both, "s02")}
    assert by == {(2, "member"): 0, (3, "member"): 40, (3, "catching_up"): 60}


@pytest.mark.timeout(300)
def test_changes_are_those_of_the_log(both: Silver) -> None:
    """S8 counts the one removal, S10 has its moment and not that of the next look, and S14 has no figure at all."""
    (s08,) = rows_of(both, "s08")
    assert (s08.shrinks, s08.expands) == (1, 0)
    (s10,) = rows_of(both, "s10")
    assert (s10.full_us, s10.under_replicated_us) == (5_200_000, 2_800_000)
    (s14,) = rows_of(both, "s14")
    assert {s14[value.name] for value in ALL["s14"].values} == {None}
    (said,) = unavailable([("s14", [value.name for value in ALL["s14"].values])], both.kafka)
    assert "proposals of leaders are not recorded" in said and "a collector sees states" in said


@pytest.mark.timeout(300)
def test_the_log_alone_says_how_long_a_state_is_known(both: Silver) -> None:
    """A collector that lives 12 s longer than the log does not say that nothing was decided in them."""
    assert both.kafka == {"c": frozenset({Level.METADATA_LOG, Level.COLLECTOR})}
    later = Scope(
        start_us=BEGIN_MS * 1_000 + 8 * SECOND, end_us=BEGIN_MS * 1_000 + 20 * SECOND, grouping=Grouping.PARTITION
    )
    assert {row.full_us for row in rows_of(both, "s10", later)} <= {None, 0}
    assert {row.coverage for row in rows_of(both, "s10", later)} <= {0.0, None}
