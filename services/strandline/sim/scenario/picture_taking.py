"""Which moments of a run become frames: a message on its way, what it changed, time that passed, a command.

Invariant: what nobody could see is no frame: within `stabilize` only arrivals that change something are shown, and a
claim, which changes nothing, is noted on the frame that it speaks about.
"""

from __future__ import annotations

from dataclasses import replace

from strandline.core.errors import ErrorCode
from strandline.core.types import Acks
from strandline.sim.scenario.clients import WAITING, Call
from strandline.sim.scenario.language import Command, ScenarioFailed, Script
from strandline.sim.scenario.nodes import Actor
from strandline.sim.scenario.picture import Answer, Cell, Claim, Fate, Film, Flight, Frame, Lane, Sent
from strandline.sim.scenario.records import records_of
from strandline.sim.scenario.run import carry_out, read
from strandline.sim.scenario.stage import Moment, Observers, Stage
from strandline.sim.scenario.telling import Sight, number, partition_text, sight_of
from strandline.sim.scenario.wire import Envelope

_SILENT = frozenset({"show", "messages"})
"""Verbs that print what every frame shows anyway."""
_CLAIM = "expect-"


def film(text: str, name: str) -> Film:
    """Run a scenario and keep its frames. Expected output is not compared; a claim that fails ends the film.

    Raises:
        NotReadable: the text is no scenario at all.
    """
    script = read(text, name)
    camera = Camera(script)
    failure = ""
    for command in script.commands:
        camera.begin(command)
        try:
            carry_out(camera.stage, script, command)
        except ScenarioFailed as failed:
            camera.end(failed=True)
            failure = str(failed)
            break
        camera.end()
    return Film(name, _title(script), tuple(camera.frames), failure)


def _title(script: Script) -> str:
    """The first line of the comment on top."""
    first = next((line for line in script.lines[1:] if line.strip()), "")
    return first.lstrip("# ").strip() if first.startswith("#") else ""


