"""Writes rows of a collection as export files: one per emitter, dataset and hour of a batch, with its manifest.

Invariant: a batch that is written again, because its destination failed midway, becomes the same files.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from strandline.core.state_events import ExportGap, ExportHeartbeat, StateEvent
from strandline.core.types import NodeId, TopicPartition
from strandline.export import layout
from strandline.export.destination import Destination
from strandline.export.encoding import ExportFormat
from strandline.export.layout import KAFKA_SOURCE
from strandline.export.rows import Emitter, Row, Taken, to_row
from strandline.export.schema import CONTROLLER_NODE_ID, dataset_of
from strandline_kafka.collector.looks import NOT_GIVEN, Sample
from strandline_kafka.collector.states import Reported
from strandline_kafka.metadata.importing import Assumed, Import, cluster_of
from strandline_kafka.metadata.log_files import Copy, open_copy
from strandline_kafka.metadata.passage import Window
from strandline_kafka.metadata.wire import Unreadable
from strandline_kafka.metadata.writing import Earlier, put_rows

# ---- decisions
# Writes the decisions in a metadata log during a collection into its export, in addition to the looks (A23).
#
# A client cannot read the log: it is read from folders of one or several controllers, and grows meanwhile. What the
# quorum calls committed, by a broker's answer, is proved.
#
# Invariant: events begin with the state at the collection's beginning, and none is written twice. If a log has
# nothing of that time, the export has only what the looks have seen.


class Decisions:
    """Follows the logs of one cluster; every call may wait for the disk."""

    def __init__(
        self, directories: Sequence[Path], cluster_id: str, destination: Destination, began_us: int, min_isr: int | None
    ) -> None:
        self._directories = directories
        self._cluster_id = cluster_id
        self._destination = destination
        self._window = Window(start_us=began_us)
        self._assumed = Assumed(min_isr=min_isr)
        self._earlier: Earlier | None = None
        self.rows = 0
        self.files = 0
        self.source: dict[str, object] | None = None
        """The description of what was imported so far; None if nothing of this time was."""

    def take(self, committed_below: int) -> None:
        """Write the decisions since the last call.

        Args:
            committed_below: the quorum's high watermark; 0 if it is not known.

        Raises:
            Unreadable: a log cannot be read, or is not the same as before.
            OSError: a log or the destination fails.
        """
        work = Import(
            copies_of(self._directories, self._cluster_id),
            self._cluster_id,
            assumed=self._assumed,
            window=self._window,
            earlier=self._earlier,
            committed_below=committed_below,
        )
        proof = work.result.proof
        if self._earlier is not None and proof.proved_end <= self._earlier.end_offset:
            return
        if proof.proved_ms * 1_000 < self._window.start_us:
            return
        done = work.write_events(self._destination)
        self.rows, self.files = self.rows + done.rows, self.files + done.files
        self.source = work.source()
        self._earlier = work.as_earlier()


def copies_of(directories: Sequence[Path], cluster_id: str) -> list[Copy]:
    """The logs in these directories.

    Raises:
        Unreadable: a directory has no log, or one of another cluster.
    """
    copies = [open_copy(directory) for directory in directories]
    found = cluster_of(copies, cluster_id)
    if found != cluster_id:
        raise Unreadable(f"the log is of the cluster {found}, and the brokers of {cluster_id}")
    return copies


class Files:
    """Writes batches; every call may wait for the destination."""

    def __init__(self, destination: Destination, cluster_id: str, kind: ExportFormat = ExportFormat.PARQUET) -> None:
        self._destination = destination
        self._cluster_id = cluster_id
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
            put_rows(self._destination, self._cluster_id, dataset, hour, some, self._kind)
            self.files, self.rows = self.files + 1, self.rows + len(some)

    def describe(self, source: Mapping[str, object]) -> None:
        """Write the description of the export's source, which replaces the previous one.

        Raises:
            OSError: the destination fails.
        """
        path = f"{layout.cluster_folder(self._cluster_id)}/{KAFKA_SOURCE}"
        self._destination.put(path, (json.dumps(source, indent=2) + "\n").encode())


# ---- rows
# Numbers the events of a collection: one sequence for each leader, and one for the cluster's state.
#
# The emitter of a sample is its leader, that of a state the controller; the incarnation of all of them is the
# moment at which the collection began, in milliseconds since 1970, because Kafka gives a client neither an incarnation
# of a broker nor a controller epoch.
#
# Invariant: the numbers of an emitter have no gaps, except for rows known to be missing, which a gap row names.

HEARTBEAT_US = 10_000_000
"""The interval of the sign of life of an export's writer, as in our own emitters."""
_CLOCK = {"clock": "wall"}
_NEVER = ("in_maximal_isr",)
"""Columns that Kafka cannot fill, and whose type has no value for that."""
_IF_GIVEN = ("hw", "log_start", "acked_offset", "partition_epoch", "min_isr")


