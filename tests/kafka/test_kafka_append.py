"""`strandline analytics import kafka --append`: an export that is gone on with, event by event, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_a_files import CLUSTER, SEGMENT, rows_of
from typer.testing import CliRunner, Result

from strandline.cli.app import app
from strandline.export.destination import LocalDirectory
from strandline.export.verify import Completeness, verify

Row = dict[str, Any]


def imported(root: Path, out: Path, *more: object) -> Result:
    given = ("--metadata-log", root, "--trust-tail", "--out", out, *more)
    return CliRunner().invoke(app, ["analytics", "import", "kafka", *map(str, given)])


def cut_to(root: Path, size: int) -> bytes:
    """Leave so many bytes of a log; returns all of them."""
    path = root / "__cluster_metadata-0" / SEGMENT
    content = path.read_bytes()
    path.write_bytes(content[:size])
    return content


def grown(root: Path, content: bytes) -> None:
    (root / "__cluster_metadata-0" / SEGMENT).write_bytes(content)


def events_of(out: Path) -> list[Row]:
    """Everything but the signs of life, without numbers."""
    return [
        {name: value for name, value in row.items() if name != "seq"}
        for row in rows_of(out)
        if row["event_type"] != "EXPORT_HEARTBEAT"
    ]


def source_path(out: Path) -> Path:
    return out / CLUSTER / "v1" / "_source" / "kafka.json"


def files_of(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.fixture
def root(run_a_node: Any) -> Path:
    """The directory of one node of run A, whose log is trusted."""
    found: Path = run_a_node(1)
    return found


def test_three_parts_are_the_whole(root: Path, tmp_path: Path) -> None:
    """A log that is imported in three parts gives every event of one import, once, in one row of numbers."""
    assert imported(root, tmp_path / "whole").exit_code == 0
    content = cut_to(root, 30_000)
    assert imported(root, tmp_path / "parts").exit_code == 0
    assert 0 < len(events_of(tmp_path / "parts")) < len(events_of(tmp_path / "whole"))
    for size in (60_001, len(content)):
        grown(root, content[:size])
        assert imported(root, tmp_path / "parts", "--append").exit_code == 0
    assert events_of(tmp_path / "parts") == events_of(tmp_path / "whole")
    numbers = [(row["incarnation"], row["seq"]) for row in rows_of(tmp_path / "parts")]
    assert numbers == [(1, seq) for seq in range(1, len(numbers) + 1)]
    found = verify(LocalDirectory(tmp_path / "parts"), CLUSTER)
    assert [one.completeness for one in found.incarnations] == [Completeness.COMPLETE]
    whole, parts = (json.loads(source_path(tmp_path / name).read_text()) for name in ("whole", "parts"))
    assert (whole.pop("imports"), parts.pop("imports")) == (1, 3)
    assert whole.pop("last_seqs") != parts.pop("last_seqs")
    assert whole == parts


def test_nothing_new_changes_nothing(root: Path, tmp_path: Path) -> None:
    """An import that has nothing to add says so, and no file is another one."""
    assert imported(root, tmp_path / "out").exit_code == 0
    before = files_of(tmp_path / "out")
    ran = imported(root, tmp_path / "out", "--append")
    assert ran.exit_code == 0
    assert "the export ends at offset 1658, and nothing behind it is proved; unchanged" in ran.stdout
    assert files_of(tmp_path / "out") == before


def test_an_end_that_was_taken_back_is_refused(root: Path, tmp_path: Path) -> None:
    """A log that does not hold the batch at which the export ends is another one, and nothing is written."""
    content = cut_to(root, 30_000)
    assert imported(root, tmp_path / "out").exit_code == 0
    said = json.loads(source_path(tmp_path / "out").read_text())
    source_path(tmp_path / "out").write_text(json.dumps(said | {"end_crc": said["end_crc"] ^ 1}))
    grown(root, content)
    before = files_of(tmp_path / "out")
    ran = imported(root, tmp_path / "out", "--append")
    assert ran.exit_code == 1
    assert f"offset {said['end_offset'] - 1} is not what was imported before" in ran.stderr
    assert files_of(tmp_path / "out") == before


def test_a_log_that_begins_too_late_is_refused(root: Path, tmp_path: Path) -> None:
    """Where records lie between the end of the export and the begin of the log, they are named."""
    content = cut_to(root, 30_000)
    assert imported(root, tmp_path / "out").exit_code == 0
    end = json.loads(source_path(tmp_path / "out").read_text())["end_offset"]
    at = 0
    while int.from_bytes(content[at : at + 8]) <= end + 50:
        at += 12 + int.from_bytes(content[at + 8 : at + 12])
    begin = int.from_bytes(content[at : at + 8])
    folder = root / "__cluster_metadata-0"
    (folder / SEGMENT).unlink()
    (folder / f"{begin:020}.log").write_bytes(content[at:])
    ran = imported(root, tmp_path / "out", "--append")
    assert ran.exit_code == 1
    assert f"the log begins at offset {begin}, and the export ends at {end}" in ran.stderr


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"levels": ["metadata-log", "broker-logs"]}, "of which a later line changes what is written already"),
        ({"levels": ["metadata-log", "prometheus"]}, "was made of metadata-log, prometheus; give the same sources"),
        ({"window_us": [0, 5]}, "the export is of a window (--from, --to), behind which nothing can be put"),
        ({"assumed": {"min.insync.replicas": 2}}, "was made with --assume min.insync.replicas=2; give the same"),
        ({"end_offset": None}, "cannot be read, so nothing says where the export ends"),
    ],
)
def test_an_export_that_cannot_be_gone_on_with(root: Path, tmp_path: Path, changed: Row, said: str) -> None:
    """Another source, a window, another assumption, and an export that says nothing of itself are refused."""
    assert imported(root, tmp_path / "out").exit_code == 0
    found = json.loads(source_path(tmp_path / "out").read_text())
    source_path(tmp_path / "out").write_text(json.dumps(found | changed))
    ran = imported(root, tmp_path / "out", "--append")
    assert ran.exit_code == 1
    assert ran.stderr.startswith("strandline: --append: ") and said in ran.stderr


def test_the_export_of_another_cluster_is_refused(root: Path, tmp_path: Path) -> None:
    """An empty place, or one of another cluster, has nothing to go on with."""
    assert imported(root, tmp_path / "out").exit_code == 0
    (root / "meta.properties").write_text("node.id=1\ncluster.id=other\n")
    for out in (tmp_path / "out", tmp_path / "nothing"):
        ran = imported(root, out, "--append")
        assert ran.exit_code == 1
        assert "there is no export of the cluster other to go on with; leave --append out" in ran.stderr


@pytest.mark.parametrize("more", [("--inspect",), ("--logs", "n1=x"), ("--to", "2026-11-22T23:00:00Z")])
def test_only_a_whole_metadata_log_is_gone_on_with(root: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    """What would give figures of half of the time is a mistake of usage."""
    assert imported(root, tmp_path / "out", "--append", *more).exit_code == 2
