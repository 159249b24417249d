"""The analytics commands on a simulated cluster: their output, what they write, and what they refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest
from typer.testing import CliRunner, Result
from worked_histories import HISTORIES, history_rows
from written_export import HOUR_US, Emitter, write_export

from strandline.cli.app import app
from strandline.core.types import TopicPartition
from strandline.export.schema import COLUMNS
from strandline_analytics.commands import submit
from strandline_sim.runs.run import run_world
from strandline_sim.runs.shape import PROFILES, draw_shape
from strandline_sim.runs.trace import Trace
from strandline_sim.world.disk import LogFile
from strandline_sim.world.process import Process
from strandline_sim.world.world import World

SEED = 7
STATS = "s7,s8,s19"
_SUBMIT_S = 400


class _Cuts(Trace):
    """Counts the records that truncations remove from a log, at the disk."""

    records = 0

    def truncated(self, process: Process, tp: TopicPartition, log: LogFile, offset: int) -> None:
        self.records += log.leo - offset


@pytest.fixture(scope="module")
def counted() -> Counter[str]:
    """The simulator's own counts in the seed: from decisions and disks, not from the exported events."""
    cuts = _Cuts()
    world = World(draw_shape(SEED, PROFILES["swarm"]), recorder=cuts)
    cuts.watch(world)
    outcome = run_world(world)
    return outcome.counts + Counter({"records cut": cuts.records})


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same seed, exported."""
    root = tmp_path_factory.mktemp("export")
    result = CliRunner().invoke(app, ["sim", "replay", str(SEED), "--export", str(root)])
    assert result.exit_code == 0, result.output
    return root


def rows(results: Path, stat: str) -> list[dict[str, Any]]:
    """The rows of a statistic."""
    (path,) = (results / f"stat={stat}").rglob("*.parquet")
    found: list[dict[str, Any]] = pq.ParquetFile(path).read().to_pylist()
    return found


def total(results: Path, stat: str, column: str) -> int:
    """The sum of a column over all rows of a statistic."""
    return sum(row[column] or 0 for row in rows(results, stat))


THEIRS = {
    "spark.app.name": "theirs",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "3",
    "spark.ui.enabled": "false",
    "spark.ui.retainedJobs": "7",
}
"""What the submitting user has set; our settings are different."""


_TELLING = """
import json, runpy
from strandline_analytics import session

opened = session.open_session

def open_and_tell(**asked):
    spark = opened(**asked)
    seen = [spark, *(session.session_for(spark, 1 << power) for power in (10, 25, 29, 40))]
    with open({reported!r}, "w") as reported:
        json.dump([dict(each.conf.getAll) for each in seen], reported)
    return spark

session.open_session = open_and_tell
runpy.run_path({script!r}, run_name="__main__")
"""


def submitted(reported: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command by the spark-submit that comes with pyspark, on loopback.

    Args:
        reported: the file for the settings, as JSON: of the session that was opened, and of those for four sizes.
    """
    script = reported.with_suffix(".py")
    script.write_text(_TELLING.format(reported=str(reported), script=submit.__file__))
    theirs = [word for name, value in THEIRS.items() for word in ("--conf", f"{name}={value}")]
    command = [
        f"{Path(pyspark.__file__).parent}/bin/spark-submit", "--master", "local[2]", "--driver-memory", "1g",
        *theirs, str(script),
    ]  # fmt: skip
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("PYSPARK_GATEWAY_PORT", None)
    return subprocess.run(
        [*command, *map(str, words)], env=environment, timeout=_SUBMIT_S, capture_output=True, text=True, check=False
    )


@pytest.mark.timeout(600)
def test_a_simulated_cluster_has_the_simulators_own_counts(
    analytics: Callable[..., Result], export: Path, counted: Counter[str], tmp_path: Path
) -> None:
    """Elections, shrinks, expands and truncated records; and spark-submit writes the rows of the embedded run.

    Settings from `--conf` hold there for every size of input.
    """
    reported = analytics("run", "--input", export, "--out", tmp_path / "own", "--stat", STATS)
    assert reported.exit_code == 0, reported.output
    assert "1 hours, 3 statistics" in reported.output
    results = tmp_path / "own" / "results"
    found = {
        "elections": total(results, "s19", "leader_changes"),
        "isr shrunk": total(results, "s08", "shrinks"),
        "isr grown": total(results, "s08", "expands"),
        "records cut": total(results, "s07", "truncated_records"),
    }
    assert found == {what: counted[what] for what in found}
    assert min(found.values()) > 0

    reported_settings = tmp_path / "settings.json"
    by_spark = submitted(reported_settings, "run", "--input", export, "--out", tmp_path / "submitted", "--stat", "s8")
    assert by_spark.returncode == 0, by_spark.stderr[-3000:]
    # Rows, not bytes: parquet-mr lists a column's encodings in an order that differs between JVMs.
    own, others = (rows(tmp_path / name / "results", "s08") for name in ("own", "submitted"))
    assert own == others
    assert own
    for settings in json.loads(reported_settings.read_text()):
        assert {name: settings[name] for name in THEIRS} == THEIRS


