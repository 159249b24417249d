"""`strandline export recover`: what a killed process left in its spool is placed without the process."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest
from exported_rows import run_of
from test_spool import ROWS, exporter, killed, placed, spools
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.export.destination import LocalDirectory
from strandline.export.encoding import ExportFormat
from strandline.export.files import FileExport, StillRuns, recover


def _recover(data: Path, out: Path) -> int:
    return recover(data, LocalDirectory(out), ExportFormat.JSONL, lambda _: None)


def test_the_files_are_those_that_the_next_process_would_place(tmp_path: Path) -> None:
    """Byte for byte, with manifests; the spool is gone, and the next process finds nothing to do."""
    (tmp_path / "data").mkdir()
    killed(tmp_path / "data", tmp_path / "out")
    whole = FileExport(LocalDirectory(tmp_path / "whole"), ExportFormat.JSONL)
    whole.write(run_of(ROWS))
    whole.close(0)

    assert _recover(tmp_path / "data", tmp_path / "out") == 2
    assert placed(tmp_path / "out") == placed(tmp_path / "whole")
    assert spools(tmp_path / "data") == []
    exporter(tmp_path / "data", tmp_path / "out").tend(0)
    assert placed(tmp_path / "out") == placed(tmp_path / "whole")


@pytest.mark.parametrize("name", [".lock", "lock"])
def test_a_spool_is_taken_from_no_process_that_runs(tmp_path: Path, name: str) -> None:
    """A lock that is held, of a node or of a controller, refuses; a free one does not."""
    killed(tmp_path, tmp_path / "out")
    (tmp_path / name).write_text("1")
    with (tmp_path / name).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StillRuns, match="a process runs on"):
            _recover(tmp_path, tmp_path / "out")

    assert len(spools(tmp_path)) == 2
    assert _recover(tmp_path, tmp_path / "out") == 2


def test_a_directory_without_a_lock_is_of_the_process_that_it_names(tmp_path: Path) -> None:
    """A controller on SQLite: refused while the process of endpoint.json lives, and not when none is named."""
    killed(tmp_path, tmp_path / "out")
    (tmp_path / "endpoint.json").write_text(json.dumps({"pid": os.getpid()}))
    with pytest.raises(StillRuns, match=r"the process that .*endpoint\.json names runs"):
        _recover(tmp_path, tmp_path / "out")
    (tmp_path / "endpoint.json").write_text("{}")

    assert _recover(tmp_path, tmp_path / "out") == 2


def test_what_a_destination_does_not_take_stays_in_the_spool(tmp_path: Path) -> None:
    """The command names the destination and the error, ends with 2, and works when it is repeated."""
    (tmp_path / "data").mkdir()
    killed(tmp_path / "data", tmp_path / "out")
    (tmp_path / "full").write_text("a file, and no directory")

    def run(place: Path) -> tuple[int, str]:
        words = ["export", "recover", str(tmp_path / "data"), str(place), "--format", "jsonl"]
        ended = CliRunner().invoke(app, words)
        return ended.exit_code, ended.output

    code, output = run(tmp_path / "full")
    assert code == 2
    assert "does not take the files, and they stay in the spool" in output
    assert len(spools(tmp_path / "data")) == 2
    assert "2 files exported" in run(tmp_path / "out")[1]
    assert run(tmp_path / "out") == (0, f"nothing is left in the spool of {tmp_path / 'data'}\n")


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    """A format that there is not, and a directory that is not there."""
    form = CliRunner().invoke(app, ["export", "recover", str(tmp_path), str(tmp_path), "--format", "csv"])
    absent = CliRunner().invoke(app, ["export", "recover", str(tmp_path / "absent"), str(tmp_path)])

    assert (form.exit_code, absent.exit_code) == (2, 2)
    assert "'csv' is none of: parquet, jsonl" in form.output
    assert "is no directory" in absent.output
