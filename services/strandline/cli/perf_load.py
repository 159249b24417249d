"""What `strandline perf` sends, and when: values of one size, at a rate or as fast as the producer takes them.

Invariant: a record counts from the moment it was due, not from when there was room to send it, so that a cluster that
stalls for a second is not reported as one slow record (coordinated omission).
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strandline.cli.failures import CommandFailed
from strandline.core.errors import Refused

if TYPE_CHECKING:
    from strandline.client import Producer, RecordMetadata, SendFailed

_STAMP = struct.Struct(">8sQ")
STAMP_BYTES = _STAMP.size
"""A run's random name and a record's number, which begin the values of an end-to-end run."""

_NOISE_BYTES = 1 << 20
_YIELD_EVERY = 256


@dataclass(slots=True)
class Load:
    """The records of one run, numbered from 0; ``due_s`` has when each was due, by the monotonic clock."""

    topic: str
    records: int
    size_bytes: int
    rate: float | None
    run: bytes = field(default_factory=lambda: os.urandom(8))
    due_s: array[float] = field(default_factory=lambda: array("d"))
    failure: str = ""
    _noise: bytes = b""

    async def send(self, producer: Producer, done: Callable[[int], None]) -> None:
        """Sends what is not sent yet, up to ``records``; ``done`` gets the number of each that was acknowledged.

        Raises:
            CommandFailed: a record was given up.
        """
        first, began_s = len(self.due_s), time.monotonic()
        for number in range(first, self.records):
            await self._send_one(producer, number, began_s, first, done)
            if self.failure:
                break
        await producer.flush()
        if self.failure:
            raise CommandFailed(self.failure)

    async def send_in_transactions(self, producer: Producer, done: Callable[[int], None], each_s: float) -> None:
        """As `send`, in transactions of ``each_s``; ``done`` gets the number of each record that was committed.

        Raises:
            CommandFailed: a transaction was not committed.
        """
        first, began_s = len(self.due_s), time.monotonic()
        while len(self.due_s) < self.records:
            of_this = len(self.due_s)
            try:
                async with producer.transaction():
                    ends_s = time.monotonic() + each_s
                    while len(self.due_s) < self.records:
                        await self._send_one(producer, len(self.due_s), began_s, first, lambda number: None)
                        if time.monotonic() >= ends_s:
                            break
            except Refused as refused:
                raise CommandFailed(self.failure or f"a transaction was not committed: {refused}") from refused
            for number in range(of_this, len(self.due_s)):
                done(number)

    async def _send_one(
        self, producer: Producer, number: int, began_s: float, first: int, done: Callable[[int], None]
    ) -> None:
        due_s = time.monotonic() if self.rate is None else began_s + (number - first) / self.rate
        if (early_s := due_s - time.monotonic()) > 0:
            await asyncio.sleep(early_s)
        elif number % _YIELD_EVERY == 0:
            await asyncio.sleep(0)
        self.due_s.append(due_s)
        await producer.send(self.topic, self.value(number), on_done=self._ending(number, done))

    def value(self, number: int) -> bytes:
        """Bytes that do not compress, another piece of them for each record; the stamp first, where it fits."""
        self._noise = self._noise or os.urandom(_NOISE_BYTES + self.size_bytes)
        at = number * 61 % _NOISE_BYTES
        noise = self._noise[at : at + self.size_bytes]
        return noise if self.size_bytes < STAMP_BYTES else _STAMP.pack(self.run, number) + noise[STAMP_BYTES:]

    def number_of(self, value: bytes | None) -> int | None:
        """The number of a record of this run; None if it is another's."""
        if value is None or len(value) < STAMP_BYTES:
            return None
        run, number = _STAMP.unpack_from(value)
        return number if run == self.run and number < len(self.due_s) else None

    def _ending(
        self, number: int, done: Callable[[int], None]
    ) -> Callable[[RecordMetadata | None, SendFailed | None], None]:
        def ended(where: RecordMetadata | None, failure: SendFailed | None) -> None:
            if failure is None:
                done(number)
            elif not self.failure:
                self.failure = f"record {number:,} was given up: {failure}"

        return ended


def warm_up_of(given: int | None, records: int) -> int:
    """How many records are sent or read before it counts: a tenth, at most 10,000."""
    return min(records // 10, 10_000) if given is None else given
