"""`strandline export` and `strandline analytics`: what is reported before Spark, and statistics as tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.core.state_events import ConfigChange
from strandline.export.destination import LocalDirectory
from strandline.export.encoding import ExportFormat
from strandline.export.files import FileExport
from strandline.export.sink import EventSink
from strandline_analytics.commands.answers import show_answers
from strandline_analytics.commands.options import Shown
from strandline_analytics.stats import ALL


def _run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["export", *map(str, words)])
    return result.exit_code, result.output


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """An export of two hours of one node, long ago."""
    now_ms = [3_600_000 - 1]
    outlet = FileExport(LocalDirectory(tmp_path / "out"), ExportFormat.JSONL)
    common = {"node_id": 4, "cluster_id": "c", "incarnation": 2}
    sink = EventSink(None, common, outlets=[outlet], wall_ms=lambda: now_ms[0])
    for number in range(4):
        now_ms[0] += number % 2
        sink.take(None, ConfigChange(lag_time_max_ms=number))
    sink.close()
    return tmp_path / "out"


def test_a_complete_export_is_called_so(exported: Path) -> None:
    """A complete export ends with exit code 0 and one line for each incarnation."""
    code, output = _run("verify", exported, "-o", "json")
    (row,) = json.loads(output)

    assert code == 0
    assert (row["node"], row["incarnation"], row["rows"], row["coverage"]) == (4, 2, 5, "1.0000")
    assert (row["verdict"], row["missing"]) == ("complete", [])


def test_what_is_missing_is_said(exported: Path) -> None:
    """Missing events end with exit code 1 and their numbers."""
    next(p for p in exported.rglob("*.jsonl")).unlink()
    code, output = _run("verify", exported)

    assert code == 1
    assert "the file of this manifest is missing" in output
    assert "node 4 incarnation 2 lacks seq" in output


def test_compaction_leaves_one_file_for_each_hour(exported: Path) -> None:
    """Compaction leaves one file for each hour, and the export stays complete."""
    code, output = _run("compact", exported, "-o", "json")

    assert (code, [one["now"] for one in json.loads(output)]) == (0, [1] * len(json.loads(output)))
    assert _run("verify", exported)[0] == 0


@pytest.mark.parametrize("command", ["verify", "compact"])
def test_where_nothing_is_exported_the_question_was_wrong(tmp_path: Path, command: str) -> None:
    """An empty directory is not a complete export."""
    code, output = _run(command, tmp_path)

    assert (code, "nothing is exported" in output) == (2, True)


AT = "2026-11-21T10:00:00Z"
COMMANDS = [
    ["report"],
    ["timeline"],
    ["coverage"],
    ["stats", "s08"],
    ["explain", "-t", "t", "-p", "0"],
    ["explain", "-t", "t", "-p", "0", "--stall"],
    ["explain", "-t", "t", "-p", "0", "--at", AT],
    ["explain", "-t", "t", "-p", "0", "--lso", "--at", AT],
    ["explain", "--group", "g", "--at", AT],
    ["run", "--out", "results"],
    ["stream", "--out", "live", "--checkpoint", "checkpoint"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:1] + words[5:]))
def test_an_input_that_is_not_there_ends_a_command_before_spark_starts(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A usage error that names the directory, and no session was opened."""
    pytest.importorskip("pyspark")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("strandline_analytics.session.open_session", _never)
    ended = CliRunner().invoke(app, ["analytics", *words, "--input", "absent"])

    assert (ended.exit_code, type(ended.exception)) == (2, SystemExit)
    assert "absent is not a directory" in ended.output


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["--input", "absent"], "absent is not a directory"),
        (["--input", ".", "--step", "often"], "'often' is not a duration"),
        (["--input", ".", "--delay", "5ms"], "5ms is too short; give 1s or more"),
        (["--input", ".", "--trigger", "0s"], "0s is too short; give 1s or more"),
        (["--input", ".", "--format", "iceberg"], "--format iceberg: live rows become final one by one"),
        (["--input", ".", "--format", "delta"], "run `strandline analytics run --format delta` every hour"),
    ],
)
def test_a_wrong_option_is_refused_at_once(
    arguments: list[str], reported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong option ends with exit code 2 and a line that names it, without Spark."""
    monkeypatch.setattr("strandline_analytics.commands.stream.spark_session", _never)
    command = ["analytics", "stream", *arguments, "--out", str(tmp_path / "o"), "--checkpoint", str(tmp_path / "c")]
    found = CliRunner().invoke(app, command, env={"COLUMNS": "400", "TERM": "dumb"})

    assert found.exit_code == 2
    assert reported in found.output


def _never(*_: object, **__: object) -> None:
    raise AssertionError("Spark was started")


_CLUSTER = "5e8a0f52-0000-4000-8000-000000000000"

_TERMINAL = 200
"""Columns of a wide terminal."""


def _row(stat: str, partition: int, *, start_us: int = 0) -> dict[str, Any]:
    values = {value.name: 7 for value in ALL[stat].values}
    row = {"stat": stat, "cluster_id": _CLUSTER, "topic_id": "T", "topic": "t", "partition": partition}
    flaws = {"n_zombie": 0, "n_duplicate": 0, "n_gap": 0, "clock_regressions": 0}
    return row | {"window_start": start_us, "window_end": 60_000_000} | values | {"coverage": 1.0} | flaws


def _shown(rows: list[dict[str, Any]], form: Shown, capsys: pytest.CaptureFixture[str]) -> list[str]:
    show_answers([(ALL[rows[0]["stat"]], rows)], form)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_what_all_rows_share_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Cluster and window stand in the title, and in no row; the widest statistic fits a terminal."""
    lines = _shown([_row("s07", 0), _row("s07", 1)], Shown.TABLE, capsys)

    assert lines[0].endswith(f"({_CLUSTER}, 1970-01-01T00:00:00Z to 1970-01-01T00:01:00Z)")
    assert not any(_CLUSTER in line for line in lines[1:])
    assert max(len(line) for line in lines[1:]) <= _TERMINAL
    assert sum(line.startswith("t ") for line in lines) == 2


def test_rows_of_several_windows_have_theirs(capsys: pytest.CaptureFixture[str]) -> None:
    """With two windows, each row has its own, and the title none."""
    lines = _shown([_row("s08", 0), _row("s08", 0, start_us=30_000_000)], Shown.TABLE, capsys)

    assert lines[0] == f"s08 {ALL['s08'].name}: {ALL['s08'].title}"
    assert sum("1970-01-01T00:00:30Z" in line for line in lines) == 1


def test_a_long_name_is_broken_behind_an_underscore(capsys: pytest.CaptureFixture[str]) -> None:
    """A name is never cut within a word, so that --where can take it as it stands."""
    words = {word for line in _shown([_row("s07", 0)], Shown.TABLE, capsys) for word in line.split()}

    assert {"committed_", "lost_records"} <= words
