"""Events that a killed process had not placed: by the next process, or by `strandline export recover`."""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import struct
import zlib
from pathlib import Path

import msgspec
import pytest
from exported_rows import CLUSTER, every_type, run_of
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.export import spool as spool_module
from strandline.export.destination import LocalDirectory
from strandline.export.encoding import ExportFormat
from strandline.export.files import FileExport, FileLimits, StillRuns, recover
from strandline.export.schema import EVENT_TYPES
from strandline.export.spool import FOLDER, Spool
from strandline.export.verify import verify

FORMATS = list(ExportFormat)
ROWS = every_type(3 * len(EVENT_TYPES))


def exporter(
    data: Path, out: Path, kind: ExportFormat = ExportFormat.JSONL, *, said: list[str] | None = None,
    most_bytes: int = 1 << 20,
) -> FileExport:  # fmt: skip
    """The outlet of a process on a data directory."""
    tell = said.append if said is not None else lambda _: None
    return FileExport(LocalDirectory(out), kind, FileLimits(), tell, Spool(data, most_bytes))


def killed(data: Path, out: Path, kind: ExportFormat = ExportFormat.JSONL, *, most_bytes: int = 1 << 20) -> None:
    """A process takes all rows, a handful at a time, and is gone before a file ends."""
    data.mkdir(exist_ok=True)
    outlet = exporter(data, out, kind, most_bytes=most_bytes)
    for start in range(0, len(ROWS), 7):
        outlet.write(run_of(ROWS[start : start + 7]))
        outlet.tend(start)


