"""Which files may hold an event that another file holds too."""

from __future__ import annotations

from typing import Any, cast

from strandline.export.layout import Manifest, SeqRange
from strandline_analytics.sources.catalog import ExportedFile
from strandline_analytics.sources.inspection import apart_and_doubled


def _file(name: str, *ranges: tuple[int, int, int], proven: bool = True, dataset: str = "transitions") -> ExportedFile:
    """A file with ranges (node, first, last); unproven ones have theirs in their name."""
    seqs = tuple(SeqRange(node_id=n, incarnation=1, first_seq=first, last_seq=last) for n, first, last in ranges)
    path = f"{dataset}/dt=2026-11-21/hr=10/{name}"
    manifest = Manifest(
        path=path, rows=1, ranges=seqs, min_ts_wall_us=0, max_ts_wall_us=1, size_bytes=1, sha256=name, schema_version=1
    )
    return ExportedFile(
        place=cast(Any, None), cluster_id="c", folder="c/v1/", path=path, size_bytes=1,
        manifest=manifest if proven else None,
    )  # fmt: skip


def _names(files: list[ExportedFile]) -> list[str]:
    return [file.name for file in files]


def test_files_of_numbers_that_follow_each_other_share_nothing() -> None:
    """Files with consecutive numbers share no events, also of two nodes, or of one node's two data sets in turn."""
    files = [
        _file("a.parquet", (1, 1, 10)),
        _file("b.parquet", (1, 11, 20)),
        _file("c.parquet", (2, 5, 15)),
        _file("d.parquet", (1, 2, 19), dataset="samples"),
    ]

    assert apart_and_doubled(files) == (files, [])


def test_a_compaction_and_what_it_was_made_of_may_share_events() -> None:
    """Every file that overlaps another, and no third one."""
    files = [
        _file("compacted.parquet", (1, 1, 20), (2, 1, 9)),
        _file("a.parquet", (1, 1, 10)),
        _file("b.parquet", (1, 5, 12)),
        _file("later.parquet", (1, 21, 30)),
    ]

    apart, doubled = apart_and_doubled(files)

    assert _names(apart) == ["later.parquet"]
    assert _names(doubled) == ["compacted.parquet", "a.parquet", "b.parquet"]


def test_lines_are_not_believed_to_hold_a_number_once() -> None:
    """Lines may repeat a number, because their writer may be a restored copy and their manifest does not count them."""
    files = [_file("n1-i1-1-5.jsonl", (1, 1, 5)), _file("b.parquet", (1, 6, 9))]

    apart, doubled = apart_and_doubled(files)

    assert (_names(apart), _names(doubled)) == (["b.parquet"], ["n1-i1-1-5.jsonl"])


def test_where_one_file_tells_no_numbers_all_are_looked_at() -> None:
    """A file without numbers may hold events of any node, so that all files are checked."""
    files = [_file("unknown.parquet", proven=False), _file("b.parquet", (1, 6, 9))]

    assert apart_and_doubled(files) == ([], files)
