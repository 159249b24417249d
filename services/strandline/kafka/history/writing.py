"""Events of a metadata log as files of an export: rows numbered by controller epoch, one file for an hour of one.

The emitter is the controller; its incarnation is the controller epoch. Rows are numbered from the first that is
imported, time comes from the records alone, and the same events become the same bytes.

Invariant: at most `ROWS_A_FILE` rows are held. What is not an event, and may be missed, is a gap in the numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from strandline.core.state_events import ExportGap, ExportHeartbeat, StateEvent
from strandline.core.types import TopicPartition
from strandline.export import layout
from strandline.export.destination import Destination
from strandline.export.encoding import ExportFormat, encoded, suffix_of
from strandline.export.layout import Manifest, SeqRange
from strandline.export.rows import Emitter, Row, Taken, to_row
from strandline.export.schema import CONTROLLER_NODE_ID, SCHEMA_VERSION, TRANSITIONS
from strandline.kafka.history.events import NOT_KNOWN, HistoryEvent
from strandline.kafka.history.window import EVERYTHING, Window

ROWS_A_FILE = 20_000
HEARTBEAT_US = 10_000_000
"""As often as our own emitters report that they are alive."""
_CLOCK = {"clock": "wall"}
"""The moments of a record are of the controller's time of day; there is no monotonic clock behind them."""


class EventFiles:
    """Takes events in the order of the log, and writes files whenever an hour or a reign ends."""

    def __init__(
        self,
        destination: Destination,
        cluster_id: str,
        topic_name: Callable[[str], str | None],
        kind: ExportFormat = ExportFormat.PARQUET,
        node_id: int = CONTROLLER_NODE_ID,
        window: Window = EVERYTHING,
        last_seqs: Mapping[int, int] | None = None,
    ) -> None:
        self._node_id = node_id
        self._window = window
        self._destination = destination
        self._cluster_id = cluster_id
        self._topic_name = topic_name
        self._kind = kind
        self._rows: list[Row] = []
        self._emitter: Emitter | None = None
        self._seq = 0
        self._mono_us = 0
        self._beat_us = 0
        self._begin_us = 0
        self.last_seqs: dict[int, int] = dict(last_seqs or {})
        """The last number of each incarnation; an export that is gone on with has some already."""
        self.is_silent = False
        """Whether what comes is in the export already."""
        self.files = 0
        self.rows = 0

    def begin(self, incarnation: int, at_us: int) -> None:
        """Begin an incarnation of the emitter, such as the reign of a controller, and end the one before.

        Raises:
            OSError: the destination fails.
        """
        self.end(at_us=None)
        self._emitter = Emitter(cluster_id=self._cluster_id, node_id=self._node_id, incarnation=incarnation)
        self._seq, self._mono_us, self._beat_us = self.last_seqs.get(incarnation, 0), at_us, at_us
        self._begin_us = at_us

    def add(self, at_us: int, reported: HistoryEvent) -> None:
        """Take one event.

        Raises:
            OSError: the destination fails.
        """
        if not self._is_wanted(at_us):
            return
        self._seq += 1
        self._put(at_us, reported.event, reported.tp, reported.ext, reported.topic)

    def add_gap(self, at_us: int, name: str) -> None:
        """Leave one number out, for a record that may have been an event.

        Raises:
            OSError: the destination fails.
        """
        if not self._is_wanted(at_us):
            return
        self._seq += 2
        lost = self._seq - 1
        self._put(at_us, ExportGap(lost, lost, {name: 1}), None, {}, None)

    def beat(self, at_us: int) -> None:
        """The log goes on: report it if that is due.

        Raises:
            OSError: the destination fails.
        """
        if self._is_wanted(at_us) and at_us - self._beat_us >= HEARTBEAT_US:
            self._beat(at_us, is_final=False)

    def end(self, at_us: int | None) -> None:
        """End the reign: its last word, at the time given or that of its last row, and its file.

        Raises:
            OSError: the destination fails.
        """
        if self._emitter is not None:
            last_us = min(self._mono_us if at_us is None else at_us, self._window.end_us - 1)
            if not self.is_silent and self._window.holds(last_us) and self._begin_us < self._window.end_us:
                self._beat(last_us, is_final=True)
                self.last_seqs[self._emitter.incarnation] = self._seq
            self._flush()
            self._emitter = None

    def _is_wanted(self, at_us: int) -> bool:
        if self.is_silent:
            # What was written before is not seen again, but its clock goes on.
            self._mono_us = max(self._mono_us, at_us)
        return not self.is_silent and self._window.holds(at_us)

    def _beat(self, at_us: int, *, is_final: bool) -> None:
        self._beat_us = at_us
        self._seq += 1
        self._put(at_us, ExportHeartbeat(self._seq - 1, "true" if is_final else None), None, {}, None)

    def _put(
        self, at_us: int, event: StateEvent, tp: TopicPartition | None, ext: dict[str, str], topic: str | None
    ) -> None:
        emitter = self._emitter
        assert emitter is not None, "an event belongs to a reign"
        if self._rows:
            has_other_hour = layout.hour_of(self._rows[-1]["ts_wall_us"]) != layout.hour_of(at_us)
            if has_other_hour or len(self._rows) >= ROWS_A_FILE:
                self._flush()
        self._mono_us = max(self._mono_us, at_us)
        reign = emitter.incarnation if self._node_id == CONTROLLER_NODE_ID else None
        row = to_row(Taken(at_us, self._mono_us, event, tp, reign), self._seq, emitter, self._topic_name)
        for name, not_known in NOT_KNOWN:
            if row.get(name) == not_known:
                del row[name]
        if topic is not None:
            row["topic"] = topic
        row["ext"] = {**_CLOCK, **ext, **row.get("ext", {})}
        self._rows.append(row)

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if not rows or self._emitter is None:
            return
        seqs = SeqRange(
            node_id=self._emitter.node_id,
            incarnation=self._emitter.incarnation,
            first_seq=rows[0]["seq"],
            last_seq=rows[-1]["seq"],
        )
        content = encoded(self._kind, rows)
        times = [row["ts_wall_us"] for row in rows]
        path = layout.data_path(TRANSITIONS, layout.hour_of(times[0]), seqs, suffix_of(self._kind))
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
        folder = layout.cluster_folder(self._cluster_id)
        self._destination.put(f"{folder}/{path}", content)
        self._destination.put(f"{folder}/{layout.manifest_path(path)}", manifest.to_json().encode())
        self.files, self.rows = self.files + 1, self.rows + len(rows)