class Camera:
    """Watches a stage and takes frames, from the moment when there is a partition."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.stage = Stage(Observers(moment=self._moment))
        self.frames: list[Frame] = []
        self._command = Command(0, "", (), ())
        # How many lines of the command's output are on frames already, and how many frames it has.
        self._shown = 0
        self._taken = 0
        # A message on its way, kept until it is known whether its arrival can be seen; and the lines printed by then.
        self._pending: tuple[Frame, int] | None = None

    def begin(self, command: Command) -> None:
        """A command is about to be carried out."""
        self._command, self._shown, self._taken, self._pending = command, 0, 0, None

    def end(self, *, failed: bool = False) -> None:
        """It was carried out, or went wrong."""
        verb = self._command.words[0].text
        if (verb.startswith(_CLAIM) or failed) and self.frames:
            claim = Claim(self._command.text, not failed)
            self.frames[-1] = replace(self.frames[-1], claims=(*self.frames[-1].claims, claim))
        elif verb not in _SILENT and self._is_set():
            frame = self._look()
            if frame.reported or not self._taken or frame.scene != self.frames[-1].scene:
                self._take(frame)

    def _is_set(self) -> bool:
        return self.stage.control.decided() is not None

    def _moment(self, moment: Moment, envelope: Envelope | None) -> None:
        if not self.frames:
            return
        if envelope is not None and moment is Moment.ARRIVES:
            self._pending = self._look(_flight(envelope, Fate.ARRIVING)), len(self.stage.lines)
        elif envelope is not None and moment is Moment.LOST:
            frame = self._look(_flight(envelope, Fate.LOST))
            if frame.reported:
                self._take(frame)
        else:
            self._flush()

    def _flush(self) -> None:
        """Keep the message on its way if its arrival was printed or changed something; then keep what it changed."""
        if self._pending is not None:
            (frame, reported), self._pending = self._pending, None
            if frame.reported or len(self.stage.lines) > reported:
                self._take(frame, reported)
        if len(self.stage.lines) > self._shown:
            self._take(self._look())

    def _take(self, frame: Frame, reported: int | None = None) -> None:
        """Append a frame; its lanes say what differs from the last one."""
        before = {lane.name: lane for lane in self.frames[-1].lanes} if self.frames else {}
        lanes = tuple(_compared(before.get(lane.name), lane) for lane in frame.lanes)
        changed = bool(self.frames) and self.frames[-1].controller != frame.controller
        self.frames.append(replace(frame, lanes=lanes, controller_changed=changed))
        self._shown = len(self.stage.lines) if reported is None else reported
        self._taken += 1

    def _look(self, *flights: Flight) -> Frame:
        stage = self.stage
        held = stage.wire.held
        waiting = [_flight(e, Fate.HELD if e.link in held else Fate.WAITING) for e in stage.wire.waiting()]
        return Frame(
            line=self._command.line,
            command=self._command.text,
            narration=_comment_above(self._script, self._command),
            time_ms=stage.now_ms,
            reported=tuple(stage.lines[self._shown :]),
            controller=_controller(stage),
            controller_changed=False,
            lanes=tuple(_lane(stage, actor) for actor in stage.actors.values()),
            flights=(*flights, *waiting),
            sent=_sent(stage),
            cut_links=tuple(sorted(map(str, stage.wire.cut))),
        )


def _flight(envelope: Envelope, fate: Fate) -> Flight:
    return Flight(envelope.link.source, envelope.link.target, envelope.kind, envelope.text, fate)


def _comment_above(script: Script, command: Command) -> tuple[str, ...]:
    """The comment lines that stand right above a command; not the drawing on top of the file."""
    lines: list[str] = []
    at = command.line - 2
    while at > 0 and script.lines[at].startswith("#"):
        lines.insert(0, script.lines[at].removeprefix("#").strip())
        at -= 1
    return tuple(lines) if at > 0 else ()


def _controller(stage: Stage) -> str:
    partition = stage.control.partition()
    words = partition_text(partition, stage.names) if partition else ""
    return words if stage.control.core is not None else f"down ({words})"


def _lane(stage: Stage, actor: Actor) -> Lane:
    sight, log = sight_of(actor.core), actor.log
    return Lane(
        name=actor.name,
        role=_role(stage, actor, sight),
        is_up=actor.is_running,
        leads=sight.role == "leads",
        cells=tuple(Cell(r.offset, r.epoch, r.value) for r in records_of(log)),
        log_start=log.log_start,
        leo=log.leo,
        hw=sight.hw if sight.role else min(log.hw_cached, log.leo),
        durable=log.synced,
        counts=_counts(stage, sight),
    )


def _sent(stage: Stage) -> tuple[Sent, ...]:
    """Every produce that wants an answer, once, in the order in which they were sent."""
    calls = {id(call): call for call in stage.clients.calls.values() if call.acks not in (None, Acks.NONE)}
    held = {(r.offset, r.value) for actor in stage.actors.values() for r in records_of(actor.log)} if calls else set()
    return tuple(_answer(call, held) for call in calls.values())


def _answer(call: Call, held: set[tuple[int, str]]) -> Sent:
    if call.text == WAITING:
        return Sent(call.label, Answer.WAITING)
    if call.code is None:
        return Sent(call.label, Answer.NONE)
    if call.code is not ErrorCode.NONE:
        return Sent(call.label, Answer.REFUSED)
    places = enumerate(call.values, call.offset or 0)
    return Sent(call.label, Answer.ACKED, any(place not in held for place in places))


def _role(stage: Stage, actor: Actor, sight: Sight) -> str:
    if not actor.is_running:
        return "down"
    if sight.role == "leads":
        return f"leads epoch {sight.epoch}"
    if not sight.role:
        return "has not heard of the partition"
    leader = stage.names.name(sight.leader)
    followed = f"follows {leader} in epoch {sight.epoch}" if sight.leader is not None else f"waits, epoch {sight.epoch}"
    return followed if sight.state in ("fetching", "waiting", "") else f"{followed}, {sight.state}"


def _counts(stage: Stage, sight: Sight) -> str:
    """What a leader knows: whom it counts, and how far they are."""
    if sight.role != "leads":
        return ""
    remote = [f"{stage.names.name(n)} {number(leo)}" for n, leo in (sight.remote or {}).items()]
    words = [f"counts {stage.names.shown(sight.maximal)}", *([f"remote {', '.join(remote)}"] if remote else [])]
    return ", ".join(words)


def _compared(before: Lane | None, after: Lane) -> Lane:
    if before is None:
        return after
    there = set(after.cells)
    differs = [name for name in ("role", "leo", "hw", "counts") if getattr(before, name) != getattr(after, name)]
    return replace(after, cut=tuple(cell for cell in before.cells if cell not in there), changed=frozenset(differs))
