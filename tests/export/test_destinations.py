"""Exports reach a directory, an S3-compatible server and any fsspec filesystem, and survive a failure of each."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from exported_rows import CLUSTER, HOUR_US, START_US, every_type, export, made, row, run_of
from object_store import CREDENTIALS, ObjectStore

from strandline.core.types import TopicPartition
from strandline.export.compact import compact
from strandline.export.destination import LocalDirectory, open_destination
from strandline.export.encoding import ExportFormat
from strandline.export.files import FileExport, FileLimits
from strandline.export.sink import EventSink
from strandline.export.verify import Completeness, verify

TP = TopicPartition("t", 0)
LONG_AFTER_US = 10**12


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A running object store, and its credentials in the environment."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with ObjectStore() as running:
        yield running


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 256 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small filesystem needs a privilege that this process has not")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_file_is_durable_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut leaves the file whole under its name, or leaves no such name."""
    done: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append("sync"), real_fsync(fd))[1])
    monkeypatch.setattr(
        Path, "replace", lambda self, to: (done.append(f"rename to {to.name}"), real_replace(self, to))[1]
    )
    LocalDirectory(tmp_path).put("folder/file", b"content")

    assert done == ["sync", "rename to file"]
    assert LocalDirectory(tmp_path).get("folder/file") == b"content"


def _hold_an_export(uri: str, kind: ExportFormat = ExportFormat.PARQUET) -> None:
    """Files, manifests, verification and compaction work there like in a directory."""
    destination = open_destination(uri)
    export(destination, every_type(60), kind=kind)
    before = verify(destination, CLUSTER)
    done = compact(destination, CLUSTER, before_hour=START_US // HOUR_US + 1, kind=kind)
    after = verify(destination, CLUSTER)

    assert (before.is_sound, before.rows, before.unproven) == (True, 60, [])
    assert [one.files_after for one in done] == [1, 1]
    assert (after.is_sound, after.rows, after.files) == (True, 60, 2)


def test_an_object_store_holds_the_same_export(store: ObjectStore) -> None:
    """Files, manifests, verification and compaction work over S3 like over a directory."""
    _hold_an_export(store.uri)


def test_a_store_that_dies_costs_samples_first_and_the_loss_is_reported(store: ObjectStore) -> None:
    """Nothing fails meanwhile; once it is back, the gap lists what is missing, and nothing else is."""
    fails, works = threading.Event(), threading.Event()
    limits = FileLimits(roll_us=1, waiting_bytes=200_000)
    outlet = FileExport(
        open_destination(store.uri),
        ExportFormat.JSONL,
        limits,
        lambda line: (works if "works again" in line else fails).set(),
    )
    sink = EventSink(None, {"node_id": 1}, outlets=[outlet], begun=False)
    store.stop()
    sink.begin(CLUSTER, 1)
    for number in range(2_000):
        sink.take(TP, made("HW_ADVANCE", new_hw=number) if number % 10 else made("LEADER_CHANGE"))
    assert fails.wait(60), outlet.stats
    store.start()
    assert works.wait(60), outlet.stats
    sink.close()
    (found,) = verify(open_destination(store.uri), CLUSTER).incarnations

    assert outlet.stats.lost_rows > 0
    assert found.completeness is Completeness.GAPS_REPORTED
    assert found.missing_count == found.reported == outlet.stats.lost_rows


def test_a_full_disk_is_waited_out(small_disk: Path) -> None:
    """Files that do not fit wait; when there is room again all are written, and no torn file was ever visible."""
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 200_000)
    outlet = FileExport(LocalDirectory(small_disk / "out"), ExportFormat.JSONL, FileLimits(roll_us=1))
    rows = every_type(100)
    for start in range(0, 100, 10):
        outlet.write(run_of(rows[start : start + 10]))
        outlet.tend((start + 1) * 100_000_000)
    partial = [path for path in (small_disk / "out").rglob("*") if path.name.startswith(".")]
    failed = outlet.stats.failures
    filler.unlink()
    outlet.tend(LONG_AFTER_US)
    found = verify(LocalDirectory(small_disk / "out"), CLUSTER)

    assert (failed > 0, partial, outlet.stats.is_failing) == (True, [], False)
    assert (found.is_sound, found.rows) == (True, 100)


def test_a_destination_that_is_a_file_is_waited_out(tmp_path: Path) -> None:
    """With any obstacle at the path the writer continues; this one works for root as well."""
    place = tmp_path / "out"
    place.write_text("in the way")
    outlet = FileExport(LocalDirectory(place), ExportFormat.JSONL, FileLimits(roll_us=1))
    outlet.write(run_of([row("EPOCH_START", 1)]))
    outlet.tend(10)
    assert outlet.stats.is_failing
    place.unlink()
    outlet.tend(LONG_AFTER_US)
    assert outlet.stats.files == 1


@pytest.mark.parametrize("name", ["nosuch://x/y", "s3://b/p?weather=fine"])
def test_a_destination_that_cannot_be_meant_is_refused(name: str) -> None:
    """An unknown scheme or option is an error at the start, not a failure later."""
    with pytest.raises(ValueError, match=r"not a destination|not options"):
        open_destination(name)


@pytest.mark.parametrize(
    "uri", ["memory://{name}/state", "fsspec+memory://{name}/state", "fsspec+file://{place}/state"]
)
@pytest.mark.parametrize("kind", list(ExportFormat))
def test_a_filesystem_of_fsspec_holds_the_same_export(tmp_path: Path, uri: str, kind: ExportFormat) -> None:
    """Files, manifests, verification and compaction; a scheme that Arrow does not support is opened by fsspec."""
    _hold_an_export(uri.format(name=tmp_path.name, place=tmp_path), kind)


@pytest.mark.parametrize("uri", ["{place}", "fsspec+file://{place}"])
def test_what_is_not_finished_is_not_listed(tmp_path: Path, uri: str) -> None:
    """A reader meets no half file: one that is being written has a name that begins with a dot."""
    destination = open_destination(uri.format(place=tmp_path))
    destination.put("folder/whole", b"content")
    (tmp_path / "folder" / ".half.new").write_bytes(b"cont")

    assert list(destination.names("folder")) == ["folder/whole"]


def test_a_file_is_moved_to_its_name_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a store does not put objects at once, a write that is cut off leaves no file of that name."""
    destination: Any = open_destination(f"fsspec+file://{tmp_path}")
    written = destination._write

    def cut_off(place: str, content: bytes) -> None:
        written(place, content[:4])
        raise RuntimeError("connection lost")

    monkeypatch.setattr(destination, "_write", cut_off)
    with pytest.raises(OSError, match="RuntimeError: connection lost"):
        destination.put("folder/file", b"content")

    assert list(destination.names("folder")) == []


def test_a_file_uri_is_a_directory(tmp_path: Path) -> None:
    """A file:// URI is a directory and needs no pyarrow."""
    destination = open_destination(f"file://{tmp_path}/out")
    destination.put("a/b", b"1")

    assert (tmp_path / "out" / "a" / "b").read_bytes() == b"1"
