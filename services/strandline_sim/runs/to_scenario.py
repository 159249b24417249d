"""Turns a failing run into a scenario: each deed becomes the command that does the same on the scenario's stage.

Invariant: every file that is returned was played from its first line and broke what it claims to break; a deed that
cannot be expressed (the stage has no such message) is left out, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from strandline.core.types import Durability, Truncation
from strandline_sim.runs.run import Violation
from strandline_sim.runs.shape import Shape
from strandline_sim.runs.shrink import ddmin
from strandline_sim.runs.trace import Deed, Deeds
from strandline_sim.scenario.board import CONTROLLER, Link
from strandline_sim.scenario.call import VerbCall
from strandline_sim.scenario.control import CallRefused
from strandline_sim.scenario.language import FIRST_LINE, Command, Misuse, split
from strandline_sim.scenario.run import VERBS, run_text
from strandline_sim.scenario.stage import Stage

PATIENCE_TICKS = 3
"""Number of ticks of 100 ms by which a message may be late on the stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A scenario that shows what a run broke."""

    text: str
    invariant: str
    commands: int


class Teller:
    """Plays deeds on its own stage and keeps the commands that worked."""

    def __init__(self, shape: Shape, deeds: Deeds, *, holds_disks: bool) -> None:
        self._shape = shape
        self._deeds = deeds
        self._holds_disks = holds_disks
        self._stage = Stage()
        self._records = 0
        # The partition epoch on the stage for each partition epoch of the run.
        self._versions: dict[int, int] = {}
        # Links on which no message came before the wait ended; nobody waits there again until one comes.
        self._dry: set[tuple[str, str]] = set()
        self.lines: list[str] = []
        self.header = _header(shape, deeds, holds_disks=holds_disks)
        for line in self.header:
            self._try(line)
        self.lines.clear()

    @property
    def broken(self) -> dict[str, str]:
        """The properties broken so far."""
        return self._stage.truth.broken

    def _try(self, line: str) -> bool:
        if not play(self._stage, line):
            return False
        self.lines.append(line)
        return True

    def tell(self, invariant: str | None) -> bool:
        """Play deeds until this property, or any if None, is broken. Returns whether that happened."""
        for deed in self._deeds.deeds:
            self._do(deed)
            if invariant in self.broken or (invariant is None and self.broken):
                return True
        return False

    def _do(self, deed: Deed) -> None:
        name = node_name(deed.node)
        match deed.what:
            case "deliver":
                self._deliver(f"{node_name(deed.peer)}->{name}", deed.kind)
            case "lose":
                for link in (f"{name}->{node_name(deed.peer)}", f"{node_name(deed.peer)}->{name}"):
                    if self._waits(link) and self._try(f"drop {link}"):
                        return
            case "metadata":
                self._metadata(name, deed.number)
            case "altered":
                if self._waits(f"{CONTROLLER}->{name}", "altered"):
                    self._try(f"deliver {CONTROLLER}->{name} altered")
            case "alter":
                self._alter(node_name(deed.peer), deed.members)
            case "produce":
                self._produce(name, deed)
            case "commit":
                if self._holds_disks:
                    self._try(f"deliver {name}.disk")
            case "tick":
                self._try("tick 100ms")
            case "power-off":
                self._power_off(name, deed.number)
            case "min-isr":
                self._try(f"config min.insync.replicas={deed.number}")
            case "decided":
                image = self._stage.control.partition()
                if image is not None:
                    self._versions[deed.number] = int(image.partition_epoch)
            case _:
                self._try(f"{deed.what} {name}")

    def _waits(self, link: str, kind: str | None = None) -> bool:
        source, _, target = link.partition("->")
        return self._stage.wire.oldest(Link(source, target), kind) is not None

    def _deliver(self, link: str, kind: str) -> None:
        for _ in range(0 if (link, kind) in self._dry else PATIENCE_TICKS):
            if self._waits(link, kind):
                break
            self._try("tick 100ms")
        if self._try(f"deliver {link} {kind}"):
            self._dry.discard((link, kind))
        else:
            self._dry.add((link, kind))

    def _metadata(self, name: str, version: int) -> None:
        """Everything up to this version, in order."""
        link = Link(CONTROLLER, name)
        wanted = self._versions.get(version, version)
        waiting = [e for e in self._stage.wire.waiting() if e.link == link and e.kind == "metadata"]
        known = [index for index, e in enumerate(waiting) if e.version is not None and e.version <= wanted]
        for _ in range(known[-1] + 1 if known else 0):
            self._try(f"deliver {link} metadata")

    def _alter(self, leader: str, members: tuple[int, ...]) -> None:
        wanted = {node_name(member) for member in members}
        if self._waits(f"{leader}->{CONTROLLER}", "alter"):
            self._try(f"deliver {leader}->{CONTROLLER} alter")
        image = self._stage.control.partition()
        if image is not None and {self._stage.names.name(n) for n in image.isr} != wanted:
            self._try(f"alter {leader} isr={','.join(sorted(wanted))}")

    def _produce(self, name: str, deed: Deed) -> None:
        values = [f"m{self._records + index}" for index in range(deed.number)]
        acks = "" if deed.kind == "all" else f" acks={deed.kind}"
        if self._try(f"produce {name} {' '.join(values)}{acks}"):
            self._records += deed.number

    def _power_off(self, name: str, leo: int) -> None:
        log = self._stage.actors[name].log
        keep = min(max(leo, log.synced), log.leo)
        self._try(f"power-off {name} keep={keep}")


def node_name(node: int) -> str:
    """The name in a scenario of a node of a run: A, B, C."""
    return CONTROLLER if node < 0 else chr(ord("A") + node)


def _names(nodes: Iterable[int]) -> str:
    return ",".join(node_name(node) for node in nodes)


def play(stage: Stage, line: str) -> bool:
    """Carry out one command. Returns whether that was possible."""
    words = split(line)
    verb = VERBS[words[0].text]
    stage.lines, stage.tells_messages = [], True
    try:
        verb.run(VerbCall(stage, Command(1, line, words, ()), verb.options))
    except (Misuse, CallRefused):
        return False
    return True


def _header(shape: Shape, deeds: Deeds, *, holds_disks: bool) -> list[str]:
    """The scene: rules, timings that leave every decision to commands, nodes, the topic."""
    first = deeds.first
    assert first is not None, "the run broke something before there was a partition"
    rules = [f"truncation={shape.truncation}"] if shape.truncation is not Truncation.LEADER_EPOCH else []
    rules += [f"durability={shape.durability}"] if shape.durability is not Durability.FSYNC else []
    electable = [node_name(n) for n in range(shape.nodes - shape.observers)]
    observers = [node_name(n) for n in range(shape.nodes - shape.observers, shape.nodes)]
    # The topic's first replica leads at its beginning, whichever is preferred.
    ordered = sorted(first.replicas, key=lambda n: (n != first.leader, n not in first.isr))
    replicas, isr = _names(ordered), _names(n for n in ordered if n in first.isr)
    return [
        *([f"set {' '.join(rules)}"] if rules else []),
        "set replica-fetch-wait-max-ms=100ms high-watermark-checkpoint-interval-ms=100ms replica-lag-time-max-ms=10m",
        "controller session-timeout=10m",
        f"nodes {' '.join(electable)}",
        *([f"nodes {' '.join(observers)} role=observer"] if observers else []),
        f"topic lines replicas={replicas} min-isr={first.min_isr}" + (f" isr={isr}" if isr != replicas else ""),
        *([f"hold {' '.join(f'{n}.disk' for n in (*electable, *observers))}"] if holds_disks else []),
    ]


@dataclass(frozen=True, slots=True)
class _Play:
    """The result of a list of commands: those that could be carried out, and what they broke."""

    worked: list[str]
    broken: dict[str, str]


def _play(header: Sequence[str], lines: Sequence[str], until: str) -> _Play:
    """Play commands up to the first that breaks ``until``; one that cannot be carried out is passed over."""
    stage = Stage()
    for line in header:
        play(stage, line)
    worked: list[str] = []
    for line in lines:
        if play(stage, line):
            worked.append(line)
        if until in stage.truth.broken:
            break
    return _Play(worked, stage.truth.broken)


def tell(shape: Shape, deeds: Deeds, violation: Violation, may_try: Callable[[], bool]) -> Reported | None:
    """A scenario that breaks what the run broke, or at least something; None if no variant of it does.

    ``may_try`` says whether there is time for another attempt to make it shorter.
    """
    for only in (violation.name, None):
        for holds_disks in (False, True):
            teller = Teller(shape, deeds, holds_disks=holds_disks)
            if teller.tell(only):
                invariant = only or next(iter(teller.broken))
                return _shortest(teller.header, teller.lines, invariant, may_try)
    return None


def _shortest(header: Sequence[str], lines: Sequence[str], invariant: str, may_try: Callable[[], bool]) -> Reported:
    def breaks(kept: Sequence[str]) -> bool:
        return may_try() and invariant in _play(header, kept, invariant).broken

    kept = _play(header, ddmin(lines, breaks), invariant).worked
    for index, line in enumerate(kept):
        for plainer in _plainer(line):
            candidate = [*kept[:index], plainer, *kept[index + 1 :]]
            played = _play(header, candidate, invariant)
            if invariant in played.broken and played.worked == candidate:
                kept = candidate
                break
    commands = _joined(_renumbered(kept))
    script = "\n".join([FIRST_LINE, *header, *commands, f"expect-invariant {invariant} broken"]) + "\n"
    text = run_text(script, "the scenario that was found", compare=False).text()
    return Reported(text=text, invariant=invariant, commands=len(commands))


def _plainer(line: str) -> Iterator[str]:
    """Simpler forms of a command, the simplest first."""
    words = line.split()
    if words[0] == "deliver" and len(words) == 3:
        if words[2] == "metadata":
            yield f"metadata-to {words[1].partition('->')[2]}"
        yield f"deliver {words[1]}"


_RECORD = re.compile(r"\bm\d+\b")


def _renumbered(lines: Sequence[str]) -> list[str]:
    """Records named m0, m1 and so on, in the order in which they are produced."""
    names: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        return names.setdefault(found[0], f"m{len(names)}")

    return [_RECORD.sub(named, line) if line.startswith("produce ") else line for line in lines]


def _joined(lines: Sequence[str]) -> list[str]:
    """Neighbouring commands joined into one: ticks, deliveries without a kind."""
    joined: list[str] = []
    for line in lines:
        last, words = joined[-1].split() if joined else [""], line.split()
        if words[0] == last[0] == "tick":
            joined[-1] = f"tick {int(last[1].removesuffix('ms')) + int(words[1].removesuffix('ms'))}ms"
        elif words[0] == last[0] == "deliver" and len(words) == 2 and all("->" in word for word in last[1:]):
            joined[-1] += f" {words[1]}"
        else:
            joined.append(line)
    return joined
