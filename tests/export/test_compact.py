"""Compaction keeps every row, removes duplicates, and can be interrupted anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from exported_rows import CLUSTER, HOUR_US, START_US, every_type, export, row, rows_of

from strandline.export.compact import Unsound, compact
from strandline.export.destination import LocalDirectory
from strandline.export.encoding import ExportFormat
from strandline.export.layout import manifest_path
from strandline.export.reading import find_files
from strandline.export.verify import verify

NEXT_HOUR = START_US // HOUR_US + 1


class CutOff(LocalDirectory):
    """A directory that fails after a given number of changes."""

    def __init__(self, root: Path, changes: int) -> None:
        super().__init__(root)
        self._left = changes

    def _change(self) -> None:
        if self._left == 0:
            raise OSError("cut off")
        self._left -= 1

    def put(self, path: str, content: bytes) -> None:
        self._change()
        super().put(path, content)

    def delete(self, path: str) -> None:
        self._change()
        super().delete(path)


def _rows(root: Path) -> list[tuple[int, int]]:
    return sorted((r["node_id"], r["seq"]) for r in rows_of(root))


def test_an_hour_becomes_one_file_for_each_dataset(tmp_path: Path) -> None:
    """The rows stay, of all nodes and of both formats, and the export stays verified."""
    export(tmp_path, every_type(60, node_id=1))
    export(tmp_path, every_type(60, node_id=2), kind=ExportFormat.JSONL)
    before = _rows(tmp_path)
    done = compact(LocalDirectory(tmp_path), CLUSTER, before_hour=NEXT_HOUR)

    assert [(one.dataset, one.files_after) for one in done] == [("samples", 1), ("transitions", 1)]
    assert _rows(tmp_path) == before
    found = verify(LocalDirectory(tmp_path), CLUSTER)
    assert (found.is_sound, found.files, found.unproven) == (True, 2, [])


def test_an_open_hour_is_left_alone(tmp_path: Path) -> None:
    """An hour whose files may still arrive is not compacted."""
    export(tmp_path, every_type(60))

    assert compact(LocalDirectory(tmp_path), CLUSTER, before_hour=NEXT_HOUR - 1) == []


def test_doubles_go(tmp_path: Path) -> None:
    """A row that occurs twice is kept once."""
    rows = every_type(20)
    export(tmp_path, rows)
    export(tmp_path, rows, per_file=7)
    compact(LocalDirectory(tmp_path), CLUSTER, before_hour=NEXT_HOUR)

    assert _rows(tmp_path) == [(1, seq) for seq in range(1, 21)]


@pytest.mark.parametrize("changes", range(12))
def test_a_compaction_that_is_cut_off_loses_nothing_and_can_be_repeated(tmp_path: Path, changes: int) -> None:
    """After any number of changes each row is still in a file that has a manifest."""
    export(tmp_path, every_type(30))
    with pytest.raises(OSError, match="cut off"):
        compact(CutOff(tmp_path, changes), CLUSTER, before_hour=NEXT_HOUR)
    assert verify(LocalDirectory(tmp_path), CLUSTER).incarnations[0].missing == ()

    compact(LocalDirectory(tmp_path), CLUSTER, before_hour=NEXT_HOUR)

    assert _rows(tmp_path) == [(1, seq) for seq in range(1, 31)]


def test_a_file_is_there_before_its_manifest_and_both_before_anything_goes(tmp_path: Path) -> None:
    """A manifest without its file, or a row in no file for a moment, would be a loss to a reader at that moment."""
    done: list[tuple[str, str]] = []

    class Noting(LocalDirectory):
        def put(self, path: str, content: bytes) -> None:
            done.append(("manifest" if path.endswith(".json") else "file", path.rpartition("/")[2]))
            super().put(path, content)

        def delete(self, path: str) -> None:
            done.append(("delete", path.rpartition("/")[2]))
            super().delete(path)

    export(tmp_path, every_type(30))
    folders = compact(Noting(tmp_path), CLUSTER, before_hour=NEXT_HOUR)
    changes = [what for what, _ in done]
    hours = "".join({"file": "f", "manifest": "m", "delete": "d"}[what] for what in changes).split("fm")

    assert len(hours) == len(folders) + 1
    assert hours[0] == ""
    assert all(set(hour) == {"d"} for hour in hours[1:])


def test_files_that_contradict_each_other_are_not_compacted(tmp_path: Path) -> None:
    """Two rows of one emitter with one number are equal, or one of them is wrong and it is not known which."""
    export(tmp_path, [row("EPOCH_START", 1)])
    export(tmp_path, [row("EPOCH_START", 1), row("LEADER_CHANGE", 2)])
    export(tmp_path, [row("LEADER_CHANGE", 1), *(row("EPOCH_START", seq) for seq in (2, 3))])

    with pytest.raises(Unsound, match="contradicts another file about n1-i2 seq"):
        compact(LocalDirectory(tmp_path), CLUSTER, before_hour=NEXT_HOUR)


@pytest.mark.parametrize(("is_damaged", "said"), [(True, "manifest says"), (False, "has no readable manifest")])
def test_a_file_that_is_damaged_or_unfinished_is_not_compacted(tmp_path: Path, is_damaged: bool, said: str) -> None:
    """Nothing of its hour is touched: a person looks at it, or its writer still writes the manifest."""
    export(tmp_path, every_type(20))
    victim = next(file for file in find_files(LocalDirectory(tmp_path), CLUSTER) if file.dataset == "transitions")
    place = LocalDirectory(tmp_path / CLUSTER / "v1")
    names = sorted((tmp_path / CLUSTER / "v1" / "transitions").rglob("*"))
    if is_damaged:
        place.put(victim.path, place.get(victim.path)[:-1])
    else:
        place.delete(manifest_path(victim.path))

    with pytest.raises(Unsound, match=said):
        compact(LocalDirectory(tmp_path), CLUSTER, before_hour=NEXT_HOUR)
    assert [name for name in names if not name.exists()] == []