def placed(root: Path) -> dict[str, bytes]:
    """Every file of a destination, manifests included."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def placed_whole(root: Path, kind: ExportFormat) -> dict[str, bytes]:
    """Every file of an export that nothing ended early."""
    outlet = FileExport(LocalDirectory(root), kind)
    outlet.write(run_of(ROWS))
    outlet.close(0)
    return placed(root)


def spools(data: Path) -> list[Path]:
    return sorted((data / FOLDER).glob("*"))


@pytest.mark.parametrize("kind", FORMATS)
def test_the_next_process_places_the_file_that_was_growing(tmp_path: Path, kind: ExportFormat) -> None:
    """Byte for byte what would have been placed at the time of the kill, with manifests; and the spool is removed."""
    killed(tmp_path / "data", tmp_path / "out", kind)
    assert placed(tmp_path / "out") == {}
    whole = placed_whole(tmp_path / "whole", kind)
    exporter(tmp_path / "data", tmp_path / "out", kind).tend(0)

    assert placed(tmp_path / "out") == whole
    assert spools(tmp_path / "data") == []


def test_a_file_that_was_placed_leaves_no_spool(tmp_path: Path) -> None:
    """A clean end leaves nothing to recover."""
    outlet = exporter(tmp_path, tmp_path / "out")
    outlet.write(run_of(ROWS))
    assert len(spools(tmp_path)) == 2
    outlet.close(0)

    assert spools(tmp_path) == []


def test_a_kill_between_placing_and_forgetting_doubles_nothing(tmp_path: Path) -> None:
    """A kill between placing a file and removing its spool duplicates nothing: the same file replaces itself."""
    killed(tmp_path / "data", tmp_path / "out")
    kept = {path: path.read_bytes() for path in spools(tmp_path / "data")}
    exporter(tmp_path / "data", tmp_path / "out").tend(0)
    before = placed(tmp_path / "out")
    for path, content in kept.items():
        path.write_bytes(content)
    exporter(tmp_path / "data", tmp_path / "out").tend(0)

    assert placed(tmp_path / "out") == before
    assert verify(LocalDirectory(tmp_path / "out"), CLUSTER).doubles == 0


def test_a_spool_that_ends_within_a_part_gives_what_is_before_it(tmp_path: Path) -> None:
    """The file has fewer rows, all of them whole, and its name has the last number."""
    killed(tmp_path / "data", tmp_path / "out")
    for path in spools(tmp_path / "data"):
        path.write_bytes(path.read_bytes()[:-3])
    exporter(tmp_path / "data", tmp_path / "out").tend(0)

    found = verify(LocalDirectory(tmp_path / "out"), CLUSTER)
    assert found.wrong == []
    assert 0 < found.rows < len(ROWS)


@pytest.mark.parametrize("content", [pickle.dumps((print, os.system)), msgspec.msgpack.encode({"form": 2}), b"\xc1"])
def test_what_is_no_event_is_removed_and_said(tmp_path: Path, content: bytes) -> None:
    """A pickle, MessagePack of another shape, no MessagePack at all: nothing of it is placed or executed."""
    (tmp_path / FOLDER).mkdir()
    path = tmp_path / FOLDER / "transitions-n1-i1-1.spool"
    path.write_bytes(struct.pack(">II", len(content), zlib.crc32(content)) + content)
    said: list[str] = []
    exporter(tmp_path, tmp_path / "out", said=said).tend(0)

    assert placed(tmp_path / "out") == {}
    assert spools(tmp_path) == []
    assert said == [f"{path} is not a spool of events that can be read, and is removed"]


def test_a_disk_that_fails_ends_the_spool_and_not_the_export(tmp_path: Path) -> None:
    """A disk that fails ends the spool and not the export; here a file is in place of the folder."""
    (tmp_path / FOLDER).write_text("in the way")
    outlet = exporter(tmp_path, tmp_path / "out")
    outlet.write(run_of(ROWS))
    outlet.close(0)

    assert verify(LocalDirectory(tmp_path / "out"), CLUSTER).rows == len(ROWS)


def test_spools_are_bounded(tmp_path: Path) -> None:
    """Events beyond the bound are lost with the process, without a hole in the others."""
    killed(tmp_path / "data", tmp_path / "out", most_bytes=2_000)

    assert sum(path.stat().st_size for path in spools(tmp_path / "data")) <= 2_000
    exporter(tmp_path / "data", tmp_path / "out").tend(0)
    found = verify(LocalDirectory(tmp_path / "out"), CLUSTER)
    assert found.wrong == []
    assert 0 < found.rows < len(ROWS)


def test_what_could_not_be_placed_before_the_end_waits_for_the_next_process(tmp_path: Path) -> None:
    """A destination that is down while a process stops loses nothing."""
    (tmp_path / "data").mkdir()
    (tmp_path / "out").write_text("not a directory yet")
    outlet = exporter(tmp_path / "data", tmp_path / "out")
    outlet.write(run_of(ROWS))
    outlet.close(0)
    (tmp_path / "out").unlink()
    exporter(tmp_path / "data", tmp_path / "out").tend(0)

    assert verify(LocalDirectory(tmp_path / "out"), CLUSTER).rows == len(ROWS)


def test_after_a_failure_a_spool_takes_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is salvaged ends early rather than with a hole in the middle, though the disk works again."""
    spool = Spool(tmp_path)
    runs = [run_of(ROWS[start : start + 7]) for start in (0, 7, 14)]
    file = spool.begin("transitions", 0, runs[0].emitter, runs[0].seqs[0])
    file.add(runs[0])

    def full(path: Path, parts: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(spool, "append", full)
    file.add(runs[1])
    monkeypatch.undo()
    file.add(runs[2])
    (left,) = Spool(tmp_path).left()

    assert [seq for run in left.runs for seq in run.seqs] == list(runs[0].seqs)


def test_a_damaged_part_ends_what_is_read(tmp_path: Path) -> None:
    """A part whose bytes changed is passed over with all behind it, and is never read as other events."""
    spool = Spool(tmp_path)
    runs = [run_of(ROWS[start : start + 7]) for start in (0, 7, 14)]
    file = spool.begin("transitions", 0, runs[0].emitter, runs[0].seqs[0])
    ends = []
    for run in runs:
        file.add(run)
        ends.append(spool.size_bytes)
    (path,) = spools(tmp_path)
    content = bytearray(path.read_bytes())
    content[ends[1] - 1] ^= 1
    path.write_bytes(content)
    (left,) = Spool(tmp_path).left()

    assert [seq for run in left.runs for seq in run.seqs] == list(runs[0].seqs)


def test_a_spool_that_goes_gives_its_room_back(tmp_path: Path) -> None:
    """The bound is on what lies there now, so that a process never stops spooling for what it has placed."""
    spool = Spool(tmp_path)
    run = run_of(ROWS[:7])
    sizes = []
    for _ in range(2):
        file = spool.begin("transitions", 0, run.emitter, run.seqs[0])
        file.add(run)
        sizes.append(spool.size_bytes)
        file.forget()

    assert sizes[0] == sizes[1] > 0
    assert spool.size_bytes == 0


def test_a_file_that_is_given_up_takes_its_spool_along(tmp_path: Path) -> None:
    """Its loss is reported, so the next process must not place it after all."""
    (tmp_path / "out").write_text("not a directory")
    limits = FileLimits(roll_us=0, waiting_bytes=0)
    outlet = FileExport(LocalDirectory(tmp_path / "out"), ExportFormat.JSONL, limits, spool=Spool(tmp_path))
    outlet.write(run_of(ROWS))
    before = len(spools(tmp_path))
    lost = outlet.tend(10**15)

    assert before == len(lost) == 2
    assert spools(tmp_path) == []


def test_a_spool_of_another_form_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an older or newer release wrote is said and removed, and never read as events of this one."""
    with monkeypatch.context() as older:
        older.setattr(spool_module, "_FORMAT", 2)
        run = run_of(ROWS[:7])
        Spool(tmp_path).begin("transitions", 0, run.emitter, run.seqs[0]).add(run)

    assert list(Spool(tmp_path).left()) == spools(tmp_path)


# `strandline export recover`: what a killed process left in its spool is placed without the process.


def _recover(data: Path, out: Path) -> int:
    return recover(data, LocalDirectory(out), ExportFormat.JSONL, lambda _: None)


def test_the_files_are_those_that_the_next_process_would_place(tmp_path: Path) -> None:
    """Byte for byte, with manifests; the spool is gone, and the next process finds nothing to do."""
    killed(tmp_path / "data", tmp_path / "out")
    whole = placed_whole(tmp_path / "whole", ExportFormat.JSONL)

    assert _recover(tmp_path / "data", tmp_path / "out") == 2
    assert placed(tmp_path / "out") == whole
    assert spools(tmp_path / "data") == []
    exporter(tmp_path / "data", tmp_path / "out").tend(0)
    assert placed(tmp_path / "out") == whole


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
    assert "is not a directory" in absent.output
