"""Runs a scenario: carries out every command and compares its output line by line.

Invariant: a run depends on the file alone; the same file prints the same lines anywhere, at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from strandline.export.destination import LocalDirectory
from strandline.export.encoding import ExportFormat
from strandline.export.files import FileExport
from strandline.export.sink import EventSink
from strandline_sim.scenario.board import CONTROLLER, Observers, Sink
from strandline_sim.scenario.call import Verb, VerbCall
from strandline_sim.scenario.control import CLUSTER_ID, CallRefused
from strandline_sim.scenario.language import Command, Misuse, NotReadable, ScenarioFailed, Script, parse, rewritten
from strandline_sim.scenario.stage import Stage
from strandline_sim.scenario.verbs import clients, controllers, coordinators, expect, moves, nodes, scene, wire

# ---- exporting
# Exports the state events of a scenario with the exporter of the services and the scenario's clock.
#
# The directory gets what nodes would write: for people ``PLACE/events.jsonl``, as in a data directory, and for analysis
# the files of `export/layout.py` under ``scenario/v1``, as in an export directory.
#
# Invariant: one incarnation of a place is one emitter, numbered from 1; the same run writes the same files.


class Exports:
    """The sinks of a run, each made at its first event."""

    def __init__(self, directory: Path, closing: ExitStack) -> None:
        self._directory = directory
        self._closing = closing
        self._sinks: dict[tuple[str, int], EventSink] = {}
        self._kind = ExportFormat.PARQUET if find_spec("pyarrow") else ExportFormat.JSONL

    def sink(self, stage: Stage, place: str, node_id: int | None) -> EventSink:
        """The sink of a place's current process."""
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
    """The number of the controller's reign, or of a node's process."""
    if place == CONTROLLER:
        return stage.control.reign
    return stage.actors[place].life


VERBS: dict[str, Verb] = {
    verb.name: verb
    for family in (scene, controllers, moves, nodes, wire, clients, coordinators, expect)
    for verb in family.VERBS
}
"""Every verb of the language."""


@dataclass(slots=True)
class Transcript:
    """The output of a run, by the line of each command."""

    script: Script
    outputs: dict[int, list[str]] = field(default_factory=dict)

    def text(self) -> str:
        """The file with this output in place of the expected one."""
        return rewritten(self.script, self.outputs)


def run_text(
    text: str, name: str, *, compare: bool = True, observers: Observers | None = None, stage: Stage | None = None
) -> Transcript:
    """Run a scenario. With ``compare`` False any output is accepted; claims must still hold.

    Raises:
        NotReadable: it is not a scenario, or has an unknown verb; nothing was played.
        ScenarioFailed: with file, line, what was expected and what is.
    """
    script = read(text, name)
    transcript = Transcript(script)
    stage = stage or Stage(observers)
    for command in script.commands:
        transcript.outputs[command.line] = printed = carry_out(stage, script, command)
        if compare:
            _compare(script, command, printed)
    return transcript


def read(text: str, name: str) -> Script:
    """Read a whole file before any of it is played: check its form, and that each verb exists.

    Raises:
        NotReadable: it is no scenario of this language.
    """
    script = parse(text, name)
    for command in script.commands:
        word = command.words[0]
        if word.text not in VERBS:
            expected = f"a verb ({_nearest(word.text)})"
            raise NotReadable(name, command.line, command.text, word.column, expected, repr(word.text))
    return script


def carry_out(stage: Stage, script: Script, command: Command) -> list[str]:
    """Carry out one command. Returns what it printed.

    Raises:
        ScenarioFailed: it cannot be done, or its claim does not hold.
    """
    stage.lines, stage.tells_messages = [], True
    try:
        verb = VERBS[command.words[0].text]
        verb.run(VerbCall(stage, command, verb.options))
    except Misuse as wrong:
        raise ScenarioFailed(
            script.name, command.line, command.text, wrong.column, wrong.expected, wrong.actual
        ) from wrong
    except CallRefused as refused:
        raise ScenarioFailed(
            script.name, command.line, command.text, 0, "a call that the controller takes", str(refused)
        ) from refused
    return stage.lines


def _nearest(text: str) -> str:
    """The verbs with the same beginning, or all."""
    alike = [name for name in VERBS if name.startswith(text[:1])]
    return ", ".join(alike or VERBS)


def _compare(script: Script, command: Command, printed: list[str]) -> None:
    expected = command.expected
    for index in range(max(len(expected), len(printed))):
        wanted = expected[index] if index < len(expected) else None
        found = printed[index] if index < len(printed) else None
        if wanted == found:
            continue
        line = command.line + 1 + index if wanted is not None else command.line
        text = wanted if wanted is not None else command.text
        column = _first_difference(wanted, found) if wanted is not None and found is not None else 0
        raise ScenarioFailed(script.name, line, text, column, wanted or "no more output", found or "no more output")


def _first_difference(one: str, other: str) -> int:
    shorter = min(len(one), len(other))
    return next((i for i in range(shorter) if one[i] != other[i]), shorter)


def run_file(
    path: Path, *, rewrite: bool = False, export: Path | None = None, trace: Callable[[str], None] | None = None
) -> Transcript:
    """Run a file; ``rewrite`` puts the output into it, ``export`` writes its state events, as nodes do.

    Raises:
        ScenarioFailed: the scenario did not come true.
        OSError: a file cannot be read or written.
    """
    text = path.read_text(encoding="utf-8")
    with ExitStack() as closing:
        watched: list[Stage] = []
        stage = Stage(Observers(_tracer(trace, watched), _sinks(export, watched, closing)))
        watched.append(stage)
        transcript = run_text(text, str(path), compare=not rewrite, stage=stage)
    if rewrite and transcript.text() != text:
        path.write_text(transcript.text(), encoding="utf-8")
    return transcript


def _sinks(export: Path | None, watched: list[Stage], closing: ExitStack) -> Callable[[str, int | None], Sink | None]:
    """The sinks of events by place: the exporter, or none."""
    if export is None:
        return lambda place, node_id: None
    exports = Exports(export, closing)
    return lambda place, node_id: exports.sink(watched[0], place, node_id)


def _tracer(trace: Callable[[str], None] | None, watched: list[Stage]) -> Callable[[str, object], None]:
    """Prints an event or effect with the time."""
    if trace is None:
        return lambda place, what: None
    return lambda place, what: trace(f"{watched[0].now_ms:>7} {place}: {what!r}")
