"""One member of a group: a process that subscribes, writes down each record that it is given, and commits behind it.

Invariant: what a record is worked on means that its line is in the kernel, and a commit is sent only behind such lines;
`kill -9` at any moment leaves a history that is true. Each commit has a serial of its own as its metadata.

It ends with the line {"stop": true} on stdin, having committed and left the group, or with the driver.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from harness.history_file import decode
from harness.load_worker import say, stop_on_command
from harness.member_history_file import GroupHistoryWriter

from strandline import client
from strandline.core.errors import Outcome, Refusal, Refused
from strandline.core.types import Offset
from strandline_sim.checks.group_history import CommitOutcome

_POLL_MS = 200
_MAX_RECORDS = 200
_COMMIT_EVERY_S = 0.2
_REQUEST_MS = 5_000
_FETCH_S = 2.0
"""How long the committed offsets of what was assigned are waited for before it is read without a look at them."""
_Offsets = dict[Any, client.OffsetAndMetadata]
"""Offsets by `TopicPartition`."""


class Member(client.RebalanceListener):
    """One life of one member, as ``wanted`` specifies (see `Group`)."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self._name: str = wanted["name"]
        self._topic: str = wanted["topic"]
        self._history = GroupHistoryWriter(Path(wanted["history"]))
        self._consumer: client.Consumer[bytes, bytes] = client.Consumer(
            wanted["bootstrap"],
            group=wanted["group"],
            auto_commit=False,
            session_timeout_ms=wanted["session_timeout_ms"],
            rebalance_timeout_ms=wanted["rebalance_timeout_ms"],
            request_timeout_ms=_REQUEST_MS,
            max_wait_ms=_POLL_MS,
        )
        self._stopping = asyncio.Event()
        self._worked_on: dict[client.TopicPartition, Offset] = {}
        """The positions behind what was worked on, of what is this member's now."""
        self._asked: dict[client.TopicPartition, Offset] = {}
        self._serial = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(stop_on_command(self._stopping))
            async with self._consumer as consumer:
                await consumer.subscribe(self._topic, listener=self)
                say({"running": self._name})
                due_s = 0.0
                while not self._stopping.is_set():
                    asked_s = time.monotonic()
                    self._work_on(asked_s, await consumer.poll(timeout_ms=_POLL_MS, max_records=_MAX_RECORDS))
                    if time.monotonic() >= due_s:
                        due_s = time.monotonic() + _COMMIT_EVERY_S
                        self._commit_news()
        self._history.close()
        say({"done": True})

    def _work_on(self, asked_s: float, records: Sequence[client.ConsumerRecord[bytes, bytes]]) -> None:
        partition_of = attrgetter("topic", "partition")
        for at, of in groupby(sorted(records, key=partition_of), key=partition_of):
            tp, found = client.TopicPartition(*at), list(of)
            self._history.given(asked_s, self._name, tp, [(one.offset, decode(one.value)) for one in found])
            self._worked_on[tp] = Offset(found[-1].offset + 1)

    def _commit_news(self) -> None:
        news = {tp: offset for tp, offset in self._worked_on.items() if self._asked.get(tp) != offset}
        if news:
            self._consumer.commit_nowait(self._write_down(news), self._ended)

    def _write_down(self, offsets: Mapping[client.TopicPartition, Offset]) -> _Offsets:
        self._serial += 1
        self._asked.update(offsets)
        serial = f"{self._name}/{self._serial}"
        for tp, offset in offsets.items():
            self._history.commit(self._name, serial, tp, offset)
        self._history.flush()
        return {tp: client.OffsetAndMetadata(offset, serial) for tp, offset in offsets.items()}

    def _ended(self, offsets: _Offsets, failed: client.CommitFailed | None) -> None:
        for tp, one in offsets.items():
            refusal = failed.refused.get(tp) if failed is not None else None
            self._history.committed(self._name, one.metadata, tp, _outcome(refusal))
            if refusal is not None and self._asked.get(tp) == one.offset:
                del self._asked[tp]

    async def on_assigned(self, partitions: Sequence[client.TopicPartition]) -> None:
        for tp in partitions:
            self._history.taken(self._name, tp)
        asked_s = time.monotonic()
        try:
            async with asyncio.timeout(_FETCH_S):
                found = await self._consumer.committed(*partitions)
        except (Refused, TimeoutError):
            return
        for tp, one in found.items():
            serial, offset = (None, None) if one is None else (one.metadata, one.offset)
            self._history.fetched(asked_s, tp, serial, offset)

    async def on_revoked(self, partitions: Sequence[client.TopicPartition]) -> None:
        worked_on = {tp: self._worked_on[tp] for tp in partitions if tp in self._worked_on}
        if worked_on:
            offsets = self._write_down(worked_on)
            try:
                await self._consumer.commit(offsets)
            except client.CommitFailed as failed:
                self._ended(offsets, failed)
            else:
                self._ended(offsets, None)
        self._drop(partitions, "revoked")

    async def on_lost(self, partitions: Sequence[client.TopicPartition]) -> None:
        self._drop(partitions, "lost")

    def _drop(self, partitions: Sequence[client.TopicPartition], how: str) -> None:
        for tp in partitions:
            self._worked_on.pop(tp, None)
            self._asked.pop(tp, None)
            self._history.dropped(self._name, tp, how)


def _outcome(refusal: Refusal | None) -> CommitOutcome:
    if refusal is None:
        return CommitOutcome.DONE
    return CommitOutcome.NOT_WRITTEN if refusal.outcome is Outcome.NOT_APPENDED else CommitOutcome.UNKNOWN


if __name__ == "__main__":
    asyncio.run(Member(json.loads(sys.argv[1])).run())