@pytest.mark.timeout(600)
def test_missing_hours_end_a_run_with_code_4(analytics: Callable[..., Result], tmp_path: Path) -> None:
    """The worst hour is named, and nothing is written."""
    tell = Emitter("north", -1)
    rows = [tell.beat((498_662 + hour) * HOUR_US + 1) for hour in range(4)]
    write_export(tmp_path / "export", [rows[0], rows[3]])
    reported = analytics(
        "run", "--input", tmp_path / "export", "--out", tmp_path / "out", "--stat", "s8", "--require-coverage", 0.99
    )

    assert reported.exit_code == 4
    assert "hour 2026-11-20T15Z of cluster north is closed_incomplete with coverage 0.0000" in reported.output
    assert "2 events are missing" in reported.output
    assert not (tmp_path / "out").exists()


@pytest.mark.timeout(600)
def test_an_empty_directory_ends_a_run_with_one_line(analytics: Callable[..., Result], tmp_path: Path) -> None:
    """The message says what is missing there, and how an export is made."""
    reported = analytics("run", "--input", tmp_path, "--out", tmp_path / "out")

    assert reported.exit_code == 1
    (line,) = reported.output.splitlines()
    assert line.startswith(f"strandline: nothing is exported in {tmp_path}")
    assert "strandline up --export" in line


# The output of the interactive commands on a simulated cluster.


Ask = Callable[..., Result]


