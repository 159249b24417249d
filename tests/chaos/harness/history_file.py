"""The file format of a history: one JSON array per line, the operation's name first; times are monotonic seconds.

Invariant: operations of a client are in the order in which it made them; a send has a line before it began and
one after it ended, and one without the second is still open.

    ["send", at, client, seq, topic, partition]
    ["sent", at, client, seq, outcome, offset]
    ["read", at, consumer, topic, partition, [[offset, client, seq], ...]]
    ["seek", consumer, topic, partition, offset]
    ["end", topic, partition, offset, invoked, completed]
    ["refused", at, client]        a rule, or its token, did not let it read or write
    ["token", at]                  a client was given a token
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from strandline.core.types import Offset
from strandline_sim.checks.history import EndAnswer, Operation, Read, RecordPlace, RecordValue, Seek, Send, SendOutcome

VALUE_BYTES = 1_000
"""Large enough that segments of 1 MiB roll during a run."""
_FLUSH_EVERY_S = 0.05
_LOOSE_FROM = 1_000
"""Partition numbers from here on, in what is judged, belong to the second topic, and so on."""


def encode(value: RecordValue) -> bytes:
    return f"{value.client}/{value.seq}/".encode().ljust(VALUE_BYTES, b".")


def decode(content: bytes | None) -> RecordValue:
    """The value in a record's bytes; a value that was never sent if they were damaged."""
    client, _, rest = (content or b"").decode("ascii", "replace").partition("/")
    seq, _, padding = rest.partition("/")
    if not seq.isdecimal() or padding.strip("."):
        return RecordValue(f"damaged: {content!r:.60}", -1)
    return RecordValue(client, int(seq))


class HistoryWriter:
    """Appends operations to a file; flushed several times a second, so that the driver sees them."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1 << 16)
        self._flushed_s = time.monotonic()

    def send(self, value: RecordValue, topic: str, partition: int) -> None:
        """Before a send begins."""
        self._line(["send", time.monotonic(), value.client, value.seq, topic, partition])

    def sent(self, value: RecordValue, outcome: SendOutcome, offset: int | None = None) -> None:
        """After it ended."""
        self._line(["sent", time.monotonic(), value.client, value.seq, outcome.value, offset])

    def read(
        self, consumer: str, topic: str, partition: int, found: Iterable[tuple[Offset | int, RecordValue]]
    ) -> None:
        rows = [[int(offset), value.client, value.seq] for offset, value in found]
        self._line(["read", time.monotonic(), consumer, topic, partition, rows])

    def seek(self, consumer: str, topic: str, partition: int, offset: int) -> None:
        self._line(["seek", consumer, topic, partition, offset])

    def end(self, topic: str, partition: int, offset: int, invoked_s: float) -> None:
        self._line(["end", topic, partition, int(offset), invoked_s, time.monotonic()])

    def refused(self, client: str) -> None:
        self._line(["refused", time.monotonic(), client])

    def token(self) -> None:
        self._line(["token", time.monotonic()])

    def flush(self) -> None:
        """Writes everything to the kernel."""
        self._file.flush()
        self._flushed_s = time.monotonic()

    def close(self) -> None:
        self._file.close()

    def _line(self, row: list[Any]) -> None:
        self._file.write(json.dumps(row, separators=(",", ":")) + "\n")
        if time.monotonic() - self._flushed_s > _FLUSH_EVERY_S:
            self.flush()


def new_lines(path: Path, position: int) -> tuple[list[bytes], int]:
    """The whole lines of a file that a client writes, from a position on, and the position behind them."""
    with path.open("rb") as source:
        source.seek(position)
        whole = source.read().rpartition(b"\n")[0]
    return (whole.split(b"\n"), position + len(whole) + 1) if whole else ([], position)


def operations(paths: Iterable[Path], topics: list[str], loose: frozenset[str]) -> Iterator[Operation]:
    """The histories of all clients in the form that `strandline_sim.checks.history` checks, read as they are taken.

    An acknowledgement in a topic of ``loose`` came with acks=1 and promises nothing: it counts as indefinite.
    """
    numbers = {topic: index * _LOOSE_FROM for index, topic in enumerate(topics)}
    return (operation for path in paths for operation in _of_one_file(path, numbers, loose))


def _of_one_file(path: Path, numbers: dict[str, int], loose: frozenset[str]) -> Iterator[Operation]:
    ended = {(row[2], row[3]): row for row in rows_of(path, b'["sent"')}
    for row in rows_of(path):
        match row:
            case ["send", at, client, seq, topic, partition]:
                yield _send(
                    at, RecordValue(client, seq), numbers[topic] + partition, ended.get((client, seq)), topic in loose
                )
            case ["read", at, consumer, topic, partition, found]:
                for offset, client, seq in found:
                    place = RecordPlace(numbers[topic] + partition, offset)
                    yield Read(consumer=consumer, place=place, value=RecordValue(client, seq), at_s=at)
            case ["seek", consumer, topic, partition, offset]:
                yield Seek(consumer=consumer, place=RecordPlace(numbers[topic] + partition, offset))
            case ["end", topic, partition, offset, invoked, completed]:
                where = numbers[topic] + partition
                yield EndAnswer(partition=where, offset=offset, invoked_s=invoked, completed_s=completed)


def rows_of(path: Path, beginning: bytes = b"") -> Iterator[list[Any]]:
    """The whole lines that begin so; a client that was killed leaves half a line at the end."""
    with path.open("rb") as source:
        for line in source:
            if line.endswith(b"]\n") and line.startswith(beginning):
                yield json.loads(line)


def _send(at: float, value: RecordValue, partition: int, end: list[Any] | None, is_loose: bool) -> Send:
    outcome = SendOutcome(end[4]) if end else SendOutcome.INDEFINITE
    if is_loose and outcome is SendOutcome.OK:
        outcome = SendOutcome.INDEFINITE
    return Send(
        value=value,
        partition=partition,
        invoked_s=at,
        completed_s=end[1] if end else None,
        outcome=outcome,
        offset=end[5] if end and outcome is SendOutcome.OK else None,
    )
