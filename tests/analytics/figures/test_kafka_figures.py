"""The statistics of run A, a real Kafka cluster, against its printed log and against the scrapes of a Prometheus."""

from __future__ import annotations

import json
import lzma
import re
import shutil
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from typer.testing import Result

from strandline.export.destination import LocalDirectory
from strandline.export.reading import find_files, read_rows
from strandline_analytics.scope import Grouping, Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.sources.exports import open_exports
from strandline_analytics.sources.kafka import availability, scraped
from strandline_analytics.sources.kafka.source_words import Level
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result
from strandline_kafka.brokers.broker_logs import BrokerLog, read_logs
from strandline_kafka.brokers.log_layout import DEFAULT_PATTERN, layout_of
from strandline_kafka.metadata.importing import Import, cluster_of
from strandline_kafka.metadata.log_files import open_copy
from strandline_kafka.metadata.passage import EVERYTHING as EVERYTHING_SCRAPED
from strandline_kafka.scrapes.following import Following
from strandline_kafka.scrapes.series import Mapping, Reader

# Queries are planned from scratch, and the first one waits for the session.
pytestmark = pytest.mark.timeout(300)

RUN_A = Path(__file__).parents[2] / "kafka" / "run_a"
START_MS, END_MS = 1795387862000, 1795388004000
"""From one second after the topics were created to five seconds after the load ended."""


SCOPE = Scope(start_us=START_MS * 1000, end_us=END_MS * 1000, grouping=Grouping.PARTITION)


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of run A, from two of three equal logs."""
    return exported(tmp_path_factory.mktemp("run-a"))


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the logs of all three brokers."""
    root = tmp_path_factory.mktemp("run-a-logged")
    logs = []
    for node in (1, 2, 3):
        with tarfile.open(RUN_A / "logs" / f"node{node}.tar.xz") as packed:
            packed.extractall(root / f"logs{node}", filter="data")
        logs.append(read_logs(node, root / f"logs{node}" / "logs", layout_of(DEFAULT_PATTERN)))
    return exported(root, logs)


def exported(root: Path, logs: Sequence[BrokerLog] = ()) -> Path:
    copies = copies_of(root, 1, 3)
    Import(copies, cluster_of(copies, None), logs=logs).write(LocalDirectory(root / "export"))
    return root / "export"


def copies_of(root: Path, *nodes: int) -> list[Any]:
    """The metadata log as it lay on these nodes."""
    log = lzma.decompress((RUN_A / "00000000000000000000.log.xz").read_bytes())
    copies = []
    for node in nodes:
        folder = root / f"node{node}" / "__cluster_metadata-0"
        folder.mkdir(parents=True)
        (folder / "00000000000000000000.log").write_bytes(log)
        shutil.copy(RUN_A / f"{143 if node == 1 else 142:020}-0000000001.checkpoint", folder)
        (folder.parent / "meta.properties").write_text(f"node.id={node}\ncluster.id=run-a\n")
        copies.append(open_copy(folder.parent))
    return copies


@pytest.fixture(scope="module")
def silver_of_run_a(spark: SparkSession, export: Path) -> Silver:
    """Silver tables of run A."""
    return open_exports(spark, [str(export)])


class Observed:
    """What a partition went through, by the printed log: (time in ms, ISR, leader) and the minimum from when on."""

    def __init__(self, replicas: list[int]) -> None:
        self.replicas = replicas
        self.states: list[tuple[int, frozenset[int], int]] = []
        self.min_isr: list[tuple[int, int]] = []
        self.end_ms = END_MS

    def pieces(self) -> Iterator[tuple[int, frozenset[int], int, int]]:
        """Length in ms, ISR, leader and minimum of each piece of the window."""
        cuts = {START_MS, self.end_ms, *(at for at, *_ in self.states), *(at for at, _ in self.min_isr)}
        inside = sorted(at for at in cuts if START_MS <= at <= self.end_ms)
        for begin, end in pairwise(inside):
            _, isr, leader = max((one for one in self.states if one[0] <= begin), key=lambda one: one[0])
            _, least = max(one for one in self.min_isr if one[0] <= begin)
            yield end - begin, isr, leader, least

    def steps(self) -> Iterator[tuple[frozenset[int], int, frozenset[int], int]]:
        """ISR and leader before and after each change in the window."""
        for (_, isr, leader), (at, new_isr, new_leader) in pairwise(self.states):
            if START_MS <= at < END_MS:
                yield isr, leader, new_isr, new_leader