@pytest.fixture(scope="module")
def exported(export: Path) -> list[dict[str, Any]]:
    """The transitions in the files."""
    lines = [line for path in export.rglob("transitions/**/*.jsonl") for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def answered(result: Result, code: int = 0) -> Any:
    """The document on stdout."""
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


@pytest.mark.timeout(300)
def test_a_timeline_has_every_decision_of_the_files_in_the_order_of_partition_epochs(
    analytics: Ask, export: Path, exported: list[dict[str, Any]]
) -> None:
    """The controller's leader changes, once each, with its sentence."""
    found = answered(analytics("timeline", "-i", export, "--type", "LEADER_CHANGE", "-o", "json"))
    written = [row["partition_epoch"] for row in exported if row["event_type"] == "LEADER_CHANGE"]

    assert [row["partition_epoch"] for row in found] == sorted(written)
    assert all("lead" in row["sentence"] for row in found)


@pytest.mark.timeout(300)
def test_explain_tells_one_change_and_lists_several(
    analytics: Ask, export: Path, exported: list[dict[str, Any]]
) -> None:
    """With an epoch, the chain of the last leader change, also as a table; without one the candidates."""
    change = max((r for r in exported if r["event_type"] == "LEADER_CHANGE"), key=lambda r: r["partition_epoch"])
    where = ("-i", export, "-t", change["topic"], "-p", change["partition"])
    chain = answered(analytics("explain", *where, "-e", change["partition_epoch"], "-o", "json"))

    assert chain["partition_epoch"] == change["partition_epoch"]
    assert any(f"epoch {change['new_leader_epoch']}" in link["reported"] for link in chain["links"])
    assert [link["t_us"] for link in chain["links"]] == sorted(link["t_us"] for link in chain["links"])
    several = analytics("explain", *where)
    assert several.exit_code == 0
    assert "several decisions fit; name one with --partition-epoch" in several.stderr


@pytest.mark.timeout(300)
def test_explain_refuses_a_stall_with_an_epoch_and_a_partition_that_is_not_there(analytics: Ask, export: Path) -> None:
    """Wrong usage is 2, nothing found is 1; both print the remedy."""
    both = analytics("explain", "-i", export, "-t", "t", "-p", 0, "--stall", "-e", 3)
    assert both.exit_code == 2
    assert "--from and --to" in both.output
    nowhere = analytics("explain", "-i", export, "-t", "t", "-p", 99)
    assert nowhere.exit_code == 1
    assert "no decision fits; see: strandline analytics timeline" in nowhere.output


@pytest.mark.timeout(300)
def test_statistics_are_those_of_the_files_and_a_threshold_ends_with_3(
    analytics: Ask, export: Path, exported: list[dict[str, Any]]
) -> None:
    """Shrinks counted in the files and by the command; --fail-on holds for them, and not beyond them."""
    shrinks = sum(
        row["event_type"] == "ISR_CHANGE" and row["node_id"] == -1 and bool(set(row["old_isr"]) - set(row["new_isr"]))
        for row in exported
    )
    reported = analytics("stats", "s08", "-i", export, "-o", "json", "--fail-on", f"shrinks>={shrinks}")
    assert [row["shrinks"] for row in answered(reported, code=3)] == [shrinks]
    assert analytics("stats", "s08", "-i", export, "--fail-on", f"shrinks>{shrinks}").exit_code == 0


@pytest.mark.timeout(300)
def test_coverage_counts_what_each_emitter_wrote(analytics: Ask, export: Path) -> None:
    """One hour with every line of every file, and as many emitters as incarnations wrote."""
    lines = [json.loads(line) for path in export.rglob("*.jsonl") for line in path.read_text().splitlines()]
    (hour,) = answered(analytics("coverage", "-i", export, "-o", "json"))

    assert (hour["events"], hour["missing"], hour["copies"]) == (len(lines), 0, 0)
    assert hour["emitters"] == len({(row["node_id"], row["incarnation"]) for row in lines})


# `strandline analytics explain --group`: its answer as text and as a document, and what it refuses.


@pytest.fixture(scope="module")
def export_explain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of a history in which groups rebalance."""
    root = tmp_path_factory.mktemp("export")
    blank = dict.fromkeys(column.name for column in COLUMNS)
    text = (HISTORIES / "rebalances.jsonl").read_text(encoding="utf-8")
    write_export(root, [blank | row for row in history_rows(text)])
    return root


@pytest.mark.timeout(300)
def test_the_reasons_and_the_events_are_shown(analytics: Ask, export_explain: Path) -> None:
    """As text with a line for each reason and what is not known; as a document with the same."""
    asked = ("explain", "-i", export_explain, "--group", "orders", "--at", 24_000)
    text, document = analytics(*asked), analytics(*asked, "-o", "json")

    assert text.exit_code == 0, text.output
    assert "group orders at 1970-01-01T00:00:24" in text.stdout
    assert "- no member had t-1: for 2.0 s by then" in text.stdout
    assert "not known: its lag" in text.stdout
    found = json.loads(document.stdout)
    assert [reason.split(":")[0] for reason in found["reasons"]] == ["it rebalanced", "no member had t-1"]
    assert {link["name"] for link in found["links"]} == {"group", "member"}


@pytest.mark.timeout(300)
def test_a_group_that_nobody_reported_is_refused(analytics: Ask, export_explain: Path) -> None:
    """The message says where groups are listed."""
    found = analytics("explain", "-i", export_explain, "--group", "nobody", "--at", 24_000)

    assert found.exit_code == 1
    assert "no event of a group nobody was read" in found.output


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("--group", "g"), "name the moment with --at"),
        (("--group", "g", "--at", 1, "-t", "t"), "leave --topic out"),
        (("--group", "g", "--at", 1, "-p", 0), "leave --partition out"),
        (("--group", "g", "--at", 1, "--stall"), "leave --stall out"),
        (("--group", "g", "--at", 1, "--from", 1), "leave --from out"),
        (("-t", "t", "-p", 0, "--at", 1, "--stall"), "--at: takes --input, and none of --stall"),
        (("-t", "t", "-p", 0, "--at", 1, "-e", 3), "--at: takes --input, and none of --stall"),
        (("-t", "t"), "name a partition with --topic and --partition"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    analytics: Ask, export_explain: Path, words: tuple[object, ...], rule: str
) -> None:
    """A usage error that names the option and the remedy."""
    found = analytics("explain", "-i", export_explain, *words)

    assert found.exit_code == 2
    assert rule in " ".join(found.output.split())
