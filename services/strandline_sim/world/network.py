"""Decides which messages arrive, when, and how the sender learns of one that does not.

Invariants: a call ends in exactly one answer or one None, never both (its request may still be carried out after its
deadline); a stream delivers in order and breaks as a whole; a cut link delivers nothing until it is healed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from strandline_sim.world.clock import Timeline
from strandline_sim.world.draws import Draw, Purpose

CONTROLLER = -1
KEEPALIVE_US = 350_000
"""Time after which a stream to a silent peer is closed."""

Link = tuple[int, int]


class Party(Protocol):
    """A process that sends and receives. A stopped (paused) process receives later, a dead one never."""

    party_id: int
    alive: bool

    def hand(self, action: Callable[..., None], *given: Any) -> None:
        """Let the process run an action now, or when it resumes; not at all if it is dead."""
        ...


@dataclass(slots=True)
class Call:
    """One unary call. ``done`` is given the answer, or None: refused connection, deadline, loss."""

    asker: Party
    target: int
    done: Callable[[Any], None]
    open: bool = True


@dataclass(slots=True)
class Stream:
    """One long-lived stream: up from the opener to the server, down from the server to the opener."""

    opener: Party
    server: Party
    on_up: Callable[[Stream, Any], None]
    on_down: Callable[[Stream, Any], None]
    on_end_at_opener: Callable[[Stream], None]
    on_end_at_server: Callable[[Stream], None]
    number: int
    open_at_opener: bool = True
    open_at_server: bool = True
    last_up_us: int = 0
    last_down_us: int = 0
    sent: int = 0
    is_lost: bool = False
    """Whether messages of its server that have not arrived are lost."""
    held: list[tuple[int, bool, Any]] = field(default_factory=list)
    """Messages that a cut holds back: (order of sending, upwards, message)."""


class Network:
    """All links of a world. ``parties`` has the process that currently listens at each address."""

    def __init__(
        self, timeline: Timeline, seed: int, delay_us: tuple[int, int], lost_per_mille: int, sticky: bool
    ) -> None:
        self._timeline = timeline
        self._seed = seed
        self._delay_us = delay_us
        self._sticky = sticky
        self._draws: dict[Link, Draw] = {}
        self._cuts: dict[Link, int] = {}
        self._cut_since_us: dict[Link, int] = {}
        self._streams: dict[int, Stream] = {}
        self._next_stream = 0
        self.lost_per_mille = lost_per_mille
        self.sound_us: dict[int, tuple[int, int]] = {}
        """Addresses whose links lose nothing, with how long a message takes on them."""
        self.late_alter = False
        self.clogged_us: dict[Link, int] = {}
        self.parties: dict[int, Party] = {}
        # How often the answers that an address had in transit were lost.
        self._losses: dict[int, int] = {}

    def cut(self, links: list[Link]) -> None:
        """Block these directions; several cuts of a link add up."""
        for link in links:
            self._cuts[link] = cuts = self._cuts.get(link, 0) + 1
            if cuts == 1:
                self._cut_since_us[link] = self._timeline.now_us
        self._timeline.after(KEEPALIVE_US, self._give_up_silent)

    def heal(self, links: list[Link]) -> None:
        """Undo one cut of each link; messages held on streams move on."""
        for link in links:
            self._cuts[link] = max(0, self._cuts.get(link, 0) - 1)
        self._move_held()

    def heal_all(self, but: list[Link]) -> None:
        """Undo every cut, delay and loss; the links of ``but`` stay cut, or are cut now."""
        self._cuts = {link: 1 for link in but if self._cuts.get(link)}
        self.cut([link for link in but if link not in self._cuts])
        self.clogged_us.clear()
        self.lost_per_mille = 0
        self.late_alter = False
        self._delay_us = (1_000, 3_000)
        self._move_held()

    def is_open(self, source: int, target: int) -> bool:
        """Whether messages pass in this direction."""
        return not self._cuts.get((source, target))

    def _carries(self, source: int, target: int) -> bool:
        """Whether a call passes: a connection whose way back is cut carries on for a while, then it is given up."""
        if not self._cuts:
            return True
        back = (target, source)
        if self._cuts.get((source, target)):
            return False
        return not self._cuts.get(back) or self._timeline.now_us < self._cut_since_us[back] + KEEPALIVE_US

    def draw(self, source: int, target: int) -> Draw:
        """The choices of one direction of a link."""
        link = (source, target)
        found = self._draws.get(link)
        if found is None:
            key = (source + 1000) * 100_003 + target + 1000
            found = self._draws[link] = Draw(self._seed, Purpose.NET, key)
        return found

    def _loses(self, source: int, target: int) -> bool:
        is_sound = source in self.sound_us or target in self.sound_us
        return self.draw(source, target).chance(0 if is_sound else self.lost_per_mille)

    def _delay(self, source: int, target: int) -> int:
        low, high = self.sound_us.get(source) or self.sound_us.get(target) or self._delay_us
        delay_us = low + self.draw(source, target).next() % (high - low + 1)
        return delay_us + self.clogged_us.get((source, target), 0) if self.clogged_us else delay_us

    def call(
        self,
        asker: Party,
        target: int,
        serve: Callable[[Call], None],
        done: Callable[[Any], None],
        *,
        deadline_us: int,
        copies: bool = False,
        extra_us: int = 0,
        copy_us: int = 0,
    ) -> None:
        """Send a request to the process that listens at ``target``; ``serve`` happens there. ``copies``: the request
        may arrive twice.

        ``extra_us`` delays it, ``copy_us`` > 0 lets a second copy arrive after so long.
        """
        call = Call(asker, target, done)
        self._timeline.after(deadline_us, self._expire, call)
        source = asker.party_id
        if not self._carries(source, target):
            return
        server = self.parties.get(target)
        if self._loses(source, target):
            return
        self._timeline.after(self._delay(source, target) + extra_us, self._arrive, call, server, serve)
        if copy_us:
            self._timeline.after(copy_us, self._arrive, call, server, serve)
        if copies and self._loses(source, target):
            late_us = self.draw(source, target).between(1_000, 900_000)
            self._timeline.after(late_us, self._arrive, call, server, serve)

    def _arrive(self, call: Call, server: Party | None, serve: Callable[[Call], None]) -> None:
        now = self.parties.get(call.target)
        if self._sticky:
            server = now
        if server is None or server is not now or not server.alive:
            self.reply(call, None)
            return
        if self._carries(call.asker.party_id, call.target):
            server.hand(serve, call)

    def reply(self, call: Call, answer: Any) -> None:
        """Send an answer back; None represents a refused connection."""
        source, target = call.target, call.asker.party_id
        if not call.open or not self.is_open(source, target):
            return
        if self._loses(source, target):
            return
        losses = self._losses.get(source, 0)
        self._timeline.after(self._delay(source, target), self._complete, call, answer, losses)

    def lose_answers_of(self, address: int) -> None:
        """A machine is lost with everything it sent that has not arrived: answers, and messages of its streams."""
        self._losses[address] = self._losses.get(address, 0) + 1
        for stream in self._streams.values():
            if stream.server.party_id == address:
                stream.is_lost = True
                stream.held.clear()

    def _complete(self, call: Call, answer: Any, losses: int = 0) -> None:
        if losses != self._losses.get(call.target, 0):
            return
        if call.open and self.is_open(call.target, call.asker.party_id):
            call.open = False
            call.asker.hand(call.done, answer)

    def _expire(self, call: Call) -> None:
        if call.open:
            call.open = False
            call.asker.hand(call.done, None)

    def open_stream(
        self,
        opener: Party,
        target: int,
        *,
        on_up: Callable[[Stream, Any], None],
        on_down: Callable[[Stream, Any], None],
        on_end_at_opener: Callable[[Stream], None],
        on_end_at_server: Callable[[Stream], None],
    ) -> Stream | None:
        """Connect to the process that listens at ``target`` now; None if there is none or the link is cut."""
        server = self.parties.get(target)
        source = opener.party_id
        if server is None or not server.alive or not (self.is_open(source, target) and self.is_open(target, source)):
            return None
        self._next_stream += 1
        stream = Stream(opener, server, on_up, on_down, on_end_at_opener, on_end_at_server, self._next_stream)
        self._streams[stream.number] = stream
        return stream

    def send_up(self, stream: Stream, message: Any) -> None:
        """Send from the opener; lost if the stream is broken, held while the link is cut."""
        if not stream.open_at_opener:
            return
        stream.sent += 1
        self._up_or_hold(stream, stream.sent, message)

    def _up_or_hold(self, stream: Stream, order: int, message: Any) -> None:
        source, target = stream.opener.party_id, stream.server.party_id
        if self._cuts and (stream.held or self._cuts.get((source, target))):
            stream.held.append((order, True, message))
            return
        at_us = self._timeline.now_us + self._delay(source, target)
        stream.last_up_us = at_us = max(at_us, stream.last_up_us)
        self._timeline.at(at_us, self._up, stream, order, message)

    def send_down(self, stream: Stream, message: Any) -> None:
        """Send from the server; lost if the stream is broken, held while the link is cut."""
        if not stream.open_at_server:
            return
        stream.sent += 1
        self._down_or_hold(stream, stream.sent, message)

    def _down_or_hold(self, stream: Stream, order: int, message: Any) -> None:
        source, target = stream.server.party_id, stream.opener.party_id
        if self._cuts and (stream.held or self._cuts.get((source, target))):
            stream.held.append((order, False, message))
            return
        at_us = self._timeline.now_us + self._delay(source, target)
        stream.last_down_us = at_us = max(at_us, stream.last_down_us)
        self._timeline.at(at_us, self._down, stream, order, message)

    def _up(self, stream: Stream, order: int, message: Any) -> None:
        if not stream.open_at_server:
            return
        if self._cuts and self._cuts.get((stream.opener.party_id, stream.server.party_id)):
            stream.held.append((order, True, message))
            return
        stream.server.hand(stream.on_up, stream, message)

    def _down(self, stream: Stream, order: int, message: Any) -> None:
        if not stream.open_at_opener or stream.is_lost:
            return
        if self._cuts and self._cuts.get((stream.server.party_id, stream.opener.party_id)):
            stream.held.append((order, False, message))
            return
        stream.opener.hand(stream.on_down, stream, message)

    def _move_held(self) -> None:
        for stream in self._streams.values():
            held, stream.held = sorted(stream.held, key=lambda each: each[0]), []
            for order, is_up, message in held:
                (self._up_or_hold if is_up else self._down_or_hold)(stream, order, message)

    def close(self, stream: Stream, *, by_opener: bool) -> None:
        """Close one end; the other end learns of it after a while."""
        if by_opener:
            stream.open_at_opener = False
        else:
            stream.open_at_server = False
        delay_us = self._delay(stream.opener.party_id, stream.server.party_id)
        at_us = max(self._timeline.now_us + delay_us, stream.last_up_us, stream.last_down_us)
        self._timeline.at(at_us, self._end, stream)

    def _end(self, stream: Stream) -> None:
        """End the stream for both ends."""
        self._streams.pop(stream.number, None)
        stream.held.clear()
        if stream.open_at_opener:
            stream.open_at_opener = False
            stream.opener.hand(stream.on_end_at_opener, stream)
        if stream.open_at_server:
            stream.open_at_server = False
            stream.server.hand(stream.on_end_at_server, stream)

    def break_streams_of(self, party: Party, *, silently: bool) -> None:
        """A process has ended: its peers learn of it soon, or (power lost) only by the silence."""
        for stream in list(self._streams.values()):
            if party is stream.opener or party is stream.server:
                if party is stream.opener:
                    stream.open_at_opener = False
                if party is stream.server:
                    stream.open_at_server = False
                delay_us = KEEPALIVE_US if silently else self._delay(stream.opener.party_id, stream.server.party_id)
                self._timeline.after(delay_us, self._end, stream)

    def _give_up_silent(self) -> None:
        """End the streams over links that are still cut, at each side when it notices."""
        for stream in list(self._streams.values()):
            one, other = stream.opener.party_id, stream.server.party_id
            if self.is_open(one, other) and self.is_open(other, one):
                continue
            draw = self.draw(one, other)
            self._timeline.after(draw.between(1_000, 200_000), self._end_opener, stream)
            self._timeline.after(draw.between(1_000, 200_000), self._end_server, stream)

    def _end_opener(self, stream: Stream) -> None:
        if stream.open_at_opener:
            stream.open_at_opener = False
            stream.opener.hand(stream.on_end_at_opener, stream)
        self._forget(stream)

    def _end_server(self, stream: Stream) -> None:
        if stream.open_at_server:
            stream.open_at_server = False
            stream.server.hand(stream.on_end_at_server, stream)
        self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        stream.held.clear()
        if not (stream.open_at_opener or stream.open_at_server):
            self._streams.pop(stream.number, None)
