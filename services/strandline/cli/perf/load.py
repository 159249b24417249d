"""What `strandline perf` sends, and when: values of one size, at a rate or as fast as the producer accepts them.

Invariant: a record counts from the moment it was due, not from when there was room to send it, so that a cluster that
stalls for a second is not reported as one slow record (coordinated omission). One that was waited for counts from the
end of the wait, at most as late as this machine's timer.
"""

from __future__ import annotations

import asyncio
import math
import os
import struct
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.cli.failures import CommandFailed
from strandline.core.errors import Refused

if TYPE_CHECKING:
    from strandline.client import BatchOutcome, Producer


# ---- perf_values
# What the values of `strandline perf` are: random bytes of one size, cheap to hand over.
#
# Invariant: no compressed batch of a load has a value twice, nor a part of one, so that a codec finds nothing to save.

_NOISE_BYTES = 1 << 20
"""Several times the largest batch of a producer with its usual settings."""
_MOST_VALUES = 1 << 16
"""More of the smallest than one batch holds: each takes some bytes besides its own."""


def noise_values(size_bytes: int, *, are_compressed: bool) -> list[bytes]:
    """Values of ``size_bytes`` to be sent in turn: one where nothing is compressed, because others would have
    to be read from memory that the processor does not have at hand."""
    count = min(_MOST_VALUES, -(-_NOISE_BYTES // size_bytes)) if are_compressed else 1
    noise = os.urandom(count * size_bytes)
    return [noise[at : at + size_bytes] for at in range(0, len(noise), size_bytes)]


_STAMP = struct.Struct(">8sQ")
STAMP_BYTES = _STAMP.size
"""A run's random name and a record's number, which begin the values of an end-to-end run."""

_YIELD_EVERY = 256

Numbers = Sequence[int]
"""Of records."""


@dataclass(slots=True, kw_only=True)
class Load:
    """The records of one run, numbered from 0; ``due_s`` has when each was due, by the monotonic clock.

    The producer must have been opened with ``on_delivery=`` `batch_ended`.
    """

    topic: str
    size_bytes: int
    rate: float | None = None
    is_compressed: bool = False
    """By the producer: the values of a batch then differ."""
    is_stamped: bool = False
    """Whether values say whose they are, for `number_of`; ``size_bytes`` has room for that then."""
    run: bytes = field(default_factory=lambda: os.urandom(8))
    due_s: array[float] = field(default_factory=lambda: array("d"))
    failure: str = ""
    _ends_s: float = math.inf
    """When sending stops: at the end of a transaction, or at once after a failure."""
    _bodies: list[bytes] = field(init=False)
    _done: Callable[[Numbers], None] = field(init=False)

    def __post_init__(self) -> None:
        self._bodies = noise_values(self.size_bytes, are_compressed=self.is_compressed)
        self._done = uncounted

    async def send(self, producer: Producer, records: int, done: Callable[[Numbers], None]) -> None:
        """Sends the next ``records``; ``done`` gets the numbers of those that were acknowledged, batch by batch.

        Raises:
            CommandFailed: a record was given up.
        """
        self._done = done
        await self._send(producer, len(self.due_s) + records, self._pace())
        await producer.flush()
        if self.failure:
            raise CommandFailed(self.failure)

    async def send_in_transactions(
        self, producer: Producer, records: int, each_s: float, done: Callable[[Numbers], None]
    ) -> None:
        """As `send`, in transactions of ``each_s``; ``done`` gets the numbers of those that were committed.

        Raises:
            CommandFailed: a transaction was not committed.
        """
        self._done = uncounted
        pace, last = self._pace(), len(self.due_s) + records
        while (of_this := len(self.due_s)) < last:
            try:
                async with producer.transaction():
                    self._ends_s = time.monotonic() + each_s
                    await self._send(producer, last, pace)
            except Refused as refused:
                raise CommandFailed(self.failure or f"a transaction was not committed: {refused}") from refused
            done(range(of_this, len(self.due_s)))

    def batch_ended(self, outcome: BatchOutcome) -> None:
        """The result for the records of a batch."""
        numbers: Any = outcome.tags
        if outcome.refusal is None:
            self._done(numbers)
        elif not self.failure:
            self._ends_s = -math.inf
            from strandline.client import SendFailed

            why = SendFailed(outcome.topic, outcome.partition, outcome.refusal, outcome.attempts)
            self.failure = f"record {numbers[0]:,} was given up: {why}"

    async def _send(self, producer: Producer, last: int, pace: _Pace | None) -> None:
        """Sends up to the record ``last`` or until the end, but at least one."""
        if pace is None:
            await self._send_at_once(producer, last)
        else:
            await self._send_at_pace(producer, last, pace)

    async def _send_at_once(self, producer: Producer, last: int) -> None:
        """As little as possible besides `Producer.send`, which is what is measured: no call of ours per record."""
        send, topic, now, note = producer.send, self.topic, time.monotonic, self.due_s.append
        numbers = range(len(self.due_s), last)
        values = self._values(numbers)
        for at in range(0, len(numbers), _YIELD_EVERY):
            await asyncio.sleep(0)
            for number, value in zip(numbers[at : at + _YIELD_EVERY], values, strict=False):
                at_s = now()
                if at_s >= self._ends_s and number > numbers.start:
                    return
                note(at_s)
                await send(topic, value, tag=number)

    async def _send_at_pace(self, producer: Producer, last: int, pace: _Pace) -> None:
        numbers = range(len(self.due_s), last)
        for number, value in zip(numbers, self._values(numbers), strict=False):
            due_s = pace.due_s(number)
            if (early_s := due_s - time.monotonic()) > 0:
                # How late a timer of this machine fires, often a millisecond, is not the cluster's.
                due_s = await _woken_s(due_s, early_s)
            elif number % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
            self.due_s.append(due_s)
            await producer.send(self.topic, value, tag=number)
            if time.monotonic() >= self._ends_s:
                break

    def _pace(self) -> _Pace | None:
        return None if self.rate is None else _Pace(len(self.due_s), time.monotonic(), self.rate)

    def _values(self, numbers: range) -> Iterator[bytes]:
        """Of these records, or of more."""
        return map(self.stamped, numbers) if self.is_stamped else cycle(self._bodies)

    def stamped(self, number: int) -> bytes:
        """The value of a record that tells its number."""
        return _STAMP.pack(self.run, number) + self._bodies[number % len(self._bodies)][STAMP_BYTES:]

    def number_of(self, value: bytes | None) -> int | None:
        """The number of a record of this run; None if it is another's."""
        if value is None or len(value) < STAMP_BYTES:
            return None
        run, number = _STAMP.unpack_from(value)
        return number if run == self.run and number < len(self.due_s) else None


class _Pace(NamedTuple):
    """Which record is due when."""

    first: int
    began_s: float
    rate: float

    def due_s(self, number: int) -> float:
        return self.began_s + (number - self.first) / self.rate


async def _woken_s(due_s: float, early_s: float) -> float:
    """Waits until ``due_s``; when that wait ended. Some loops end it a little early."""
    while early_s > 0:
        await asyncio.sleep(early_s)
        early_s = due_s - time.monotonic()
    return due_s - early_s


def uncounted(_: Numbers) -> None:
    """For records that do not count."""


def warm_up_of(given: int | None, records: int) -> int:
    """How many records are sent or read before it counts: a tenth, at most 10,000."""
    return min(records // 10, 10_000) if given is None else given
