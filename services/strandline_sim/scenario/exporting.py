"""Where the state events of a scenario go: through the exporter of the services, with the scenario's clock.

A directory gets what nodes would write: for people ``PLACE/events.jsonl``, as in a data directory, and for analysis
the files of `export/layout.py` under ``scenario/v1``, as in an export directory.

Invariant: one incarnation of a place is one emitter, numbered from 1; the same run writes the same files.
"""

from __future__ import annotations

from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from strandline.export.destination import LocalDirectory
from strandline.export.encoding import ExportFormat
from strandline.export.files import FileExport
from strandline.export.sink import EventSink
from strandline_sim.scenario.control import CLUSTER_ID
from strandline_sim.scenario.stage import Stage
from strandline_sim.scenario.wire import CONTROLLER


class Exports:
    """The sinks of a run, made when their first event comes."""

    def __init__(self, directory: Path, closing: ExitStack) -> None:
        self._directory = directory
        self._closing = closing
        self._sinks: dict[tuple[str, int], EventSink] = {}
        self._kind = ExportFormat.PARQUET if find_spec("pyarrow") else ExportFormat.JSONL

    def sink(self, stage: Stage, place: str, node_id: int | None) -> EventSink:
        """The sink of a place's process as it is now."""
        incarnation = _incarnation(stage, place)
        if (place, incarnation) not in self._sinks:
            folder = self._directory / place
            folder.mkdir(parents=True, exist_ok=True)
            whose: dict[str, object] = {"role": "controller"} if node_id is None else {"node_id": node_id}
            sink = EventSink(
                folder,
                {**whose, "cluster_id": CLUSTER_ID, "incarnation": incarnation},
                outlets=[FileExport(LocalDirectory(self._directory), self._kind)],
                wall_ms=lambda: stage.now_ms,
                topic_name=stage.control.topic_name,
            )
            self._sinks[place, incarnation] = sink
            self._closing.callback(sink.close)
        return self._sinks[place, incarnation]


def _incarnation(stage: Stage, place: str) -> int:
    """The controller's reign, or which process of a node this is."""
    if place == CONTROLLER:
        return stage.control.reign
    return stage.actors[place].life
