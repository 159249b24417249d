"""What members of a group write down: lines as in `history_file`, and one file for each life of a member.

    ["taken", at, member, topic, partition]
    ["dropped", at, member, topic, partition, how]
    ["given", asked, at, member, topic, partition, [[offset, client, seq], ...]]
    ["commit", at, member, serial, topic, partition, offset]
    ["committed", at, member, serial, topic, partition, outcome]
    ["fetched", asked, at, topic, partition, serial, offset]

A commit has a line before it is sent and one after it ended, and one without the second is still open. ``serial`` goes
with the commit as its metadata, so that a reader of an offset knows whose it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby
from pathlib import Path
from typing import Any

from harness.history_file import HistoryWriter

from strandline.client import TopicPartition
from strandline_sim.checks.group_history import CommitOutcome
from strandline_sim.checks.history import Place, Read, Value
from strandline_sim.checks.member_history import Commit, Fetch, Given, MemberOperation, Share, Taken


class GroupHistoryWriter(HistoryWriter):
    """Writes down what one member, or somebody who asks for committed offsets, did and saw."""

    def taken(self, member: str, at: TopicPartition) -> None:
        """A member was assigned a partition."""
        self._line(["taken", time.monotonic(), member, at.topic, at.partition])

    def dropped(self, member: str, at: TopicPartition, how: str) -> None:
        """The partition was taken from it."""
        self._line(["dropped", time.monotonic(), member, at.topic, at.partition, how])

    def given(self, asked_s: float, member: str, at: TopicPartition, found: Iterable[tuple[int, Value]]) -> None:
        """Records that a member was given, having asked at a time."""
        rows = [[int(offset), value.client, value.seq] for offset, value in found]
        self._line(["given", asked_s, time.monotonic(), member, at.topic, at.partition, rows])

    def commit(self, member: str, serial: str, at: TopicPartition, offset: int) -> None:
        """Before a commit is sent."""
        self._line(["commit", time.monotonic(), member, serial, at.topic, at.partition, int(offset)])

    def committed(self, member: str, serial: str, at: TopicPartition, outcome: CommitOutcome) -> None:
        """After it ended."""
        self._line(["committed", time.monotonic(), member, serial, at.topic, at.partition, outcome.value])

    def fetched(self, asked_s: float, at: TopicPartition, serial: str | None, offset: int | None) -> None:
        """A coordinator said what is committed."""
        row = [at.topic, at.partition, serial, None if offset is None else int(offset)]
        self._line(["fetched", asked_s, time.monotonic(), *row])


def member_operations(paths: Iterable[Path], group: str) -> list[MemberOperation]:
    """Histories of members of a group and of readers, as `strandline_sim.checks.member_history` checks them."""
    return [operation for path in paths for operation in _of_one_file(path, group)]


def _of_one_file(path: Path, group: str) -> Iterator[MemberOperation]:
    rows = _rows(path)
    ended = {tuple(row[2:6]): row for row in rows if row[0] == "committed"}
    for row in rows:
        match row:
            case ["taken", at, member, topic, partition]:
                yield Taken(member, Share(group, topic, partition), _us(at))
            case ["given", asked, at, member, topic, partition, found]:
                share = Share(group, topic, partition)
                for begin, end in _runs([offset for offset, _, _ in found]):
                    yield Given(member, share, begin, end, _us(asked), _us(at))
            case ["commit", at, member, serial, topic, partition, offset]:
                over = ended.get((member, serial, topic, partition))
                completed_us = _us(over[1]) if over else None
                outcome = CommitOutcome(over[6]) if over else CommitOutcome.UNKNOWN
                yield Commit(member, Share(group, topic, partition), offset, serial, _us(at), completed_us, outcome)
            case ["fetched", asked, at, topic, partition, serial, offset]:
                yield Fetch(Share(group, topic, partition), offset, serial, _us(asked), _us(at))


def member_reads(paths: Iterable[Path], topic: str) -> Iterator[Read]:
    """What members read of a topic, as `strandline_sim.checks.history` checks it.

    A member is another consumer each time that it takes a partition, for it may begin anywhere.
    """
    for path in paths:
        times: dict[int, int] = {}
        for row in _rows(path):
            match row:
                case ["taken", _, _, of, partition] if of == topic:
                    times[partition] = times.get(partition, 0) + 1
                case ["given", _, at, member, of, partition, found] if of == topic:
                    consumer = f"{member}, time {times.get(partition, 0)}"
                    for offset, client, seq in found:
                        yield Read(consumer, Place(partition, offset), Value(client, seq), at)


def _rows(path: Path) -> list[list[Any]]:
    """Every whole line; the last one of a killed member may be torn."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("]")]


def _runs(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Offsets that follow each other as ranges."""
    numbers = count()
    for _, found in groupby(offsets, key=lambda offset: offset - next(numbers)):
        run = list(found)
        yield run[0], run[-1] + 1


def _us(at_s: float) -> int:
    return int(at_s * 1e6)
