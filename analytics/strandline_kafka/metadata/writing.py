"""Writes events of a metadata log as files of an export: rows numbered by controller epoch, one file per hour of each.

The emitter is the controller; its incarnation is the controller epoch. Rows are numbered from the first imported
one, times come only from the records, and the same events become the same bytes.

Invariant: at most `ROWS_A_FILE` rows are held. An unread record that may have been an event is a gap in the numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strandline.core.state_events import ExportGap, ExportHeartbeat, StateEvent
from strandline.core.types import TopicPartition
from strandline.export import layout
from strandline.export.destination import Destination
from strandline.export.encoding import ExportFormat, encoded, suffix_of
from strandline.export.layout import KAFKA_SOURCE, Manifest, SeqRange, cluster_folder
from strandline.export.rows import Emitter, Row, Taken, to_row
from strandline.export.schema import CONTROLLER_NODE_ID, SCHEMA_VERSION, TRANSITIONS
from strandline_kafka.metadata.events import NOT_KNOWN, HistoryEvent
from strandline_kafka.metadata.log_files import FoundBatch
from strandline_kafka.metadata.passage import EVERYTHING, Window
from strandline_kafka.metadata.wire import Unreadable

ROWS_A_FILE = 20_000
HEARTBEAT_US = 10_000_000
"""The interval of the sign of life of an export's writer, as in our own emitters."""
_CLOCK = {"clock": "wall"}
"""The times of records are the controller's time of day; there is no monotonic clock behind them."""


def put_rows(
    destination: Destination, cluster_id: str, dataset: str, hour: int, rows: Sequence[Row], kind: ExportFormat
) -> None:
    """Write rows of one emitter, in the order of their numbers, as a file of an export with its manifest.

    Raises:
        OSError: the destination fails.
    """
    first, last = rows[0], rows[-1]
    seqs = SeqRange(
        node_id=first["node_id"], incarnation=first["incarnation"], first_seq=first["seq"], last_seq=last["seq"]
    )
    content = encoded(kind, rows)
    path = layout.data_path(dataset, hour, seqs, suffix_of(kind))
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
    folder = cluster_folder(cluster_id)
    destination.put(f"{folder}/{path}", content)
    destination.put(f"{folder}/{layout.manifest_path(path)}", manifest.to_json().encode())


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
        """The last number of each incarnation; a continued export begins with some."""
        self.is_silent = False
        """Whether the following events are in the export already."""
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
        """Report that the log goes on, if that is due.

        Raises:
            OSError: the destination fails.
        """
        if self._is_wanted(at_us) and at_us - self._beat_us >= HEARTBEAT_US:
            self._beat(at_us, is_final=False)

    def end(self, at_us: int | None) -> None:
        """End the reign with its last row, at the given time or that of the row before, and its file.

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
            # Rows that were written before are not seen again, but their clock goes on.
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
        hour = layout.hour_of(rows[0]["ts_wall_us"])
        put_rows(self._destination, self._cluster_id, TRANSITIONS, hour, rows, self._kind)
        self.files, self.rows = self.files + 1, self.rows + len(rows)


# ---- continuing
# The description in an export, from which a later import of the same cluster continues (A17).
#
# The sources must be those of the export: a source that covers only half of the time would give figures of half of the
# time. An export with brokers' logs is not continued: a later line changes rows that are written, such as the cause
# of a fence, and a later pair of lines changes the clock by which earlier lines were placed.
#
# Invariant: no event is written twice, and none is left out between two imports: the later log must hold the batch at
# which the earlier one ended, with equal bytes.

METADATA_LOG, BROKER_LOGS = "metadata-log", "broker-logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """An import that is continued."""

    first_offset: int
    end_offset: int
    end_crc: int
    """CRC of the batch that ends at that offset; 0 if it is not known."""
    records: int
    imports: int
    last_seqs: dict[int, int] = field(default_factory=dict)
    """The last number of each reign."""
    unknown: Counter[str] = field(default_factory=Counter)
    nodes: frozenset[int] = frozenset()
    said: Mapping[str, Any] = field(default_factory=dict)
    """The whole description in the export, in which another source finds its own end."""

    def check(self, batch: FoundBatch, *, is_first: bool) -> None:
        """Compare a batch of the later log.

        Raises:
            Unreadable: the later log begins after the end of the earlier one, or is another log.
        """
        begin, end = batch.offset, batch.header.next_offset
        if is_first and begin > self.end_offset:
            raise Unreadable(
                f"the log begins at offset {begin}, and the export ends at {self.end_offset}; what lies between is in "
                f"neither, give a copy that reaches back to {self.end_offset}"
            )
        is_within = begin < self.end_offset < end
        crcs = {self.end_crc, batch.header.crc}
        is_other = end == self.end_offset and len(crcs) > 1 and 0 not in crcs
        if is_within or is_other:
            raise Unreadable(
                f"{batch.path}: offset {self.end_offset - 1} is not what was imported before; the tail that was "
                "trusted then was taken back, or it is another log: import it into a new place"
            )


def earlier_import(
    destination: Destination, cluster_id: str, assumed: dict[str, Any], sources: Sequence[str] = ()
) -> Earlier:
    """The import whose export is stored at a place.

    Args:
        assumed: the settings assumed now.
        sources: what is read now in addition to the metadata log.

    Raises:
        Unreadable: there is no export of this cluster, or none that can be continued.
        OSError: the destination fails.
    """
    folder = cluster_folder(cluster_id)
    if f"{folder}/{KAFKA_SOURCE}" not in destination.names(folder):
        raise Unreadable(f"there is no export of the cluster {cluster_id} to go on with; leave --append out")
    try:
        said = json.loads(destination.get(f"{folder}/{KAFKA_SOURCE}"))
        _check_sources(said["levels"], [METADATA_LOG, *sources])
        if said["window_us"] is not None:
            raise Unreadable("the export is of a window (--from, --to), behind which nothing can be put")
        if said["assumed"] != assumed:
            shown = ", ".join(f"{name}={value}" for name, value in said["assumed"].items() if value is not None)
            raise Unreadable(f"the export was made with --assume {shown or 'nothing'}; give the same")
        return Earlier(
            first_offset=int(said["first_offset"]),
            end_offset=int(said["end_offset"]),
            end_crc=int(said.get("end_crc", 0)),
            records=int(said["records"]),
            imports=int(said.get("imports", 1)),
            last_seqs={int(epoch): int(seq) for epoch, seq in said["last_seqs"].items()},
            unknown=Counter({str(name): int(count) for name, count in said["unknown_records"].items()}),
            nodes=frozenset(map(int, said["nodes"])),
            said=said,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Unreadable(f"{folder}/{KAFKA_SOURCE} cannot be read, so nothing says where the export ends") from error


def _check_sources(before: Sequence[str], now: Sequence[str]) -> None:
    if BROKER_LOGS in before:
        raise Unreadable(
            "the export was made of brokers' logs too, of which a later line changes what is written already; import "
            "everything into a new place"
        )
    if list(before) != list(now):
        shown = ", ".join(map(str, before))
        raise Unreadable(f"the export was made of {shown}; give the same sources, or import into a new place")