class _Line:
    """The sequence of one emitter."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.seq = 0
        self.missed = 0


class Rows:
    """Numbers events; moments are the collector's time of day and its monotonic clock, us.

    ``has_states``: whether states of partitions, which have their own emitter, are reported too.
    """

    def __init__(self, cluster_id: str, began_ms: int, *, has_states: bool = True) -> None:
        self._cluster_id, self._began_ms = cluster_id, began_ms
        self._lines: dict[int, _Line] = {}
        if has_states:
            self._line(CONTROLLER_NODE_ID)

    def of_look(self, samples: Iterable[Sample], topics: dict[str, str], at: tuple[int, int]) -> Iterator[Row]:
        """The rows of a look; rows that a leader missed before come first, as a gap."""
        for sample in samples:
            line = self._line(sample.leader)
            yield from self._gap(line, at)
            yield self._row(line, sample.event, sample.tp, topics.get(sample.tp.topic_id), sample.ext, at)

    def of_state(self, reported: Iterable[Reported], at: tuple[int, int]) -> Iterator[Row]:
        """The rows of states of partitions."""
        for each in reported:
            line = self._line(CONTROLLER_NODE_ID)
            yield from self._gap(line, at)
            yield self._row(line, each.event, each.tp, each.topic, {}, at)

    def miss(self, missed: Mapping[NodeId, int]) -> None:
        """Note missing rows of leaders; the next row of such a leader comes after a gap."""
        for leader, count in missed.items():
            self._line(leader).missed += count

    def miss_state(self) -> None:
        """Note that a look did not show the cluster's state."""
        self._line(CONTROLLER_NODE_ID).missed += 1

    def beat(self, at: tuple[int, int], *, is_final: bool = False) -> Iterator[Row]:
        """Report that every emitter is alive, or that nothing follows; gaps of missed rows come first."""
        for line in self._lines.values():
            yield from self._gap(line, at)
            said = ExportHeartbeat(line.seq, "true" if is_final else None)
            yield self._row(line, said, None, None, {}, at)

    def _gap(self, line: _Line, at: tuple[int, int]) -> Iterator[Row]:
        if line.missed:
            name = "STATE_SNAPSHOT" if line.emitter.node_id == CONTROLLER_NODE_ID else "REPLICA_SAMPLE"
            first, count, line.missed = line.seq + 1, line.missed, 0
            line.seq += count
            yield self._row(line, ExportGap(first, line.seq, {name: count}), None, None, {}, at)

    def _line(self, node_id: int) -> _Line:
        if node_id not in self._lines:
            emitter = Emitter(cluster_id=self._cluster_id, node_id=node_id, incarnation=self._began_ms)
            self._lines[node_id] = _Line(emitter)
        return self._lines[node_id]

    def _row(
        self,
        line: _Line,
        event: StateEvent,
        tp: TopicPartition | None,
        topic: str | None,
        ext: dict[str, str],
        at: tuple[int, int],
    ) -> Row:
        line.seq += 1
        row = to_row(Taken(*at, event, tp), line.seq, line.emitter, lambda _: topic)
        for name in _NEVER:
            row.pop(name, None)
        for name in _IF_GIVEN:
            if row.get(name) == NOT_GIVEN:
                del row[name]
        row["ext"] = {**_CLOCK, **ext, **row.get("ext", {})}
        return row
