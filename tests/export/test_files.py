"""Rows become files that appear whole, with names that identify their origin."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from exported_rows import CLUSTER, HOUR_US, START_US, every_type, export, row, rows_of, run_of

from strandline.export import layout
from strandline.export.destination import LocalDirectory
from strandline.export.encoding import ExportFormat
from strandline.export.files import FileExport, FileLimits
from strandline.export.layout import Manifest, SeqRange
from strandline.export.reading import find_files, read_rows
from strandline.export.schema import COLUMNS, EVENT_TYPES, SORT_ORDER, dataset_of

FORMATS = list(ExportFormat)


class Failing(LocalDirectory):
    """A directory that rejects writes while the test says so."""

    fails = True

    def put(self, path: str, content: bytes) -> None:
        if self.fails:
            raise OSError(28, "No space left on device")
        super().put(path, content)


def _read_all(root: Path) -> dict[int, dict[str, object]]:
    return {r["seq"]: r for r in rows_of(root)}


@pytest.mark.parametrize("kind", FORMATS)
def test_every_event_type_reads_back(tmp_path: Path, kind: ExportFormat) -> None:
    """All columns of all types survive both formats, nested members and maps included."""
    rows = every_type(3 * len(EVENT_TYPES))
    export(tmp_path, rows, kind=kind)

    assert _read_all(tmp_path) == {r["seq"]: r for r in rows}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_dataset_has_its_own_files(tmp_path: Path, kind: ExportFormat) -> None:
    """A reader of transitions never opens a sample."""
    export(tmp_path, every_type(40), kind=kind)

    for file in find_files(LocalDirectory(tmp_path), CLUSTER):
        rows = read_rows(file.path, (tmp_path / CLUSTER / "v1" / file.path).read_bytes())
        assert {dataset_of(r["event_type"]) for r in rows} == {file.dataset}


def test_a_manifest_proves_its_file(tmp_path: Path) -> None:
    """Rows, range, times, size and hash match the file beside it."""
    export(tmp_path, every_type(40), per_file=40)

    for file in find_files(LocalDirectory(tmp_path), CLUSTER):
        content = (tmp_path / CLUSTER / "v1" / file.path).read_bytes()
        rows = read_rows(file.path, content)
        manifest = file.manifest
        assert (manifest.rows, manifest.size_bytes) == (len(rows), len(content))
        assert manifest.sha256 == hashlib.sha256(content).hexdigest()
        assert manifest.ranges[0].first_seq == min(r["seq"] for r in rows)
        assert manifest.ranges[0].last_seq == max(r["seq"] for r in rows)
        assert manifest.min_ts_wall_us == min(r["ts_wall_us"] for r in rows)
        assert manifest.max_ts_wall_us == max(r["ts_wall_us"] for r in rows)


def test_a_parquet_file_has_all_columns_in_order_and_is_sorted(tmp_path: Path) -> None:
    """Readers use one schema permanently; row groups prune by partition."""
    rows = [row("EPOCH_START", seq) | {"topic_id": f"t{seq % 3}", "partition": seq % 2} for seq in range(1, 31)]
    export(tmp_path, rows, per_file=30)
    (path,) = (tmp_path / CLUSTER / "v1" / "transitions").rglob("*.parquet")
    table = pq.read_table(path)
    keys = [tuple(r[name] for name in SORT_ORDER) for r in table.to_pylist()]

    assert table.column_names == [c.name for c in COLUMNS]
    assert keys == sorted(keys)
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"


def test_the_same_rows_are_the_same_bytes(tmp_path: Path) -> None:
    """A write that is repeated replaces the file with an identical one."""
    for name in ("one", "two"):
        export(tmp_path / name, every_type(60))
    one, two = (
        {p.relative_to(tmp_path / n): p.read_bytes() for p in (tmp_path / n).rglob("*.*")} for n in ("one", "two")
    )

    assert one == two


def test_a_file_ends_with_its_hour(tmp_path: Path) -> None:
    """Rows of two hours never share a file, also when the clock jumps."""
    rows = [row("EPOCH_START", seq, at_us=START_US + (seq % 2) * HOUR_US) for seq in range(1, 7)]
    export(tmp_path, rows, per_file=6)

    hours = sorted(file.path.split("/")[2] for file in find_files(LocalDirectory(tmp_path), CLUSTER))
    assert hours == ["hr=08"] * 3 + ["hr=09"] * 3


def test_a_file_ends_when_it_is_old_or_large() -> None:
    """The age counts from its first row, the size in memory."""
    outlet = FileExport(Failing(Path("nowhere")), ExportFormat.JSONL, FileLimits(roll_us=1_000, max_bytes=2_000))
    outlet.tend(0)
    outlet.write(run_of([row("EPOCH_START", 1)]))
    outlet.tend(999)
    assert outlet.stats.waiting_files == 0
    outlet.tend(1_000)
    assert outlet.stats.waiting_files == 1
    outlet.write(run_of([row("EPOCH_START", seq) for seq in range(2, 30)]))
    outlet.tend(1_001)
    assert outlet.stats.waiting_files == 2


def test_a_file_that_waits_is_placed_later(tmp_path: Path) -> None:
    """A destination that is back gets everything, and both times are logged once."""
    said: list[str] = []
    place = Failing(tmp_path)
    outlet = FileExport(place, ExportFormat.JSONL, FileLimits(roll_us=1), said.append)
    rows = every_type(20)
    for at_us in range(4):
        outlet.write(run_of(rows[5 * at_us : 5 * at_us + 5]))
        outlet.tend(10_000_000 * (at_us + 1))
    assert outlet.stats.is_failing
    place.fails = False
    outlet.tend(200_000_000)

    assert _read_all(tmp_path) == {r["seq"]: r for r in rows}
    assert [line.split(",")[0].partition(":")[0] for line in said] == [
        f"export to {tmp_path} fails",
        f"export to {tmp_path} works again",
    ]


def test_a_destination_is_tried_again_every_30_s_at_the_latest(tmp_path: Path) -> None:
    """However long it was away: the wait doubles from a second up to that."""
    tried: list[int] = []
    now_us = 0

    class Noting(Failing):
        def put(self, path: str, content: bytes) -> None:
            tried.append(now_us // 1_000_000)
            super().put(path, content)

    outlet = FileExport(Noting(tmp_path), ExportFormat.JSONL, FileLimits(roll_us=0))
    outlet.write(run_of([row("EPOCH_START", 1)]))
    for now_us in range(0, 200_000_000, 1_000_000):
        outlet.tend(now_us)

    assert [later - sooner for sooner, later in pairwise(tried)] == [1, 2, 4, 8, 16, 30, 30, 30, 30, 30]


def test_samples_are_given_up_before_transitions(tmp_path: Path) -> None:
    """The queue is bounded; the loss names the numbers and the types, and transitions stay while there are samples."""
    place = Failing(tmp_path)
    outlet = FileExport(place, ExportFormat.JSONL, FileLimits(roll_us=1, waiting_bytes=120_000))
    lost = []
    for start in range(0, 400, 20):
        outlet.write(
            run_of([row("HW_ADVANCE" if seq % 2 else "EPOCH_START", seq) for seq in range(start + 1, start + 21)])
        )
        lost += outlet.tend(start + 10)
    place.fails = False
    lost += outlet.tend(10**9)

    kept = _read_all(tmp_path)
    missing = set(range(1, 401)) - kept.keys()
    assert lost
    assert outlet.stats.waiting_bytes == 0
    assert all(set(one.by_type) == {"HW_ADVANCE"} for one in lost)
    assert sum(sum(one.by_type.values()) for one in lost) == len(missing) == outlet.stats.lost_rows
    assert all(any(one.first_seq <= seq <= one.last_seq for one in lost) for seq in missing)


# Names of exported files identify their origin and can be parsed; manifests survive a round trip.


SEQS = SeqRange(node_id=2, incarnation=7, first_seq=1, last_seq=913)


def test_a_file_lies_in_the_hour_of_its_events() -> None:
    """Dataset, day, hour, node, incarnation, first and last number."""
    hour = layout.hour_of(1_795_271_040_000_000)

    path = layout.data_path("samples", hour, SEQS, layout.PARQUET)

    assert path == "samples/dt=2026-11-21/hr=14/n2-i7-1-913.parquet"
    assert layout.manifest_path(path) == "_manifest/samples/dt=2026-11-21/hr=14/n2-i7-1-913.parquet.json"


@pytest.mark.parametrize("node_id", [-1, 0, 12])
@pytest.mark.parametrize("suffix", layout.SUFFIXES)
def test_a_name_reads_back(node_id: int, suffix: str) -> None:
    """The controller's minus sign is not taken for a separator."""
    seqs = SeqRange(node_id=node_id, incarnation=3, first_seq=10, last_seq=20)
    name = layout.data_path("transitions", 0, seqs, suffix).rpartition("/")[2]

    assert layout.parse_name(name) == seqs
    assert not layout.is_compacted(name)


