"""The statistics of a collector's export of Kafka, against what its looks say by hand."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

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
from strandline_kafka.collector.answers import Position
from strandline_kafka.collector.cluster import Broker, Cluster, Partition
from strandline_kafka.collector.files import Files, Rows
from strandline_kafka.collector.looks import Answers, Looks
from strandline_kafka.collector.states import States

START_US = 1_795_387_862_000_000
SECOND = 1_000_000
SCOPE = Scope(start_us=START_US, end_us=START_US + 8 * SECOND, grouping=Grouping.PARTITION)
TP = TopicPartition("11111111-2222-3333-4444-555555555555", 0)
COLLECTOR = frozenset({Level.COLLECTOR})
NODES = tuple(map(NodeId, (1, 2, 3)))


def shown(isr: tuple[int, ...]) -> Cluster:
    one = Partition(
        tp=TP, topic="orders", leader=NodeId(1), leader_epoch=LeaderEpoch(4), replicas=NODES,
        isr=frozenset(map(NodeId, isr)), offline=frozenset(),
    )  # fmt: skip
    return Cluster(cluster_id="kafka", brokers={n: Broker("h", n) for n in NODES}, partitions={TP: one}, refused={})


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
        found = {node: {("orders", 0): Position(0, each, 4)} for node, each in ends.items()}
        given = {NodeId(1): {("orders", 0): Position(0, hw, 4)}}
        wider = {NodeId(1): {("orders", 0): Position(0, hw + (second == 3) * 2, 4)}}
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
