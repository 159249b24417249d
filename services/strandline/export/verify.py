"""Checks that an export is complete: hashes match the manifests, numbers have no gaps, every loss is reported.

An incarnation is *complete* when its numbers run from 1 to its end and a final heartbeat reported the end; *open* when
nothing reported its end (the emitter still runs, or was killed); *gaps reported* when the missing numbers lie in
EXPORT_GAP ranges and are as many as these count; *incomplete* otherwise.

Coverage is the share of the numbers up to the last known one for which there are rows.

Invariant: a file that cannot be read is a finding, never an exception; a row that occurs twice counts once.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from strandline.export import layout
from strandline.export.compact import ranges_of
from strandline.export.destination import Destination
from strandline.export.layout import Manifest, SeqRange
from strandline.export.reading import FoundFile, find_files, missing_files, read_rows
from strandline.export.rows import Row


class Completeness(StrEnum):
    """How complete the events of an incarnation are."""

    COMPLETE = "complete"
    OPEN = "open"
    GAPS_REPORTED = "gaps reported"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True, kw_only=True)
class IncarnationFound:
    """What was found of one incarnation of one emitter."""

    node_id: int
    incarnation: int
    rows: int
    last_seq: int
    missing: tuple[tuple[int, int], ...]
    """Ranges of numbers that are in no file, both ends included."""
    reported: int
    """The number of dropped events according to EXPORT_GAP rows."""
    first_us: int
    last_us: int
    is_ended: bool

    @property
    def missing_count(self) -> int:
        """The number of events that are in no file."""
        return sum(last - first + 1 for first, last in self.missing)

    @property
    def coverage(self) -> float:
        """The share of its numbers that were found, from 0 to 1."""
        return self.rows / self.last_seq if self.last_seq else 0.0

    @property
    def completeness(self) -> Completeness:
        """How complete this incarnation is."""
        if self.missing_count != self.reported:
            return Completeness.INCOMPLETE
        if self.missing:
            return Completeness.GAPS_REPORTED
        return Completeness.COMPLETE if self.is_ended else Completeness.OPEN


@dataclass(slots=True)
class Verified:
    """What was found of one cluster."""

    cluster_id: str
    files: int = 0
    rows: int = 0
    doubles: int = 0
    wrong: list[str] = field(default_factory=list)
    """Files that are missing, damaged, or not what their manifest says; rows that contradict each other."""
    unproven: list[str] = field(default_factory=list)
    """Files without a manifest."""
    incarnations: list[IncarnationFound] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong and nothing missing was left unreported."""
        return not self.wrong and all(i.completeness is not Completeness.INCOMPLETE for i in self.incarnations)


@dataclass(slots=True)
class _Emitter:
    seqs: dict[int, bytes] = field(default_factory=dict)
    reported: list[tuple[int, int, int]] = field(default_factory=list)
    last_reported: int = 0
    times_us: tuple[int, int] | None = None
    """The first and last time of day; None before the first row, because 0 is a valid time."""
    is_ended: bool = False


def verify(destination: Destination, cluster_id: str) -> Verified:
    """Read every file of a cluster and compare it with its manifest.

    Raises:
        OSError: the destination fails.
    """
    found = Verified(cluster_id)
    emitters: dict[tuple[int, int], _Emitter] = defaultdict(_Emitter)
    for gone in missing_files(destination, cluster_id):
        rows = gone.wrong_manifest or f"{gone.manifest.rows if gone.manifest else 0} rows"
        found.wrong.append(f"{gone.path}: the file of this manifest is missing ({rows})")
    for file in find_files(destination, cluster_id):
        found.files += 1
        for row in _checked_rows(destination, cluster_id, file, found):
            _count(row, emitters, found)
    found.incarnations = [_judged(key, emitter) for key, emitter in sorted(emitters.items())]
    return found


def _checked_rows(destination: Destination, cluster_id: str, file: FoundFile, found: Verified) -> list[Row]:
    content = destination.get(f"{layout.cluster_folder(cluster_id)}/{file.path}")
    manifest = file.manifest
    if file.wrong_manifest:
        found.wrong.append(f"{file.path}: its manifest cannot be read: {file.wrong_manifest}")
    elif manifest is None:
        found.unproven.append(file.path)
    elif manifest.sha256 != hashlib.sha256(content).hexdigest():
        found.wrong.append(f"{file.path}: its sha256 is not that of the manifest")
        return []
    try:
        rows = read_rows(file.path, content)
    except ValueError as error:
        found.wrong.append(f"{file.path}: {error}")
        return []
    if manifest is not None:
        found.wrong.extend(f"{file.path}: {line}" for line in _contradictions(file.path, len(content), manifest, rows))
    return rows


