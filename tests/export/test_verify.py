"""An export is reported complete exactly when it is; every kind of damage and loss is found and named."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from exported_rows import CLUSTER, every_type, export, gap, heartbeat, row

from strandline.export.compact import Unsound, compact
from strandline.export.destination import LocalDirectory
from strandline.export.encoding import ExportFormat
from strandline.export.verify import Completeness, Verified, verify


def _verify(root: Path) -> Verified:
    return verify(LocalDirectory(root), CLUSTER)


def _files(root: Path) -> list[Path]:
    return sorted(p for p in (root / CLUSTER / "v1").rglob("*.parquet") if "_manifest" not in p.parts)


def test_a_whole_export_is_complete(tmp_path: Path) -> None:
    """Two nodes, both datasets, many files: nothing is missing."""
    for node_id in (-1, 2):
        export(tmp_path, every_type(50, node_id=node_id))
    found = _verify(tmp_path)

    assert found.is_sound
    assert [(i.node_id, i.rows, i.completeness, i.coverage) for i in found.incarnations] == [
        (-1, 50, Completeness.COMPLETE, 1.0),
        (2, 50, Completeness.COMPLETE, 1.0),
    ]


def test_without_an_end_an_incarnation_is_open(tmp_path: Path) -> None:
    """The export of a killed node is reported neither complete nor wrong."""
    export(tmp_path, every_type(50)[:-1])
    (found,) = _verify(tmp_path).incarnations

    assert found.completeness is Completeness.OPEN


@pytest.mark.parametrize("first_us", [-5, 0, 7])
def test_the_times_of_an_incarnation_are_its_first_and_last_rows(tmp_path: Path, first_us: int) -> None:
    """An incarnation's times are those of its first and last rows, also where its clock began at 0, or before."""
    export(tmp_path, [row("EPOCH_START", seq) | {"ts_wall_us": first_us + 10 * (seq - 1)} for seq in (1, 2, 3)])
    (found,) = _verify(tmp_path).incarnations

    assert (found.first_us, found.last_us) == (first_us, first_us + 20)


@pytest.mark.parametrize("kind", list(ExportFormat))
def test_missing_numbers_that_nobody_reported_make_it_incomplete(tmp_path: Path, kind: ExportFormat) -> None:
    """An export with unreported missing numbers is incomplete, and the ranges are named."""
    rows = [r for r in every_type(50) if r["seq"] not in (7, 8, 30)]
    export(tmp_path, rows, kind=kind)
    found = _verify(tmp_path)

    assert not found.is_sound
    assert found.incarnations[0].missing == ((7, 8), (30, 30))
    assert found.incarnations[0].completeness is Completeness.INCOMPLETE
    assert found.incarnations[0].coverage == 47 / 50


def test_a_heartbeat_proves_what_stood_before_it(tmp_path: Path) -> None:
    """A heartbeat proves the numbers before it, also where the file with them is missing."""
    export(tmp_path, [row("EPOCH_START", 1), heartbeat(9)])

    assert _verify(tmp_path).incarnations[0].missing == ((2, 8),)


def test_gaps_that_were_reported_are_no_surprise(tmp_path: Path) -> None:
    """Missing numbers inside a reported gap, as many as it counts, leave the export valid."""
    rows = [r for r in every_type(50) if r["seq"] not in (7, 9)]
    export(tmp_path, [*rows, gap(51, 7, 9, {"HW_ADVANCE": 2}), heartbeat(52, final=True)])
    found = _verify(tmp_path)

    assert found.is_sound
    assert found.incarnations[0].completeness is Completeness.GAPS_REPORTED
    assert (found.incarnations[0].missing_count, found.incarnations[0].reported) == (2, 2)


def test_a_gap_explains_no_more_than_it_counts(tmp_path: Path) -> None:
    """A gap does not excuse more missing numbers than it counts."""
    rows = [r for r in every_type(50) if r["seq"] not in (7, 8, 9)]
    export(tmp_path, [*rows, gap(51, 7, 9, {"HW_ADVANCE": 2})])

    assert not _verify(tmp_path).is_sound


def test_a_gap_explains_no_number_outside_its_range(tmp_path: Path) -> None:
    """A file that was given up and came all the same leaves a gap that explains nothing, and nothing else missing."""
    rows = [r for r in every_type(50) if r["seq"] not in (20, 21)]
    export(tmp_path, [*rows, gap(51, 7, 9, {"HW_ADVANCE": 3}), heartbeat(52, final=True)])
    found = _verify(tmp_path)

    assert (found.incarnations[0].missing_count, found.incarnations[0].reported) == (2, 0)
    assert not found.is_sound


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    """A flipped bit is found, because the manifest's hash covers every byte."""
    export(tmp_path, every_type(20))
    victim = _files(tmp_path)[0]
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    found = _verify(tmp_path)

    assert not found.is_sound
    assert "sha256" in found.wrong[0]


def test_a_deleted_file_is_found(tmp_path: Path) -> None:
    """A deleted file is found, because its manifest lists what was in it."""
    export(tmp_path, every_type(20))
    _files(tmp_path)[0].unlink()

    assert "is missing" in _verify(tmp_path).wrong[0]


def test_a_file_without_manifest_is_reported_and_believed(tmp_path: Path) -> None:
    """The file is whole; only its manifest is missing."""
    export(tmp_path, every_type(20))
    for manifest in (tmp_path / CLUSTER / "v1" / "_manifest").rglob("*.json"):
        manifest.unlink()
    found = _verify(tmp_path)

    assert found.is_sound
    assert len(found.unproven) == found.files


