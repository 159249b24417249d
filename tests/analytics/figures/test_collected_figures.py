"""The statistics of a collector's export, alone and together with the metadata log of its time."""

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
from strandline_analytics.sources.kafka import collected
from strandline_analytics.sources.kafka.availability import EVERYTHING, bounded, unavailable, why_unavailable
from strandline_analytics.sources.kafka.source_words import LOOKING, Level
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result
from strandline_kafka.collector.answers import AnsweredOffset
from strandline_kafka.collector.cluster import Broker, ClusterSample, PartitionSample
from strandline_kafka.collector.files import Decisions, Files, Rows
from strandline_kafka.collector.looks import Answers, Looks
from strandline_kafka.collector.states import States
from strandline_kafka.metadata.events import HistoryEvent
from strandline_kafka.metadata.writing import EventFiles

START_US = 1_795_387_862_000_000
SECOND = 1_000_000
SCOPE = Scope(start_us=START_US, end_us=START_US + 8 * SECOND, grouping=Grouping.PARTITION)
TP = TopicPartition("11111111-2222-3333-4444-555555555555", 0)
COLLECTOR = frozenset({Level.COLLECTOR})
NODES = tuple(map(NodeId, (1, 2, 3)))


def shown(
    isr: tuple[int, ...], tp: TopicPartition = TP, topic: str = "orders", epoch: int = 4, cluster_id: str = "kafka"
) -> ClusterSample:
    one = PartitionSample(
        tp=tp, topic=topic, leader=NodeId(1), leader_epoch=LeaderEpoch(epoch), replicas=NODES,
        isr=frozenset(map(NodeId, isr)), offline=frozenset(),
    )  # fmt: skip
    brokers = {n: Broker("h", n) for n in NODES}
    return ClusterSample(cluster_id=cluster_id, brokers=brokers, partitions={tp: one}, refused={})