def observed() -> dict[tuple[str, int], Observed]:
    """A fold over the lines of kafka-dump-log, by topic name and partition."""
    names: dict[str, str] = {}
    least: dict[str, int] = {}
    found: dict[tuple[str, int], Observed] = {}
    for line in lzma.decompress((RUN_A / "dump-log.txt.xz").read_bytes()).decode().splitlines():
        printed = re.search(r"CreateTime: (\d+) .* payload: (\{.*\})$", line)
        if not printed:
            continue
        at, record = int(printed[1]), json.loads(printed[2])
        kind, data = record["type"], record["data"]
        if kind == "TOPIC_RECORD":
            names[data["topicId"]] = data["name"]
        elif kind == "CONFIG_RECORD" and data["name"] == "min.insync.replicas":
            least[data["resourceName"]] = int(data["value"])
            for (topic, _), one in found.items():
                if topic == data["resourceName"]:
                    one.min_isr.append((at, int(data["value"])))
        elif kind == "PARTITION_RECORD":
            topic = names[data["topicId"]]
            one = found[topic, data["partitionId"]] = Observed(data["replicas"])
            one.states.append((at, frozenset(data["isr"]), data["leader"]))
            one.min_isr.append((at, least.get(topic, least[""])))
        elif kind == "PARTITION_CHANGE_RECORD":
            one = found[names[data["topicId"]], data["partitionId"]]
            _, isr, leader = one.states[-1]
            one.states.append((at, frozenset(data.get("isr", isr)), data.get("leader", leader)))
        elif kind == "REMOVE_TOPIC_RECORD":
            for (topic, _), one in found.items():
                if topic == names[data["topicId"]]:
                    one.end_ms = at
    return found


def rows_of(silver: Silver, stat: str) -> dict[tuple[str, int], list[Row]]:
    found: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in result(ALL[stat], silver, SCOPE).collect():
        found[row.topic, row.partition].append(row)
    return found


@pytest.mark.slow
def test_counts_and_times_are_those_of_the_printed_log(silver_of_run_a: Silver) -> None:
    """S8, S10, S11 and S16 of all seven partitions agree to the microsecond with a fold over Kafka's own text."""
    by_stat = {stat: rows_of(silver_of_run_a, stat) for stat in ("s08", "s10", "s11", "s16")}
    expected = observed()
    assert {key for rows in by_stat.values() for key in rows} == expected.keys()
    for key, one in expected.items():
        steps = list(one.steps())
        pieces = list(one.pieces())
        (s08,), (s10,), (s11,), (s16,) = (by_stat[stat][key] for stat in ("s08", "s10", "s11", "s16"))
        shrinks = sum(bool(before - after) for before, _, after, _ in steps)
        expands = sum(bool(after - before) for before, _, after, _ in steps)
        assert (s08.shrinks, s08.expands) == (shrinks, expands)
        assert s16.leader_changes == sum(before != after for _, before, _, after in steps)
        small = sum(ms for ms, isr, leader, _ in pieces if len(isr) < len(one.replicas) or leader < 0)
        refused = sum(ms for ms, isr, leader, least in pieces if len(isr) < least or leader < 0)
        assert (s10.under_replicated_us, s11.write_unavailable_us) == (small * 1000, refused * 1000)


@pytest.mark.slow
def test_a_statistic_that_is_not_recorded_has_no_rows(analytics: Callable[..., Result], export: Path) -> None:
    """`stats s04` ends with no row and the reason, which a program gets in place of the rows."""
    reason = "Kafka's metadata log has no byte positions"
    shown = analytics("stats", "s04", "--input", export)
    document = analytics("stats", "s04", "s08", "--input", export, "-o", "json")

    assert (shown.exit_code, shown.stdout.splitlines()) == (0, ["s04 bytes_above_hw: Bytes above the HW"])
    assert f"s04: unavailable for run-a: {reason}" in shown.stderr
    *rows, absent = json.loads(document.stdout)
    assert absent == {"stat": "s04", "cluster_id": "run-a", "unavailable": {availability.EVERYTHING: reason}}
    assert {row["stat"] for row in rows} == {"s08"}
    assert analytics("stats", "s04", "--input", export, "--require-available").exit_code == 4


@pytest.mark.slow
def test_a_table_has_no_rows_of_what_is_not_recorded(
    analytics: Callable[..., Result], export: Path, tmp_path: Path
) -> None:
    """`run` counts rows of the statistics that are recorded alone, and writes no file of another."""
    ran = analytics("run", "--input", export, "--out", tmp_path, "--stat", "s04,s08")

    assert ran.exit_code == 0, ran.output
    assert [path.name for path in (tmp_path / "results").glob("stat=*")] == ["stat=s08"]


