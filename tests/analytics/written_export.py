"""Writes rows like an exporter: files of one emitter, dataset and hour, each with its manifest."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from strandline.export import layout
from strandline.export.encoding import ExportFormat, encoded, suffix_of
from strandline.export.layout import Manifest, SeqRange
from strandline.export.schema import SCHEMA_VERSION, dataset_of

Row = dict[str, Any]
HOUR_US = 3_600_000_000


def write_export(root: Path, rows: Iterable[Row], kind: ExportFormat = ExportFormat.PARQUET) -> list[Path]:
    """Place files of rows that have every column of the envelope; returns the paths of the data files."""
    parts: dict[tuple[str, str, int, int, int], list[Row]] = defaultdict(list)
    for row in rows:
        key = (row["cluster_id"], dataset_of(row["event_type"]), row["node_id"], row["incarnation"])
        parts[*key, row["ts_wall_us"] // HOUR_US].append(row)
    return [_place(root, cluster, dataset, hour, part, kind) for (cluster, dataset, *_, hour), part in parts.items()]


def _place(root: Path, cluster: str, dataset: str, hour: int, rows: list[Row], kind: ExportFormat) -> Path:
    numbers, times = [row["seq"] for row in rows], [row["ts_wall_us"] for row in rows]
    seqs = SeqRange(
        node_id=rows[0]["node_id"], incarnation=rows[0]["incarnation"], first_seq=min(numbers), last_seq=max(numbers)
    )
    content = encoded(kind, rows)
    manifest = Manifest(
        path=layout.data_path(dataset, hour, seqs, suffix_of(kind)), rows=len(rows), ranges=(seqs,),
        min_ts_wall_us=min(times), max_ts_wall_us=max(times), size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(), schema_version=max(row["schema_version"] for row in rows),
    )  # fmt: skip
    folder = root / layout.cluster_folder(cluster)
    for path, bytes_ in ((manifest.path, content), (layout.manifest_path(manifest.path), manifest.to_json().encode())):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(bytes_)
    return folder / manifest.path


class Emitter:
    """Numbers the events of one incarnation."""

    def __init__(self, cluster_id: str, node_id: int, incarnation: int = 1) -> None:
        self._own = {"cluster_id": cluster_id, "node_id": node_id, "incarnation": incarnation}
        self._last = 0

    def row(self, at_us: int, event_type: str, **columns: Any) -> Row:
        """The next event."""
        self._last += 1
        reported: Row = {"schema_version": SCHEMA_VERSION, "event_type": event_type, "seq": self._last}
        return reported | self._own | {"ts_wall_us": at_us, "ts_mono_us": at_us} | columns

    def of_partition(self, at_us: int, event_type: str, partition: int, **columns: Any) -> Row:
        """The next event, of a partition of topic t."""
        place = {"topic": "t", "topic_id": "T", "partition": partition, "leader_epoch": 0}
        return self.row(at_us, event_type, **(place | columns))

    def beat(self, at_us: int, *, final: bool = False) -> Row:
        """A heartbeat; a final one reports the incarnation's end."""
        more: Row = {"ext": {"final": "true"}} if final else {}
        return self.row(at_us, "EXPORT_HEARTBEAT", last_seq=self._last, **more)
