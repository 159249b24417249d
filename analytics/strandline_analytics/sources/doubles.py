"""Which files may hold an event that another one holds too, so that nobody looks for doubles in the others.

An emitter numbers its events without gaps and a file holds a number once, so two files share an event only if they say
that they hold numbers of one incarnation from overlapping ranges: a compaction and what it was made of, or a copy.
JSON lines and files that no manifest speaks for are not believed in this, and neither is what overlaps them.

Invariant: every file is in one of the two lists; files of the first share no event with any file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from strandline.export import layout
from strandline_analytics.sources.catalog import ExportedFile

_Emitter = tuple[str, str, int, int]
_Range = tuple[int, int, int]
"""First number, last number, place of the file."""


def apart_and_doubled(files: Sequence[ExportedFile]) -> tuple[list[ExportedFile], list[ExportedFile]]:
    """Files that share no event with any other, and those that may."""
    if not all(file.ranges for file in files):
        # Somebody's numbers are not known: they may be anybody's.
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
    """The files whose range begins before one ends that began earlier, and those that it overlaps."""
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
