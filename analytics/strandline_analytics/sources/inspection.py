"""What is wrong with files before anybody reads their rows: sizes, ends, names and manifests.

What makes an answer wrong is refused (a file that is not whole); what only has to be known is a notice: doubles that
silver removes, files without proof, columns of a newer version that nobody reads.

Invariant: nothing here opens a file that has a manifest; its size shows whether it is whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise

from strandline.export import layout
from strandline.export.schema import SCHEMA_VERSION
from strandline_analytics.sources.catalog import ExportedFile
from strandline_analytics.sources.trouble import DamagedFile

_MAGIC = b"PAR1"
_LEAST_PARQUET_BYTES = 12
_LINE_BYTES = 4_096
"""Few lines are longer."""
_REMEDY = "Copy it again from its origin, or take it away with its manifest; its hour then counts as incomplete"


def inspect(files: Sequence[ExportedFile]) -> None:
    """Refuse files that are not whole.

    Raises:
        DamagedFile: it names the first of them.
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
            raise DamagedFile(f"{file.shown} is no whole Parquet file: it does not begin and end with PAR1. {_REMEDY}")


def notices(files: Sequence[ExportedFile]) -> list[str]:
    """What has to be known of the files, in sentences."""
    return [*_unproven(files), *_newer(files), *_copies(files), *_overlaps(files), *_cut(files)]


def unread(types: Mapping[str, int]) -> list[str]:
    """The same of types of transitions that this version does not know, with how many events of each there are."""
    if not types:
        return []
    named = ", ".join(f"{name} ({count:,})" for name, count in types.items())
    return [
        f"event types are not understood: {named}. What they changed of a partition is unknown until its state is "
        "reported again; update strandline to read them"
    ]


@cache
def is_cut(file: ExportedFile) -> bool:
    """Whether a file of JSON lines ends within a line; one with a manifest does not."""
    if file.manifest is not None or not file.path.endswith(layout.JSON_LINES) or not file.size_bytes:
        return False
    return file.place.ends(file.place_path, file.size_bytes, 1)[1] != b"\n"


def cut_line(file: ExportedFile) -> bytes:
    """What stands behind the last end of a line, in a file that `is_cut`."""
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
    """Files of one emitter, dataset and hour whose numbers overlap: reported, because silver removes the doubles."""
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