@pytest.mark.parametrize("name", ["n1-i2-3-4.parquet.json", ".n1-i2-3-4.parquet", "n1-i2-3.parquet", "x.jsonl"])
def test_other_names_tell_nothing(name: str) -> None:
    """Temporary files and unknown files are not data files."""
    assert layout.parse_name(name) is None


def test_a_compacted_file_is_known_by_its_name() -> None:
    """A compacted file has no single emitter, so its name has no range."""
    name = layout.compacted_path("samples", "dt=2026-11-21/hr=14", 1, "ab" * 32, layout.PARQUET).rpartition("/")[2]

    assert layout.is_compacted(name)
    assert layout.parse_name(name) is None


def test_a_manifest_reads_back() -> None:
    """Everything written is read again, ranges and replaced names included."""
    manifest = Manifest(
        path="samples/x.parquet",
        rows=3,
        ranges=(SEQS,),
        min_ts_wall_us=1,
        max_ts_wall_us=2,
        size_bytes=9,
        sha256="00",
        schema_version=1,
        replaces=("samples/y.parquet",),
    )

    assert Manifest.from_json(manifest.to_json()) == manifest


@pytest.mark.parametrize("text", ["{}", "[]", "no", '{"ranges": [{"node": 1}]}'])
def test_what_is_no_manifest_is_refused(text: str) -> None:
    """A torn or foreign file is an error, never an empty manifest."""
    with pytest.raises(ValueError, match=r"."):
        Manifest.from_json(text)
