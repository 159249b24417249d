"""Invalid input files: an error with file, rule and remedy, or a notice. Spark is not needed to detect it."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from executed_plan import paths
from pyspark.sql import SparkSession

from strandline.export import layout
from strandline.export.layout import Manifest, SeqRange
from strandline.export.schema import spark_ddl
from strandline_analytics.jobs.ask import Question, scope_of
from strandline_analytics.scope import HOUR_US
from strandline_analytics.sources.catalog import ExportedFile, find_exports, input_hash
from strandline_analytics.sources.exports import read_rows
from strandline_analytics.sources.inspection import apart_and_doubled, inspect, is_cut, notices
from strandline_analytics.sources.trouble import DamagedFile, NothingThere, TooLong

NO_SPARK: Any = None
"""Directories of this machine are listed without it."""


_WHOLE = b"PAR1........PAR1"


def put(
    root: Path, first: int, last: int, *, cluster: str = "c", content: bytes = _WHOLE, suffix: str = ".parquet",
    is_proven: bool = True, schema_version: int = 1, hour: int = 5,
) -> Path:  # fmt: skip
    """Place a file of node 1 like the exporter."""
    seqs = SeqRange(node_id=1, incarnation=1, first_seq=first, last_seq=last)
    path = layout.data_path("transitions", hour, seqs, suffix)
    manifest = Manifest(
        path=path, rows=last - first + 1, ranges=(seqs,), min_ts_wall_us=hour * HOUR_US,
        max_ts_wall_us=hour * HOUR_US + 1, size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(), schema_version=schema_version,
    )  # fmt: skip
    folder = root / layout.cluster_folder(cluster)
    reported = {path: content} | ({layout.manifest_path(path): manifest.to_json().encode()} if is_proven else {})
    for name, bytes_ in reported.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes_)
    return folder / path


def found(*roots: Path, cluster_id: str | None = None) -> list[ExportedFile]:
    """The files of exports."""
    return find_exports(NO_SPARK, [str(root) for root in roots], cluster_id=cluster_id)


@pytest.mark.parametrize(("is_proven", "rule"), [(True, "its manifest says"), (False, "not a whole Parquet file")])
def test_a_truncated_file_is_refused_by_name(tmp_path: Path, is_proven: bool, rule: str) -> None:
    """A truncated file is detected by the size in its manifest, or by its first and last bytes."""
    path = put(tmp_path, 1, 9, is_proven=is_proven)
    path.write_bytes(_WHOLE[:-1])

    with pytest.raises(DamagedFile, match=rule) as reported:
        inspect(found(tmp_path))
    assert str(path) in str(reported.value)
    assert "Copy it again" in str(reported.value)


def test_a_copy_in_the_folder_of_another_hour_is_refused(tmp_path: Path) -> None:
    """With its manifest: it shows where the file belongs, and its events would be counted in two hours."""
    path = put(tmp_path, 1, 9, hour=5)
    for name in [path, *(tmp_path / "c").rglob("*.json")]:
        copy = Path(str(name).replace("hr=05", "hr=06"))
        copy.parent.mkdir(parents=True)
        shutil.copyfile(name, copy)

    with pytest.raises(DamagedFile, match="is a copy: its manifest says that it is transitions/dt=1970-01-01/hr=05"):
        inspect(found(tmp_path))


def test_a_manifest_whose_file_is_gone_is_reported(tmp_path: Path) -> None:
    """A manifest without its file is reported, because its events are missing, unless a compacted file replaces it."""
    gone, reported = put(tmp_path, 1, 9), list[str]()
    other = put(tmp_path, 10, 19)
    gone.unlink()
    find_exports(NO_SPARK, [str(tmp_path)], noticed=reported.append)
    (said,) = reported
    assert "1 manifests speak for files that are not there" in said
    assert str(gone) in said

    of_other = next(name for name in (tmp_path / "c").rglob("*.json") if other.name in name.name)
    replaced = gone.relative_to(tmp_path / "c/v1").as_posix()
    of_other.write_text(json.dumps(json.loads(of_other.read_text()) | {"replaces": [replaced]}))
    find_exports(NO_SPARK, [str(tmp_path)], noticed=reported.append)
    assert reported == [said]


def test_an_empty_directory_is_refused_with_what_to_give(tmp_path: Path) -> None:
    """The message names the directory and what it lacks."""
    with pytest.raises(NothingThere, match="CLUSTER_ID/v1/transitions"):
        found(tmp_path)


def test_a_wrong_cluster_id_is_reported_with_those_that_are_there(tmp_path: Path) -> None:
    """For an unknown cluster id the message lists the existing ones."""
    put(tmp_path, 1, 9, cluster="north")
    put(tmp_path, 1, 9, cluster="south")

    with pytest.raises(NothingThere, match="there is: north, south"):
        found(tmp_path, cluster_id="nroth")


def test_two_clusters_in_one_directory_are_distinguished(tmp_path: Path) -> None:
    """Two clusters in one directory are both read, or only the requested one."""
    put(tmp_path, 1, 9, cluster="north")
    put(tmp_path, 1, 9, cluster="south")

    assert [file.cluster_id for file in found(tmp_path)] == ["north", "south"]
    assert [file.cluster_id for file in found(tmp_path, cluster_id="south")] == ["south"]


def test_a_directory_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    """A directory that is named twice gives the same files and the same hash of the input as once."""
    put(tmp_path, 1, 9)

    assert input_hash(found(tmp_path, tmp_path)) == input_hash(found(tmp_path))
    assert len(found(tmp_path, tmp_path)) == 1


def test_a_file_that_comes_late_changes_the_hash(tmp_path: Path) -> None:
    """A file that arrives late changes the hash of the input, so that results without it are recognised."""
    put(tmp_path, 1, 9)
    before = input_hash(found(tmp_path))
    put(tmp_path, 10, 19, content=_WHOLE + b"PAR1")

    assert input_hash(found(tmp_path)) != before


def test_manifests_that_overlap_are_a_notice(tmp_path: Path) -> None:
    """Manifests that overlap are a notice that names both files; the duplicates are removed later."""
    put(tmp_path, 1, 9)
    put(tmp_path, 5, 12, content=_WHOLE + b"PAR1")

    (said,) = notices(found(tmp_path))
    assert "n1-i1-1-9.parquet" in said
    assert "n1-i1-5-12.parquet overlap" in said


def test_a_duplicated_file_is_a_notice(tmp_path: Path) -> None:
    """The same bytes under two names are a notice about a copy, not about an overlap."""
    put(tmp_path, 1, 9)
    put(tmp_path, 1, 10)

    (said,) = notices(found(tmp_path))
    assert "is there 2 times" in said


def test_a_newer_schema_is_a_notice(tmp_path: Path) -> None:
    """The new columns of a newer schema are not read, and a notice says so."""
    put(tmp_path, 1, 9, schema_version=7)

    (said,) = notices(found(tmp_path))
    assert "schema version 7" in said


def test_a_line_that_was_cut_off_is_a_notice(tmp_path: Path) -> None:
    """A file without manifest that ends within a line is a notice."""
    put(tmp_path, 1, 2, content=b'{"seq":1}\n{"se', suffix=".jsonl", is_proven=False)

    (file,) = found(tmp_path)
    assert is_cut(file)
    assert any("ends within a line" in said for said in notices([file]))


def test_a_manifest_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    """The message names the manifest, not the file."""
    path = put(tmp_path, 1, 9)
    (manifest,) = (tmp_path / "c").rglob("*.json")
    manifest.write_text("{}")

    with pytest.raises(DamagedFile, match="is not a manifest") as reported:
        found(tmp_path)
    assert f"{path.name}.json" in str(reported.value)


def test_more_windows_than_anybody_meant_are_refused_by_the_first_file(tmp_path: Path) -> None:
    """A file of 1970 beside one of 2026: a notice instead of half a million rows; without steps it is one window."""
    first = put(tmp_path, 1, 9, hour=0)
    put(tmp_path, 10, 19, hour=498_662)
    question = Question(inputs=(str(tmp_path),), statistics=(), step_us=HOUR_US)

    with pytest.raises(TooLong, match="498,662 windows of that step") as reported:
        scope_of(NO_SPARK, question, found(tmp_path))
    assert str(first) in str(reported.value)
    assert scope_of(NO_SPARK, replace(question, step_us=None), found(tmp_path)).end_us == 498_662 * HOUR_US + 2
    assert scope_of(NO_SPARK, replace(question, start_us=498_662 * HOUR_US), found(tmp_path))


# An export that has no file of a dataset, as one that was made from a Kafka cluster's metadata log has no samples.


def test_no_file_is_no_row_with_every_column(spark: SparkSession) -> None:
    """The rows of no file have the names and types of the schema, as those of a file have."""
    rows = read_rows(spark, [])

    assert rows.count() == 0
    assert rows.schema.simpleString() == spark.read.schema(spark_ddl()).json([]).schema.simpleString()


def test_no_file_is_read_without_a_worker_of_python(spark: SparkSession) -> None:
    """The plan of no rows scans nothing that this process holds: Spark would start a worker of Python for it."""
    leaves = {path[-1] for path in paths(read_rows(spark, []))}

    assert not [leaf for leaf in leaves if "Scan" in leaf], leaves


# Which files may hold an event that another file holds too.


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
