"""Rows of a collection as files of an export: one for each emitter, dataset and hour of a batch, with its manifest.

Invariant: a batch that is written again, because its destination failed in the middle, becomes the same files.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping

from strandline.export import layout
from strandline.export.destination import Destination
from strandline.export.encoding import ExportFormat, encoded, suffix_of
from strandline.export.layout import KAFKA_SOURCE, Manifest, SeqRange
from strandline.export.rows import Row
from strandline.export.schema import SCHEMA_VERSION, dataset_of


class Files:
    """Writes batches; every call may wait for the destination."""

    def __init__(self, destination: Destination, cluster_id: str, kind: ExportFormat = ExportFormat.PARQUET) -> None:
        self._destination = destination
        self._folder = layout.cluster_folder(cluster_id)
        self._kind = kind
        self.files = 0
        self.rows = 0

    def write(self, rows: Iterable[Row]) -> None:
        """Write a batch, whose rows are in the order of their numbers.

        Raises:
            OSError: the destination fails.
        """
        by_file: dict[tuple[str, int, int], list[Row]] = defaultdict(list)
        for row in rows:
            hour = layout.hour_of(row["ts_wall_us"])
            by_file[dataset_of(row["event_type"]), hour, row["node_id"]].append(row)
        for (dataset, hour, _), some in by_file.items():
            self._write(dataset, hour, some)

    def describe(self, source: Mapping[str, object]) -> None:
        """Say of the export where it came from, in place of what was said before.

        Raises:
            OSError: the destination fails.
        """
        self._destination.put(f"{self._folder}/{KAFKA_SOURCE}", (json.dumps(source, indent=2) + "\n").encode())

    def _write(self, dataset: str, hour: int, rows: list[Row]) -> None:
        seqs = SeqRange(
            node_id=rows[0]["node_id"],
            incarnation=rows[0]["incarnation"],
            first_seq=rows[0]["seq"],
            last_seq=rows[-1]["seq"],
        )
        content = encoded(self._kind, rows)
        path = layout.data_path(dataset, hour, seqs, suffix_of(self._kind))
        times = [row["ts_wall_us"] for row in rows]
        manifest = Manifest(
            path=path,
            rows=len(rows),
            ranges=(seqs,),
            min_ts_wall_us=min(times),
            max_ts_wall_us=max(times),
            size_bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            schema_version=SCHEMA_VERSION,
        )
        self._destination.put(f"{self._folder}/{path}", content)
        self._destination.put(f"{self._folder}/{layout.manifest_path(path)}", manifest.to_json().encode())
        self.files, self.rows = self.files + 1, self.rows + len(rows)