@pytest.mark.slow
@pytest.mark.parametrize("stat", ["s07", "s09", "s11", "s13", "s14", "s19"])
def test_what_is_not_recorded_is_null_and_never_0(silver_of_run_a: Silver, stat: str) -> None:
    """Each figure that the log cannot give is null in every row, also where it counts what did not happen."""
    hidden = [value.name for value in ALL[stat].values if availability.why_unavailable(stat, value.name)]
    rows = [row for some in rows_of(silver_of_run_a, stat).values() for row in some]
    assert hidden
    assert rows
    assert [row[name] for row in rows for name in hidden] == [None] * len(rows) * len(hidden)


@pytest.mark.slow
def test_a_statistic_that_the_table_lacks_has_no_figure() -> None:
    """A statistic that is newer than the table is unavailable as a whole, with a reason."""
    assert availability.why_unavailable("s99", "records") == "this statistic is not answered from Kafka's metadata log"


@pytest.mark.slow
def test_the_table_names_figures_that_exist() -> None:
    """Every figure of the table is one of its statistic."""
    wrong = [
        (stat, figure)
        for stat, reasons in (*availability.UNAVAILABLE.items(), *availability.WITH_LOGS.items())
        for figure in reasons
        if figure != availability.EVERYTHING and figure not in {value.name for value in ALL[stat].values}
    ]
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("others", [frozenset[Level](), frozenset({Level.COLLECTOR})])
def test_of_what_a_new_leader_lacked_logs_prove_the_number_alone(others: frozenset[Level]) -> None:
    """A cut below an HW proves how many records were lost at least; neither their size nor what could be avoided."""
    figures = [value.name for value in ALL["s07"].values if "_lost_" in value.name]
    known = [name for name in figures if not availability.why_unavailable("s07", name, others | {Level.BROKER_LOGS})]

    assert (len(figures), known) == (4, ["committed_lost_records"])


def asked(stat: str) -> tuple[str, list[str]]:
    """A statistic with its figures."""
    return stat, [value.name for value in ALL[stat].values]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stat", "said"),
    [
        ("s04", ["s04: unavailable for run-a: Kafka's metadata log has no byte positions"]),
        ("s08", []),
        ("s11", ["s11 activation_gap_us: unavailable for run-a: no record says when a leader took up its epoch"]),
    ],
)
def test_the_reason_is_said(stat: str, said: list[Any]) -> None:
    """A statistic says what it lacks and why; one that lacks nothing says nothing."""
    assert list(availability.unavailable([asked(stat)], {"run-a": frozenset({Level.METADATA_LOG})})) == said
    assert list(availability.unavailable([asked(stat)], {})) == []


@pytest.mark.slow
def test_clusters_with_logs_and_without_are_told_apart() -> None:
    """What the brokers' logs give is unavailable for the cluster alone that was imported without them."""
    clusters = {
        "bare": frozenset({Level.METADATA_LOG}),
        "logged": frozenset({Level.METADATA_LOG, Level.BROKER_LOGS}),
    }
    assert list(availability.unavailable([asked("s11")], clusters)) == [
        "s11 activation_gap_us: unavailable for bare: no record says when a leader took up its epoch"
    ]


@pytest.mark.slow
def test_the_brokers_logs_give_delays_latencies_and_young_epochs(spark: SparkSession, logged: Path) -> None:
    """With logs S13 has the delay of nine removals, near the lag time of 4 s, S14 has latencies, and S9 its marks."""
    silver = open_exports(spark, [str(logged)])
    whole = Scope(start_us=START_MS * 1000, end_us=END_MS * 1000, grouping=Grouping.CLUSTER)
    removed_by = {row.removed_by: row for row in result(ALL["s13"], silver, whole).collect()}
    leaders = removed_by["leader"]
    assert leaders.removals == 9
    assert 4_000_000 < leaders.min_us <= leaders.max_us < 9_000_000
    (s14,) = result(ALL["s14"], silver, whole).collect()
    assert (s14.proposals, s14.committed, s14.refused) == (None, None, None)
    assert 0 < s14.p50_us <= s14.max_us < 1_000_000
    assert {row.young_epoch for row in result(ALL["s09"], silver, whole).collect()} == {0}


@pytest.mark.slow
def test_an_export_says_where_it_came_from(spark: SparkSession, logged: Path) -> None:
    """The words of a report name cluster, offsets, nodes, logs, release and the clocks that were measured."""
    (words,) = open_exports(spark, [str(logged)]).kafka_sources
    assert words == (
        "metadata log of the Kafka cluster run-a, offsets 0 to 1658, from nodes 1, 3; logs of nodes 1, 2, 3; clock of "
        "node 1 -11 to +29 ms; clock of node 2 -71 to +35 ms; clock of node 3 -2 to +30 ms; Kafka 4.3.1; "
        "metadata.version level 30"
    )


