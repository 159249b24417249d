"""What was acknowledged and what was consumed: the two ledgers that the verdict is read from.

Invariant: a ledger only counts what happened; it judges nothing and corrects nothing, so a line that came
twice, too early or not at all stays visible to the end.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, BinaryIO, NamedTuple, Self

LINE_NUMBER = struct.Struct(">Q")
"""The key of every record of the demo: its line number, so that order and repetition can be seen."""

SILENCE_MS = 100.0
"""Shorter waits for an acknowledgement are no news."""


class Silence(NamedTuple):
    """A time in which a partition gave no acknowledgement although records were on their way. Monotonic ms."""

    partition: int
    from_ms: float
    to_ms: float

    @property
    def length_ms(self) -> float:
        """How long it was."""
        return self.to_ms - self.from_ms


@dataclass(slots=True)
class AckLedger:
    """Acknowledged offsets of each partition, and when acknowledgements were missing.

    Line i goes to partition i mod P as its record number i div P, and the topic is new: so the acknowledged
    offsets of a partition must be exactly 0 to its number of lines, each once and in order. That the record at
    an offset is that very line is what the reading side checks.
    """

    lines_of: list[int]
    """Lines of each partition."""
    acked: int = 0
    refused: int = 0
    twice: int = 0
    not_in_order: int = 0
    silences: list[Silence] = field(default_factory=list)
    ends: list[int] = field(init=False)
    last_heard_ms: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.ends = [0] * len(self.lines_of)
        self.last_heard_ms = [0.0] * len(self.lines_of)

    def begin(self, now_ms: float) -> None:
        """Sending begins, or goes on after a hold: from now on every partition waits."""
        self.last_heard_ms = [now_ms] * len(self.lines_of)

    def acknowledge(self, partition: int, base_offset: int | None, count: int, now_ms: float) -> None:
        """``count`` records were acknowledged, the first at ``base_offset``."""
        silence = Silence(partition, self.last_heard_ms[partition], now_ms)
        if silence.length_ms >= SILENCE_MS:
            self.silences.append(silence)
        self.last_heard_ms[partition] = now_ms
        self.acked += count
        end = self.ends[partition]
        first = end if base_offset is None else base_offset
        if first < end:
            self.twice += min(count, end - first)
        if first != end:
            self.not_in_order += 1
        self.ends[partition] = max(end, first + count)

    def refuse(self, count: int) -> None:
        """``count`` records were given up."""
        self.refused += count

    @property
    def missing(self) -> int:
        """Lines that were never acknowledged."""
        return sum(self.lines_of) - self.acked + self.twice


@dataclass(slots=True)
class ReadLedger:
    """Consumed records by line, their place and order, and their bytes spooled to one file per partition."""

    lines: int
    spools: list[BinaryIO]
    consumed: int = 0
    twice: int = 0
    not_in_order: int = 0
    strangers: int = 0
    """Records that are not the line which belongs at their offset."""
    _seen: bytearray = field(init=False)
    _next_offset: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._seen = bytearray(self.lines)
        self._next_offset = [0] * len(self.spools)

    def take(self, partition: int, offset: int, key: bytes | None, value: bytes) -> None:
        """One record was read."""
        self.consumed += 1
        line_number = offset * len(self.spools) + partition
        if line_number >= self.lines or key != LINE_NUMBER.pack(line_number):
            self.strangers += 1
            return
        if self._seen[line_number]:
            self.twice += 1
        self._seen[line_number] = 1
        if offset != self._next_offset[partition]:
            self.not_in_order += 1
        self._next_offset[partition] = offset + 1
        self.spools[partition].write(value)

    @property
    def missing(self) -> int:
        """Lines that were never consumed."""
        return self._seen.count(0)


# ---- reports
# What the demo's producer and consumer processes tell their parent: one json line each, many times a second.
#
# Invariant: a report is the whole state of its ledger, so that losing or merging reports loses nothing; the last
# one has ``done`` set and comes only after everything was sent and acknowledged, or read.

REPORT_EVERY_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    done: bool = False

    @classmethod
    def of(cls, ledger: AckLedger | ReadLedger, **given: Any) -> Self:
        """The ledger's state, and what is ``given`` besides."""
        state = {each.name: getattr(ledger, each.name) for each in fields(cls) if hasattr(ledger, each.name)}
        return cls(**state | given)


@dataclass(frozen=True, slots=True, kw_only=True)
class AckReport(_Report):
    """The producing side. Times are monotonic ms, which all processes of a machine share."""

    acked: int = 0
    refused: int = 0
    twice: int = 0
    missing: int = 0
    not_in_order: int = 0
    began_ms: float = 0.0
    at_ms: float = 0.0
    held_ms: float = 0.0
    """How long nothing was sent on purpose."""
    is_held: bool = False
    last_heard_ms: Sequence[float] = ()
    silences: Sequence[Silence] = ()

    @classmethod
    def parse(cls, line: bytes) -> AckReport:
        """A report from its json line."""
        content = json.loads(line)
        return cls(silences=[Silence(*entry) for entry in content.pop("silences")], **content)

    @property
    def sending_s(self) -> float:
        """How long lines were on their way, in seconds."""
        return max(self.at_ms - self.began_ms - self.held_ms, 1.0) / 1000

    @property
    def longest_silence_ms(self) -> float:
        """The longest time that a partition gave no acknowledgement; 0 if none was worth noting."""
        return max((silence.length_ms for silence in self.silences), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReport(_Report):
    """The consuming side."""

    consumed: int = 0
    twice: int = 0
    missing: int = 0
    not_in_order: int = 0
    strangers: int = 0

    @classmethod
    def parse(cls, line: bytes) -> ReadReport:
        """A report from its json line."""
        return cls(**json.loads(line))


def tell(report: AckReport | ReadReport) -> None:
    """Prints a report, at once."""
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    sys.stdout.flush()