def _contradictions(path: str, size_bytes: int, manifest: Manifest, rows: list[Row]) -> Iterator[str]:
    """A sentence for each value of the manifest that differs from its file."""
    times = [row["ts_wall_us"] for row in rows]
    said_and_found = (
        ("path", manifest.path, path),
        ("size_bytes", manifest.size_bytes, size_bytes),
        ("rows", manifest.rows, len(rows)),
        ("ranges", _shown(manifest.ranges), _shown(ranges_of(rows))),
        ("min_ts_wall_us", manifest.min_ts_wall_us, min(times, default=manifest.min_ts_wall_us)),
        ("max_ts_wall_us", manifest.max_ts_wall_us, max(times, default=manifest.max_ts_wall_us)),
    )
    for name, said, is_so in said_and_found:
        if said != is_so:
            yield f"{name} is {is_so}, {said} by the manifest"


def _shown(ranges: Iterable[SeqRange]) -> str:
    parts = (f"n{part.node_id}-i{part.incarnation} {part.first_seq} to {part.last_seq}" for part in sorted(ranges))
    return ", ".join(parts) or "none"


def _count(row: Row, emitters: dict[tuple[int, int], _Emitter], found: Verified) -> None:
    emitter = emitters[row["node_id"], row["incarnation"]]
    digest = hashlib.blake2b(repr(sorted(row.items())).encode(), digest_size=8).digest()
    before = emitter.seqs.setdefault(row["seq"], digest)
    if before is not digest:
        found.doubles += 1
        if before != digest:
            found.wrong.append(f"two different rows are n{row['node_id']}-i{row['incarnation']} seq {row['seq']}")
        return
    found.rows += 1
    ts_us = row["ts_wall_us"]
    first_us, last_us = emitter.times_us or (ts_us, ts_us)
    emitter.times_us = min(first_us, ts_us), max(last_us, ts_us)
    if row["event_type"] == "EXPORT_GAP":
        by_type = row.get("dropped_by_type") or {}
        emitter.reported.append((row["dropped_first_seq"], row["dropped_last_seq"], sum(by_type.values())))
    elif row["event_type"] == "EXPORT_HEARTBEAT":
        emitter.last_reported = max(emitter.last_reported, row["last_seq"])
        emitter.is_ended |= (row.get("ext") or {}).get("final") == "true"


def _judged(key: tuple[int, int], emitter: _Emitter) -> IncarnationFound:
    last_seq = max(emitter.last_reported, max(emitter.seqs, default=0), *(last for _, last, _ in emitter.reported), 0)
    assert emitter.times_us is not None, "an emitter is known by its first row"
    first_us, last_us = emitter.times_us
    return IncarnationFound(
        node_id=key[0],
        incarnation=key[1],
        rows=len(emitter.seqs),
        last_seq=last_seq,
        missing=_holes(sorted(emitter.seqs), last_seq),
        reported=_reported(emitter),
        first_us=first_us,
        last_us=last_us,
        is_ended=emitter.is_ended,
    )


def _holes(seqs: list[int], last_seq: int) -> tuple[tuple[int, int], ...]:
    holes = []
    expected = 1
    for seq in [*seqs, last_seq + 1]:
        if seq > expected:
            holes.append((expected, seq - 1))
        expected = seq + 1
    return tuple(holes)


def _reported(emitter: _Emitter) -> int:
    """The number of missing numbers that gaps explain: those within their ranges, at most as many as they count.

    A file that was given up but placed all the same (its answer was lost) is reported, but not missing.
    """
    reported, seqs = 0, sorted(emitter.seqs)
    for first, last, count in emitter.reported:
        # Counted, not iterated: a damaged row may claim any range.
        there = bisect_right(seqs, last) - bisect_left(seqs, first)
        missing = max(last - first + 1 - there, 0)
        reported += min(missing, count)
    return reported