# The statistics of run A with the scrapes of a Prometheus beside its metadata log, against its own samples.


SCOPE_SCRAPED = Scope(start_us=1795387862_000_000, end_us=1795388004_000_000, grouping=Grouping.PARTITION)
BOTH = frozenset({Level.METADATA_LOG, Level.PROMETHEUS})


@pytest.fixture(scope="module")
def export_scraped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run A by one of its logs and the scrapes of its brokers."""
    root = tmp_path_factory.mktemp("scraped")
    reader = Reader(Mapping(nodes={f"kafka-{node}:7071": node for node in (1, 2, 3)}))
    reader.take_text("scrapes", lzma.decompress((RUN_A / "scrapes.txt.xz").read_bytes()).decode().splitlines())
    copies, out = copies_of(root, 1), LocalDirectory(root / "export")
    following = Following(reader.found(), out, "run-a", (EVERYTHING_SCRAPED.start_us, EVERYTHING_SCRAPED.end_us))
    Import(copies, cluster_of(copies, None), trust_tail=True).write(out, following)
    return root / "export"


@pytest.fixture(scope="module")
def silver_scraped(spark: SparkSession, export_scraped: Path) -> Silver:
    """Silver tables of it."""
    return open_exports(spark, [str(export_scraped)])


def rows_of_scraped(silver: Silver, stat: str) -> list[Row]:
    return result(ALL[stat], silver, SCOPE_SCRAPED).collect()


def test_the_lag_of_a_follower_is_the_largest_that_is_possible(silver_scraped: Silver, export_scraped: Path) -> None:
    """S2 has of every replica the upper bound of its samples, and the leader's silence ends it."""
    most: dict[tuple[str, int, int, str], int] = defaultdict(int)
    place = LocalDirectory(export_scraped)
    for file in find_files(place, "run-a"):
        for row in read_rows(file.path, place.get(f"run-a/v1/{file.path}")):
            if row["event_type"] == "REPLICA_SAMPLE" and row["replica_id"] != row["node_id"] and "leo" in row:
                key = (row["topic"], row["partition"], row["replica_id"], row["expected_state"])
                most[key] = max(most[key], row["leader_leo"] - row["leo"])
    found = {
        (row.topic, row.partition, row.replica_id, row.expected_state): row.max_records
        for row in rows_of_scraped(silver_scraped, "s02")
        if row.replica_id is not None
    }
    assert len(found) > 15
    assert {key: most[key] for key in found} == found


def test_what_needs_a_high_watermark_is_null(silver_scraped: Silver) -> None:
    """S6 has the cut of a clean election as a bound, and nothing below a high watermark; S1 has nothing at all."""
    assert {row[value.name] for row in rows_of_scraped(silver_scraped, "s01") for value in ALL["s01"].values} == {None}
    s06 = rows_of_scraped(silver_scraped, "s06")
    assert {(row.n_below_hw, row.unclean_committed_max_records) for row in s06} == {(None, None)}
    assert max(row.clean_worst_max_records or 0 for row in s06) > 0


def test_each_statistic_is_in_the_table() -> None:
    """Every statistic is thought about, and a figure that is named is one of its own."""
    assert {*scraped.UNAVAILABLE} == {*ALL}
    for table in (scraped.UNAVAILABLE, scraped.BOUNDED):
        for stat, figures in table.items():
            assert {*figures} <= {"*", *(value.name for value in ALL[stat].values)}


def test_the_bounds_are_said_and_a_collector_is_preferred() -> None:
    """S2 names its bound and its width; where a collector looked too, its own bound is said instead."""
    asked = [("s02", [value.name for value in ALL["s02"].values])]
    source = {"prometheus": {"leo_bounds": {"looks": 4, "exact": 1, "width_sum": 10, "widest": 7}}}
    (line,) = availability.bounded(asked, {"k": BOTH}, {"k": {Level.PROMETHEUS: source}})
    assert line.endswith("the lower one is at most 7 records less, 2.5 in the mean, and equal in 1 of 4 samples")
    levels = BOTH | {Level.COLLECTOR}
    (line,) = availability.bounded(asked, {"k": levels}, {"k": {Level.PROMETHEUS: source, Level.COLLECTOR: {}}})
    assert "upper bound while a replica's broker does not answer" in line


def test_a_metadata_log_keeps_what_it_gives() -> None:
    """Scrapes take no figure away, and of what both lack both reasons are said."""
    assert availability.why_unavailable("s08", "shrinks", BOTH) is None
    assert availability.why_unavailable("s02", "max_records", BOTH) is None
    (line,) = availability.unavailable([("s01", [value.name for value in ALL["s01"].values])], {"k": BOTH})
    assert "no high watermark" in line and "Prometheus" in line