@pytest.fixture(scope="module")
def silver(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Silver:
    """Eight looks, one a second: node 3 stands still from the third on, and leaves the ISR with the seventh."""
    out = tmp_path_factory.mktemp("collected")
    rows, looks, states = Rows("kafka", 1_000), Looks(), States()
    made: list[dict[str, Any]] = []
    for second in range(8):
        at = (START_US + second * SECOND, second * SECOND)
        isr = (1, 2, 3) if second < 6 else (1, 2)
        cluster = shown(isr)
        end = 100 + 10 * second
        ends = {1: end, 2: end, 3: end} if second < 2 else {1: end, 2: end}
        hw = end if second < 2 else 110 if second < 6 else end
        found = {node: {("orders", 0): AnsweredOffset(0, each, 4)} for node, each in ends.items()}
        given = {NodeId(1): {("orders", 0): AnsweredOffset(0, hw, 4)}}
        wider = {NodeId(1): {("orders", 0): AnsweredOffset(0, hw + (second == 3) * 2, 4)}}
        answers = Answers(before=cluster, hw1=given, ends=found, hw2=wider, after=cluster, log_starts={})
        made += rows.of_state(states.changed(cluster, {}, {"orders": 2}), at)
        made += rows.of_look(looks.take(answers, 1_000).samples, {TP.topic_id: "orders"}, at)
    made += rows.beat((START_US + 8 * SECOND, 8 * SECOND), is_final=True)
    files = Files(LocalDirectory(out), "kafka")
    files.write(made)
    files.describe({"source": "kafka", "levels": ["collector"], "hw_bounds": looks.bounds._asdict()})
    return open_exports(spark, [str(out)])


def rows_of(silver: Silver, stat: str) -> list[Row]:
    return result(ALL[stat], silver, SCOPE).collect()


# Queries planned from scratch; the first waits for the session.
@pytest.mark.timeout(300)
def test_the_lag_of_the_hw_is_the_upper_bound(silver: Silver) -> None:
    """S1 is LEO - HW1: nothing for four of eight seconds, then 10, 20, 30 and 40 records."""
    (row,) = rows_of(silver, "s01")
    assert (row.mean_records, row.max_records, row.n_negative, row.coverage) == (12.5, 40, 0, 1.0)


@pytest.mark.timeout(300)
def test_a_follower_that_stands_still_lags_more_and_more(silver: Silver) -> None:
    """S2 of the silent member is against the HW that it must have; outside the ISR against its last end."""
    by = {(row.replica_id, row.expected_state): (row.mean_records, row.max_records) for row in rows_of(silver, "s02")}
    assert by == {(2, "member"): (0.0, 0), (3, "member"): (100 / 6, 40), (3, "catching_up"): (55.0, 60)}


@pytest.mark.timeout(300)
def test_a_stall_names_who_held_it_up(silver: Silver) -> None:
    """S18 sees the HW stand still from the third look to the sixth, held up by node 3; no other look is a stall."""
    (row,) = rows_of(silver, "s18")
    assert (row.episodes, row.total_us, row.blockers, row.censored) == (1, 3 * SECOND, {3: 1}, None)


@pytest.mark.timeout(300)
def test_no_member_is_below_the_hw(silver: Silver) -> None:
    """S6 of a silent member raises no false alarm, and shows what a clean election would have cut at most."""
    (row,) = rows_of(silver, "s06")
    assert (row.n_below_hw, row.clean_worst_max_records) == (0, 40)


@pytest.mark.timeout(300)
def test_times_in_states_are_those_of_the_looks(silver: Silver) -> None:
    """S10 has the ISR of each look until the next: six seconds full, two of them smaller and at the minimum."""
    (row,) = rows_of(silver, "s10")
    assert (row.full_us, row.under_replicated_us, row.at_min_us, row.coverage) == (
        6 * SECOND,
        2 * SECOND,
        2 * SECOND,
        1,
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("stat", ["s05", "s08"])
def test_what_is_not_seen_is_null_and_never_0(silver: Silver, stat: str) -> None:
    """Changes between looks and acknowledgements have no figure, also where it would count."""
    (row,) = rows_of(silver, stat)
    assert {row[value.name] for value in ALL[stat].values} == {None}


def said(stat: str, levels: frozenset[Level], source: dict[str, Any]) -> list[str]:
    figures = [value.name for value in ALL[stat].values]
    looked = {"kafka": {level: source for level in LOOKING if level in levels}}
    asked, clusters = [(stat, figures)], {"kafka": levels}
    return [*unavailable(asked, clusters), *bounded(asked, clusters, looked)]


def test_both_bounds_are_said() -> None:
    """S1 says which bound it shows, and how far the other one is."""
    source = {"hw_bounds": {"looks": 8, "exact": 7, "width_sum": 2, "widest": 2}}
    (line,) = said("s01", COLLECTOR, source)
    assert line == (
        "s01 mean_records, p50_records, p95_records, p99_records, max_records: bounded for kafka: upper bound, by the "
        "HW before the log's end was read; the lower one is at most 2 records less, 0.25 in the mean, and equal in 7 "
        "of 8 looks"
    )
    assert said("s08", COLLECTOR, source) == [
        "s08: unavailable for kafka: a collector sees states and not the changes between them; import the metadata log"
    ]


def test_what_one_source_gives_is_given() -> None:
    """With the metadata log beside it, changes are exact, and a time in states is the log's and no bound."""
    both = frozenset(Level)
    assert why_unavailable("s08", "shrinks", both) is None
    assert why_unavailable("s01", "max_records", both) is None
    assert why_unavailable("s20", "max_us", both) is not None
    assert said("s10", both, {}) == []
    assert [line.partition(":")[2][:9] for line in said("s03", both, {})] == [" bounded "]


def test_the_tables_name_figures_that_exist() -> None:
    """Every figure of both tables is one of its statistic, and every statistic is thought about."""
    for table in (collected.UNAVAILABLE, collected.BOUNDED):
        for stat, reasons in table.items():
            assert {*reasons} <= {EVERYTHING, *(value.name for value in ALL[stat].values)}
    assert collected.UNAVAILABLE.keys() == ALL.keys()


# A collection with the metadata log of its time in one export: looks and decisions together, by Spark.


BEGIN_MS = START_MS + 60_000
SCOPE_DECIDED = Scope(start_us=BEGIN_MS * 1_000, end_us=BEGIN_MS * 1_000 + 8 * SECOND, grouping=Grouping.PARTITION)
TP_DECIDED = TopicPartition(TOPIC_ID, 0)


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
        cluster = shown((1, 2, 3) if second < 6 else (1, 2), TP_DECIDED, "t", 0, "c")
        end = 100 + 10 * second
        ends = {n: {("t", 0): AnsweredOffset(0, end, 0)} for n in (NODES if second < 2 else NODES[:2])}
        hw = {NODES[0]: {("t", 0): AnsweredOffset(0, end if second < 2 else 110 if second < 6 else end, 0)}}
        answers = Answers(before=cluster, hw1=hw, ends=ends, hw2=hw, after=cluster, log_starts={})
        found += rows.of_state(states.changed(cluster, {}, {"t": 2}), at)
        found += rows.of_look(looks.take(answers, 1_000).samples, {TP_DECIDED.topic_id: "t"}, at)
    found += rows.beat((BEGIN_MS * 1_000 + 20 * SECOND, 20 * SECOND), is_final=True)
    files = Files(out, "c")
    files.write(found)
    files.describe({"source": "kafka", "levels": ["metadata-log", "collector"], "metadata-log": decisions.source})
    return open_exports(spark, [str(root / "export")])


def rows_of_decided(silver: Silver, stat: str, scope: Scope = SCOPE_DECIDED) -> list[Row]:
    return result(ALL[stat], silver, scope).collect()


# Queries planned from scratch; the first waits for the session.
@pytest.mark.timeout(300)
def test_looks_are_as_they_were_and_by_their_own_clock(both: Silver) -> None:
    """S1 and S2 are those of the looks alone, over the whole time, whatever a broker's clock was."""
    (s01,) = rows_of_decided(both, "s01")
    assert (s01.mean_records, s01.max_records, s01.coverage) == (12.5, 40, 1.0)
    by = {(row.replica_id, row.expected_state): row.max_records for row in rows_of_decided(both, "s02")}
    assert by == {(2, "member"): 0, (3, "member"): 40, (3, "catching_up"): 60}


@pytest.mark.timeout(300)
def test_changes_are_those_of_the_log(both: Silver) -> None:
    """S8 counts the one removal, S10 has its moment and not that of the next look, and S14 has no figure at all."""
    (s08,) = rows_of_decided(both, "s08")
    assert (s08.shrinks, s08.expands) == (1, 0)
    (s10,) = rows_of_decided(both, "s10")
    assert (s10.full_us, s10.under_replicated_us) == (5_200_000, 2_800_000)
    (s14,) = rows_of_decided(both, "s14")
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
    assert {row.full_us for row in rows_of_decided(both, "s10", later)} <= {None, 0}
    assert {row.coverage for row in rows_of_decided(both, "s10", later)} <= {0.0, None}
