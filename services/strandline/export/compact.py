"""How a closed hour's many small files become one: the same rows, doubles removed, sorted again.

Invariant: at every moment each row is in at least one file that has a manifest. The new file and its manifest are in
place before the old ones are deleted; a compaction that is cut off leaves doubles, never holes, and is simply repeated.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass

from strandline.export import layout
from strandline.export.destination import Destination
from strandline.export.encoding import ExportFormat, encoded, suffix_of
from strandline.export.layout import Manifest, SeqRange
from strandline.export.reading import FoundFile, find_files, read_rows
from strandline.export.rows import Row
from strandline.export.schema import SCHEMA_VERSION

ROWS_PER_FILE = 2_000_000
"""Beyond so many rows an hour becomes several files."""


class Unsound(Exception):
    """Files that cannot be compacted because they are damaged or contradict each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """One dataset and hour that was compacted."""

    dataset: str
    hour_path: str
    files_before: int
    files_after: int
    rows: int


def compact(
    destination: Destination, cluster_id: str, *, before_hour: int, kind: ExportFormat = ExportFormat.PARQUET
) -> list[Compacted]:
    """Compact every hour before ``before_hour`` (hours since 1970) that has more than one file.

    Raises:
        Unsound: a file is damaged or without manifest; nothing of its hour was touched.
        OSError: the destination fails.
    """
    limit = layout.hour_folder(before_hour)
    hours: dict[tuple[str, str], list[FoundFile]] = defaultdict(list)
    for file in find_files(destination, cluster_id):
        if file.hour_path < limit:
            hours[file.dataset, file.hour_path].append(file)
    folder = layout.cluster_folder(cluster_id)
    return [_hour(destination, folder, key, files, kind) for key, files in sorted(hours.items()) if len(files) > 1]


def _hour(
    destination: Destination, folder: str, key: tuple[str, str], files: list[FoundFile], kind: ExportFormat
) -> Compacted:
    dataset, hour_path = key
    rows = _distinct(destination, folder, [file for file in files if not _is_left_over(file)])
    parts = [rows[i : i + ROWS_PER_FILE] for i in range(0, len(rows), ROWS_PER_FILE)]
    replaces = tuple(file.path for file in files)
    written = set()
    for number, part in enumerate(parts, start=1):
        written.add(_write(destination, folder, (dataset, hour_path, number), part, replaces, kind))
    for path in replaces:
        if path not in written:
            destination.delete(f"{folder}/{path}")
            destination.delete(f"{folder}/{layout.manifest_path(path)}")
    return Compacted(
        dataset=dataset, hour_path=hour_path, files_before=len(files), files_after=len(parts), rows=len(rows)
    )


def _is_left_over(file: FoundFile) -> bool:
    """Whether this is what a compaction wrote that was cut off before the manifest: all its rows are elsewhere."""
    return file.manifest is None and layout.is_compacted(file.path.rpartition("/")[2])


def _distinct(destination: Destination, folder: str, files: list[FoundFile]) -> list[Row]:
    rows: dict[tuple[int, int, int], Row] = {}
    for file in files:
        content = destination.get(f"{folder}/{file.path}")
        if file.manifest is None:
            raise Unsound(f"{file.path} has no readable manifest; its writer may not have finished")
        if hashlib.sha256(content).hexdigest() != file.manifest.sha256:
            raise Unsound(f"{file.path} is not what its manifest says")
        for row in _rows(file.path, content):
            key = (row["node_id"], row["incarnation"], row["seq"])
            if rows.setdefault(key, row) != row:
                raise Unsound(f"{file.path} contradicts another file about n{key[0]}-i{key[1]} seq {key[2]}")
    return [rows[key] for key in sorted(rows)]


def _rows(path: str, content: bytes) -> list[Row]:
    try:
        return read_rows(path, content)
    except ValueError as error:
        raise Unsound(f"{path} cannot be read: {error}") from error


def _write(
    destination: Destination,
    folder: str,
    place: tuple[str, str, int],
    rows: list[Row],
    replaces: tuple[str, ...],
    kind: ExportFormat,
) -> str:
    content = encoded(kind, rows)
    digest = hashlib.sha256(content).hexdigest()
    path = layout.compacted_path(*place, digest, suffix_of(kind))
    times = [row["ts_wall_us"] for row in rows]
    manifest = Manifest(
        path=path,
        rows=len(rows),
        ranges=ranges_of(rows),
        min_ts_wall_us=min(times),
        max_ts_wall_us=max(times),
        size_bytes=len(content),
        sha256=digest,
        schema_version=SCHEMA_VERSION,
        replaces=tuple(old for old in replaces if old != path),
    )
    destination.put(f"{folder}/{path}", content)
    destination.put(f"{folder}/{layout.manifest_path(path)}", manifest.to_json().encode())
    return path


def ranges_of(rows: list[Row]) -> tuple[SeqRange, ...]:
    """Of each emitter in ``rows`` the first and the last number."""
    seqs: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in rows:
        seqs[row["node_id"], row["incarnation"]].append(row["seq"])
    return tuple(
        SeqRange(node_id=node_id, incarnation=incarnation, first_seq=min(found), last_seq=max(found))
        for (node_id, incarnation), found in sorted(seqs.items())
    )
