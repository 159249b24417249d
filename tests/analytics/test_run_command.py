"""`strandline analytics run` from a simulated cluster to its figures, embedded and by spark-submit; its errors."""

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
from written_export import HOUR_US, Emitter, write_export

from strandline.cli.app import app
from strandline.core.types import TopicPartition
from strandline_analytics.commands import submit
from strandline_sim.runs.profiles import PROFILES
from strandline_sim.runs.run import run_world
from strandline_sim.runs.shape import draw_shape
from strandline_sim.runs.trace import Trace
from strandline_sim.world.disk import LogFile
from strandline_sim.world.process import Process
from strandline_sim.world.world import World

# The first query waits for the session; spark-submit starts a second JVM.
pytestmark = pytest.mark.timeout(600)

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


def test_an_empty_directory_ends_a_run_with_one_line(analytics: Callable[..., Result], tmp_path: Path) -> None:
    """The message says what is missing there, and how an export is made."""
    reported = analytics("run", "--input", tmp_path, "--out", tmp_path / "out")

    assert reported.exit_code == 1
    (line,) = reported.output.splitlines()
    assert line.startswith(f"strandline: nothing is exported in {tmp_path}")
    assert "strandline up --export" in line
