"""Checks files before their rows are read: sizes, ends, names and manifests.

A defect that makes an answer wrong is refused (a file that is not whole); others lead to a notice: doubles that silver
removes, files without proof, columns of a newer version that are not read.

Invariant: nothing here opens a file that has a manifest; its size shows whether it is whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise

from pyspark.sql import DataFrame, SparkSession, functions as F

from strandline.export import layout
from strandline.export.schema import SCHEMA_VERSION
from strandline_analytics.sources.catalog import ExportedFile
from strandline_analytics.sources.places import literal
from strandline_analytics.sources.trouble import DamagedFile, InputTrouble

# ---- doubles
# Finds files that may share an event with another file, so that the others are not searched for doubles.
#
# An emitter numbers its events without gaps and a file holds a number once, so two files share an event only if they
# claim numbers of one incarnation from overlapping ranges: a compaction and its sources, or a copy. JSON lines and
# files without a manifest are not trusted in this, and neither are files that overlap them.
#
# Invariant: every file is in one of the two lists; files of the first share no event with any file.

_Emitter = tuple[str, str, int, int]
_Range = tuple[int, int, int]
"""First number, last number, index of the file."""


def apart_and_doubled(files: Sequence[ExportedFile]) -> tuple[list[ExportedFile], list[ExportedFile]]:
    """Files that share no event with any other, and those that may."""
    if not all(file.ranges for file in files):
        # The numbers of some file are not known: they may be those of any process.
        return [], list(files)
    doubled = {place for place, file in enumerate(files) if not _is_proven(file)}
    of_emitter: dict[_Emitter, list[_Range]] = defaultdict(list)
    for place, file in enumerate(files):
        for seqs in file.ranges:
            emitter = (file.cluster_id, file.dataset, seqs.node_id, seqs.incarnation)
            of_emitter[emitter].append((seqs.first_seq, seqs.last_seq, place))
    for ranges in of_emitter.values():
        doubled |= _overlapping(sorted(ranges))
    return (
        [file for place, file in enumerate(files) if place not in doubled],
        [file for place, file in enumerate(files) if place in doubled],
    )


def _overlapping(ranges: Sequence[_Range]) -> set[int]:
    """The files whose ranges overlap."""
    found: set[int] = set()
    reach, of = -1, -1
    for first, last, place in ranges:
        if first <= reach:
            found |= {place, of}
        if last > reach:
            reach, of = last, place
    return found


def _is_proven(file: ExportedFile) -> bool:
    return file.manifest is not None and file.path.endswith(layout.PARQUET)


# ---- proof
# Verifies that files still match their manifests: by the hash of their bytes, which Spark's tasks compute.
#
# No other question compares hashes, because that reads every byte of every file a second time: sizes show files that
# are not whole, and only a change that keeps the size needs this.
#
# Invariant: a file without a manifest is neither verified nor refused.


def verify(spark: SparkSession, files: Sequence[ExportedFile]) -> int:
    """Compare files with the hashes in their manifests; returns the number of files compared.

    Raises:
        DamagedFile: files were changed; it names the first one, and their number.
        InputTrouble: Spark read files other than those requested, so these are not verified.
    """
    proven = {_plain(file.uri): file for file in files if file.manifest is not None}
    if not proven:
        return 0
    rows = spark.read.format("binaryFile").load([literal(file.uri) for file in proven.values()])
    hashes = {_plain(row["path"]): row["hash"] for row in _hashed(rows).collect()}
    if missed := [file for name, file in proven.items() if name not in hashes]:
        raise InputTrouble(
            f"{missed[0].shown} was not compared with its manifest, as {len(missed)} of {len(proven)} files were not: "
            "Spark gave them other names. Nothing is known to be wrong with them; give the export by its plain path"
        )
    changed = [
        file for name, file in proven.items() if file.manifest is not None and hashes[name] != file.manifest.sha256
    ]
    if changed:
        raise DamagedFile(
            f"{changed[0].shown} has other bytes than those that its manifest proves, of the same length, as "
            f"{len(changed)} of {len(proven)} files have. Rule: a file is never changed after it was written. Copy it "
            "again from its origin, or take it away with its manifest; its hour then counts as incomplete"
        )
    return len(proven)


def _hashed(rows: DataFrame) -> DataFrame:
    return rows.select("path", F.sha2("content", 256).alias("hash"))


def _plain(uri: str) -> str:
    """The URI in a form that compares: Hadoop writes that of a local file with one slash, Python with three."""
    return uri.replace("file:///", "file:/", 1)


_MAGIC = b"PAR1"
_LEAST_PARQUET_BYTES = 12
_LINE_BYTES = 4_096
"""The number of bytes read at an end of a file; few lines are longer."""
_REMEDY = "Copy it again from its origin, or take it away with its manifest; its hour then counts as incomplete"


def inspect(files: Sequence[ExportedFile]) -> None:
    """Refuse files that are not whole.

    Raises:
        DamagedFile: files are damaged; it names the first one.
    """
    for file in files:
        if file.manifest is not None and file.manifest.path != file.path:
            raise DamagedFile(
                f"{file.shown} is a copy: its manifest says that it is {file.manifest.path}. Rule: a file lies in the "
                "folder of its dataset and hour, where its events are counted. Move it there with its manifest, or "
                "take both away"
            )
        if file.manifest is not None and file.manifest.size_bytes != file.size_bytes:
            raise DamagedFile(
                f"{file.shown} has {file.size_bytes} bytes, its manifest says {file.manifest.size_bytes}. Rule: files "
                f"appear whole. {_REMEDY}"
            )
        if file.manifest is None and file.path.endswith(layout.PARQUET) and not _is_parquet(file):
            raise DamagedFile(f"{file.shown} is not a whole Parquet file: PAR1 is missing at its ends. {_REMEDY}")


def notices(files: Sequence[ExportedFile]) -> list[str]:
    """Notices about the files, in sentences."""
    return [*_unproven(files), *_newer(files), *_copies(files), *_overlaps(files), *_cut(files)]


def unread(types: Mapping[str, int]) -> list[str]:
    """Notices about types of transitions that this version does not know, with the number of events of each."""
    if not types:
        return []
    named = ", ".join(f"{name} ({count:,})" for name, count in types.items())
    return [
        f"event types are not understood: {named}. What they changed of a partition is unknown until its state is "
        "reported again; update strandline to read them"
    ]


@cache
def is_cut(file: ExportedFile) -> bool:
    """Whether a file of JSON lines ends within a line; a file with a manifest does not."""
    if file.manifest is not None or not file.path.endswith(layout.JSON_LINES) or not file.size_bytes:
        return False
    return file.place.ends(file.place_path, file.size_bytes, 1)[1] != b"\n"


def cut_line(file: ExportedFile) -> bytes:
    """The bytes after the last end of a line, in a file that `is_cut`."""
    size, count = file.size_bytes, _LINE_BYTES
    while True:
        tail = file.place.ends(file.place_path, size, count)[1]
        _, ended, rest = tail.rpartition(b"\n")
        if ended or count >= size:
            return rest
        count *= 16


def _is_parquet(file: ExportedFile) -> bool:
    if file.size_bytes < _LEAST_PARQUET_BYTES:
        return False
    return file.place.ends(file.place_path, file.size_bytes, len(_MAGIC)) == (_MAGIC, _MAGIC)


def _unproven(files: Sequence[ExportedFile]) -> list[str]:
    found = [file for file in files if file.manifest is None]
    if not found:
        return []
    return [f"{len(found)} files have no manifest, so nothing proves that they are whole; the first: {found[0].shown}"]


def _newer(files: Sequence[ExportedFile]) -> list[str]:
    found = [file for file in files if file.manifest and file.manifest.schema_version > SCHEMA_VERSION]
    if not found:
        return []
    newest = max(file.manifest.schema_version for file in found if file.manifest)
    return [
        f"{len(found)} files are of schema version {newest}, known here is {SCHEMA_VERSION}: columns and event types "
        f"that this version does not have are not read; update strandline to use them. The first: {found[0].shown}"
    ]


def _copies(files: Sequence[ExportedFile]) -> list[str]:
    by_content: dict[str, list[ExportedFile]] = defaultdict(list)
    for file in files:
        if file.manifest is not None and file.manifest.rows:
            by_content[file.manifest.sha256].append(file)
    copies = [same for same in by_content.values() if len(same) > 1]
    return [
        f"{same[0].shown} is there {len(same)} times, also as {same[1].shown}; its events count once" for same in copies
    ]


def _overlaps(files: Sequence[ExportedFile]) -> list[str]:
    """Notices about files of one emitter, dataset and hour whose numbers overlap; silver removes the doubles."""
    by_emitter: dict[tuple[str, str, str, int, int], list[tuple[int, int, ExportedFile]]] = defaultdict(list)
    for file in files:
        for part in file.ranges:
            key = (file.cluster_id, file.dataset, file.hour_path, part.node_id, part.incarnation)
            by_emitter[key].append((part.first_seq, part.last_seq, file))
    said = []
    for key, parts in by_emitter.items():
        parts.sort(key=lambda part: (part[0], part[1], part[2].path))
        for (_, last, one), (first, _, other) in pairwise(parts):
            if first <= last and one.fingerprint_of_content != other.fingerprint_of_content:
                said.append(
                    f"{one.shown} and {other.shown} overlap: both have numbers of node {key[3]} from {first} on; each "
                    "event counts once. A compaction that was cut off leaves this; repeat: strandline export compact"
                )
    return said


def _cut(files: Sequence[ExportedFile]) -> list[str]:
    return [
        f"{file.shown} ends within a line, which is passed over. Rule: a line is one JSON object. Its events count as "
        "missing until the file is exported again"
        for file in files
        if is_cut(file)
    ]
