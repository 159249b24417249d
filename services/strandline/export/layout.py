"""Where exported events are stored: the names of files, their folders, and what a manifest says of each.

A reader starts from one root, a directory or a URI::

    ROOT/<cluster_id>/v1/
        transitions/dt=2026-11-21/hr=14/n2-i7-1-913.parquet      rows of TRANSITIONS, the small and complete dataset
        samples/dt=2026-11-21/hr=14/n2-i7-4-911.parquet          rows of SAMPLES, the large one
        _manifest/transitions/dt=2026-11-21/hr=14/n2-i7-1-913.parquet.json       one per data file, written after it
        _manifest/samples/dt=2026-11-21/hr=14/n2-i7-4-911.parquet.json

- ``dt`` and ``hr`` are the UTC hour of ``ts_wall_us``: every row of a file is of that hour.
- ``n2-i7-1-913``: node 2 (the controller is ``n-1``), its incarnation 7, first and last ``seq`` in the file. Both
  datasets number from one sequence, so a file of one has holes that the other fills.
- The suffix is ``.parquet`` (zstd, sorted by `schema.SORT_ORDER`, all columns of `schema.COLUMNS`) or ``.jsonl``
  (one JSON object per line, absent columns left out). A folder may hold both.
- A name follows from its contents, so a repeated write replaces the same object by the same bytes. Files appear whole:
  written under a name that begins with ``.`` and renamed, or put at once where the store has no rename.
- A compacted hour replaces files by ``c-<n>-<digest>.parquet`` of the same rows, with a manifest that lists the
  ``replaces`` names. If a compacted file and one that it replaces are both there (the compaction was cut off), the
  doubles are removed as all doubles are: by (node_id, incarnation, seq). `strandline export compact` deletes the
  replaced files after the new manifest is in place.

A manifest is one JSON object (`Manifest`)::

    {"path": "transitions/dt=2026-11-21/hr=14/n2-i7-1-913.parquet", "rows": 40,
     "ranges": [{"node_id": 2, "incarnation": 7, "first_seq": 1, "last_seq": 913}],
     "min_ts_wall_us": 1795271040000000, "max_ts_wall_us": 1795271339000000,
     "size_bytes": 20411, "sha256": "…", "schema_version": 1, "replaces": []}

``path`` is relative to ``ROOT/<cluster_id>/v1``. A data file without a manifest is complete but not yet proven.

Invariant: every name that is written here is read back by `parse_name`.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime

VERSION_FOLDER = "v1"
MANIFEST_FOLDER = "_manifest"
KAFKA_SOURCE = "_source/kafka.json"
"""Of an export of Kafka's history, in the folder of its cluster: where the events came from, and by its presence that
they lack what Kafka does not record."""
PARQUET = ".parquet"
JSON_LINES = ".jsonl"
SUFFIXES = (PARQUET, JSON_LINES)

_HOUR_US = 3_600_000_000
_PLAIN = re.compile(r"n(?P<node>-?\d+)-i(?P<incarnation>\d+)-(?P<first>\d+)-(?P<last>\d+)(\.parquet|\.jsonl)")
_COMPACTED = re.compile(r"c-\d+-[0-9a-f]+(\.parquet|\.jsonl)")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SeqRange:
    """The first and the last seq of one emitter's incarnation in a file; numbers between may be in other files."""

    node_id: int
    incarnation: int
    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What is said of one data file."""

    path: str
    rows: int
    ranges: tuple[SeqRange, ...]
    min_ts_wall_us: int
    max_ts_wall_us: int
    size_bytes: int
    sha256: str
    schema_version: int
    replaces: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The manifest as the one line that its file holds."""
        return json.dumps(asdict(self), separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read a manifest.

        Raises:
            ValueError: it is not one.
        """
        try:
            found = json.loads(text)
            ranges = tuple(SeqRange(**part) for part in found.pop("ranges"))
            manifest = cls(ranges=ranges, replaces=tuple(found.pop("replaces", ())), **found)
        except RecursionError:
            raise ValueError("not a manifest: it is nested too deeply") from None
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a manifest: {error!r}") from error
        _check_kinds(manifest)
        for part in ranges:
            _check_kinds(part)
        return manifest


def _check_kinds(part: Manifest | SeqRange) -> None:
    for field in fields(part):
        value = getattr(part, field.name)
        wanted = {"int": int, "str": str}.get(str(field.type), tuple)
        if not isinstance(value, wanted):
            raise ValueError(f"not a manifest: {field.name} is {value!r:.60}, which is no {field.type}")
    if isinstance(part, Manifest) and not all(isinstance(name, str) for name in part.replaces):
        raise ValueError("not a manifest: replaces must hold names of files")


def cluster_folder(cluster_id: str) -> str:
    """The folder of a cluster below the root."""
    return f"{cluster_id}/{VERSION_FOLDER}"


def hour_of(ts_wall_us: int) -> int:
    """The hour of a time of day, counted from 1970."""
    return ts_wall_us // _HOUR_US


def hour_folder(hour: int) -> str:
    """``dt=2026-11-21/hr=14`` for an hour counted from 1970."""
    return datetime.fromtimestamp(hour * 3600, UTC).strftime("dt=%Y-%m-%d/hr=%H")


def data_path(dataset: str, hour: int, seqs: SeqRange, suffix: str) -> str:
    """Where a file of one emitter lies, relative to the cluster's folder."""
    name = f"n{seqs.node_id}-i{seqs.incarnation}-{seqs.first_seq}-{seqs.last_seq}{suffix}"
    return f"{dataset}/{hour_folder(hour)}/{name}"


def compacted_path(dataset: str, hour_path: str, number: int, digest: str, suffix: str) -> str:
    """Where a compacted file lies; ``hour_path`` is ``dt=.../hr=...``."""
    return f"{dataset}/{hour_path}/c-{number}-{digest[:12]}{suffix}"


def manifest_path(path: str) -> str:
    """Where the manifest of a data file lies, relative to the cluster's folder."""
    return f"{MANIFEST_FOLDER}/{path}.json"


def parse_name(name: str) -> SeqRange | None:
    """The range in the name of an emitter's file; None for any other name."""
    found = _PLAIN.fullmatch(name)
    if found is None:
        return None
    return SeqRange(
        node_id=int(found["node"]),
        incarnation=int(found["incarnation"]),
        first_seq=int(found["first"]),
        last_seq=int(found["last"]),
    )


def is_compacted(name: str) -> bool:
    """Whether a file's name says that it is a compacted one."""
    return _COMPACTED.fullmatch(name) is not None
