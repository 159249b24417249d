"""Writes the state events of a replayed seed or of a scenario, as services do: one writer for every incarnation.

Invariant: exporting changes nothing of a run. Samples only read, so a seed that is exported takes the same course.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from strandline.core.control.state import ClusterState
from strandline.core.log import effects as want
from strandline.core.log.effects import Effect
from strandline.core.log.events import Event
from strandline.core.state_events import StateEvent
from strandline.core.types import TopicPartition
from strandline.export.destination import LocalDirectory
from strandline.export.encoding import ExportFormat
from strandline.export.files import FileExport
from strandline.export.schema import CONTROLLER_NODE_ID
from strandline.export.sink import EventSink
from strandline_sim.runs.trace import Trace
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.process import Process

SAMPLE_EVERY_MS = 100
"""Runs last seconds, so they are looked at more closely than services are."""
_FORCED_EVERY_MS = 1_000


class Exporting:
    """The writers of one run. ``at`` is set to the present before each event: time of day and own clock, in us."""

    def __init__(self, root: Path, kind: ExportFormat) -> None:
        self.at = (0, 0)
        self._destination = LocalDirectory(root)
        self._kind = kind
        self._sinks: dict[tuple[int, int], EventSink] = {}
        self._names: dict[str, str] = {}

    def take(
        self,
        cluster_id: str,
        node_id: int,
        incarnation: int,
        event: tuple[TopicPartition | None, StateEvent],
        topics: Mapping[str, str],
    ) -> None:
        """Write one event of an incarnation."""
        key = (node_id, incarnation)
        self._names.update(topics)
        if key not in self._sinks:
            common = {"node_id": node_id, "cluster_id": cluster_id, "incarnation": incarnation}
            outlet = FileExport(self._destination, self._kind)
            self._sinks[key] = EventSink(None, common, outlets=[outlet], clocks=self._now, topic_name=self._names.get)
        self._sinks[key].take(*event)

    def _now(self) -> tuple[int, int]:
        return self.at

    def close(self) -> None:
        """Write what is left. Incarnations that a fault ended have an end all the same: the run is over."""
        for sink in self._sinks.values():
            sink.close()


class ExportingTrace(Trace):
    """A replay that is exported as well."""

    def __init__(self, root: Path, kind: ExportFormat, *, everything: bool = False) -> None:
        super().__init__(everything=everything)
        self._exporting = Exporting(root, kind)

    def watch(self, world: Cluster) -> None:
        """Attach to a world that has not run yet, and have it sampled."""
        self.world = world
        timings = world.node_timings
        world.node_timings = replace(timings, sample_min_ms=SAMPLE_EVERY_MS, sample_max_ms=_FORCED_EVERY_MS)

    def stepped(self, process: Process, event: Event, effects: list[Effect]) -> None:
        """Export what a node's core reported."""
        super().stepped(process, event, effects)
        state = process.core.state
        if state.node_epoch is None:
            return
        self._exporting.at = (self._now_us, event.now_ms * 1_000)
        for effect in effects:
            if isinstance(effect, want.Emit):
                reported = (effect.tp, effect.event)
                self._exporting.take(
                    state.cluster_id, process.node_id, int(state.node_epoch), reported, state.topic_names
                )

    def controller_reported(self, state: ClusterState, emit: want.Emit, now_ms: int) -> None:
        """Export what the controller reported, which it does only when it is durable."""
        super().controller_reported(state, emit, now_ms)
        self._exporting.at = (self._now_us, now_ms * 1_000)
        reported = (emit.tp, emit.event)
        topics = {topic_id: topic.name for topic_id, topic in state.topics.items()}
        epoch = state.header.controller_epoch
        self._exporting.take(state.header.cluster_id, CONTROLLER_NODE_ID, epoch, reported, topics)

    def close(self) -> None:
        """Write what is left."""
        self._exporting.close()
