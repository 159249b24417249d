"""`strandline export` reports whether an export is complete, by its exit code too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.core.state_events import ConfigChange
from strandline.export.destination import LocalDirectory
from strandline.export.encoding import ExportFormat
from strandline.export.files import FileExport
from strandline.export.sink import EventSink


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