def test_equal_doubles_count_once_and_different_ones_are_an_error(tmp_path: Path) -> None:
    """Equal duplicates count once, and different ones under one identity are an error."""
    rows = every_type(20)
    export(tmp_path, rows)
    export(tmp_path, rows[:3], per_file=3)
    found = _verify(tmp_path)
    assert (found.is_sound, found.rows, found.doubles) == (True, 20, 3)

    export(tmp_path, [rows[0] | {"ts_mono_us": 77}], per_file=1)
    assert "two different rows" in _verify(tmp_path).wrong[0]


def _manifest_of(path: Path) -> Path:
    root = next(parent for parent in path.parents if parent.name == "v1")
    return root / "_manifest" / f"{path.relative_to(root)}.json"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("path", "transitions/elsewhere.parquet", "transitions/elsewhere.parquet by the manifest"),
        ("ranges", [{"node_id": 1, "incarnation": 2, "first_seq": 1, "last_seq": 900}], "ranges is n1-i2 1 to "),
        ("ranges", [{"node_id": 3, "incarnation": 2, "first_seq": 1, "last_seq": 19}], "ranges is n1-i2 1 to "),
        ("ranges", [], "none by the manifest"),
        ("min_ts_wall_us", 5, "min_ts_wall_us is "),
        ("max_ts_wall_us", 5, "max_ts_wall_us is "),
        ("rows", 5, "5 by the manifest"),
        ("size_bytes", 5, "5 by the manifest"),
    ],
)
def test_a_manifest_that_does_not_describe_its_file_is_found(
    tmp_path: Path, field: str, value: object, said: str
) -> None:
    """Every field about the rows is compared with them, though the hash is right."""
    export(tmp_path, every_type(20))
    manifest = _manifest_of(_files(tmp_path)[0])
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {field: value}))
    (wrong,) = _verify(tmp_path).wrong

    assert said in wrong


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "{", "[]", '{"ranges": 7}', "\xff", '{"ranges": [{"node_id": "x"}]}'],
    ids=["deep", "cut", "list", "ranges", "no UTF-8", "words"],
)
@pytest.mark.parametrize("orphan", [False, True])
def test_a_manifest_that_cannot_be_read_is_a_finding(tmp_path: Path, text: str, orphan: bool) -> None:
    """A damaged manifest is reported beside its file, and where its file is gone."""
    export(tmp_path, every_type(20))
    file = _files(tmp_path)[0]
    _manifest_of(file).write_bytes(text.encode("latin-1"))
    if orphan:
        file.unlink()
    found = _verify(tmp_path)

    assert not found.is_sound
    assert ("is missing" if orphan else "its manifest cannot be read") in found.wrong[0]


@pytest.mark.parametrize("field", ["rows", "size_bytes", "sha256", "replaces", "ranges", "path"])
def test_a_manifest_of_other_kinds_is_a_finding(tmp_path: Path, field: str) -> None:
    """A number where a string belongs, or the reverse, is named."""
    export(tmp_path, every_type(20))
    manifest = _manifest_of(_files(tmp_path)[0])
    content = json.loads(manifest.read_text())
    others = {"replaces": [7], "ranges": [{**content["ranges"][0], "last_seq": "x"}]}
    content[field] = others.get(field, [])
    manifest.write_text(json.dumps(content))

    assert "manifest cannot be read: not a manifest: " in _verify(tmp_path).wrong[0]


GARBAGE = {"no parquet": b"PAR1" + bytes(200) + b"PAR1", "nothing": b"", "words": b"not a parquet file"}
LINES = {
    "deep": b"[" * 100_000 + b"\n{}\n",
    "no number": b'{"node_id": "x"}\n',
    "no event": b"{}\n",
    "a gap of words": None,
}


@pytest.mark.parametrize("name", [*GARBAGE, *LINES])
def test_a_file_that_is_none_is_a_finding_and_is_not_compacted(tmp_path: Path, name: str) -> None:
    """Garbage with a manifest that has its hash: one sentence each, and nothing of its hour is changed."""
    kind = ExportFormat.PARQUET if name in GARBAGE else ExportFormat.JSONL
    content = GARBAGE.get(name, LINES.get(name))
    if content is None:
        content = (json.dumps(gap(51, 7, 9, {}) | {"dropped_first_seq": "x"}) + "\n").encode()
    export(tmp_path, every_type(20), kind=kind)
    file = min((tmp_path / CLUSTER / "v1" / "transitions").rglob("n*"))
    file.write_bytes(content)
    manifest = _manifest_of(file)
    sha256 = hashlib.sha256(content).hexdigest()
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"sha256": sha256}))
    found = _verify(tmp_path)
    with pytest.raises(Unsound, match="cannot be read"):
        compact(LocalDirectory(tmp_path), CLUSTER, before_hour=1_000_000)

    assert not found.is_sound
    assert str(file.relative_to(tmp_path / CLUSTER / "v1")) in found.wrong[0]


def test_a_gap_of_any_width_is_counted(tmp_path: Path) -> None:
    """A damaged row that claims 10^18 numbers costs no more than one that claims ten."""
    export(tmp_path, [*every_type(20), gap(21, 1, 10**18, {"HW_ADVANCE": 2})])

    assert not _verify(tmp_path).is_sound
