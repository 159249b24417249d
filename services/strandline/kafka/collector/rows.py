"""Events of a collection as numbered rows: one sequence for each leader, and one for the cluster's state.

The emitter of a sample is the leader it is of, that of a state the controller; the incarnation of all of them is the
moment at which the collection began, in milliseconds since 1970, because Kafka gives a client neither an incarnation
of a broker nor a controller epoch.

Invariant: the numbers of an emitter are dense, but for those of rows that are known to be missing, which a gap names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from strandline.core.state_events import ExportGap, ExportHeartbeat, StateEvent
from strandline.core.types import NodeId, TopicPartition
from strandline.export.rows import Emitter, Row, Taken, to_row
from strandline.export.schema import CONTROLLER_NODE_ID
from strandline.kafka.collector.looks import NOT_GIVEN, Sample
from strandline.kafka.collector.states import Reported

HEARTBEAT_US = 10_000_000
"""As often as our own emitters report that they are alive."""
_CLOCK = {"clock": "wall"}
_NEVER = ("in_maximal_isr",)
"""Columns that Kafka cannot fill, whose type has no word for that."""
_IF_GIVEN = ("hw", "log_start", "acked_offset", "partition_epoch", "min_isr")


class _Line:
    """The sequence of one emitter."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.seq = 0
        self.missed = 0


class Rows:
    """Numbers events; moments are the collector's time of day and its monotonic clock, us.

    ``has_states``: whether states of partitions are reported too, which have an emitter of their own.
    """

    def __init__(self, cluster_id: str, began_ms: int, *, has_states: bool = True) -> None:
        self._cluster_id, self._began_ms = cluster_id, began_ms
        self._lines: dict[int, _Line] = {}
        if has_states:
            self._line(CONTROLLER_NODE_ID)

    def of_look(self, samples: Iterable[Sample], topics: dict[str, str], at: tuple[int, int]) -> Iterator[Row]:
        """The rows of a look; what a leader missed before comes first, as a gap."""
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
        """Rows of leaders that were to be and are not; the next row of the leader comes behind a gap."""
        for leader, count in missed.items():
            self._line(leader).missed += count

    def miss_state(self) -> None:
        """A look showed nothing of the cluster's state."""
        self._line(CONTROLLER_NODE_ID).missed += 1

    def beat(self, at: tuple[int, int], *, is_final: bool = False) -> Iterator[Row]:
        """Report of every emitter that it is alive, or that nothing follows; before it, what it missed."""
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
