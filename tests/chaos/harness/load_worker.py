"""The clients of one namespace: a process that produces and consumes through faults and records the answers.

Invariant: an operation is written before it begins and again after it ended, by the machine's one monotonic clock
and outside of every node, so the history contains only what a client can know.

It takes commands as lines of JSON on stdin and answers with lines on stdout:

    {"pause": true} ... {"pause": false}   producers pause; "paused" once every send has ended
    {"burst": 100}                         every producer sends this many records without a pause
    {"read": {topic: [end, ...]}}          one more consumer reads everything up to there, then "read"
    {"stop": true}                         producers end; "produced" once every send has ended
    {"finish": {topic: [end, ...]}}        consumers read up to there and end, then "done"
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from harness.history_file import HistoryWriter, decode, encode
from harness.stale_client import StaleClient
from harness.tokens import shown

from strandline.client import Admin, Consumer, Delivery, Producer, SendFailed
from strandline.client.offsets import LATEST
from strandline.core.errors import ErrorCode, Refused
from strandline_sim.checks.history import RecordValue, SendOutcome

REQUEST_MS = 5_000
DELIVERY_MS = 15_000
_SEEKER_PAUSE_S = 0.1
_SEEK_EVERY_S = 1.0
_ASK_END_EVERY_S = 0.2
_POLL_MS = 200
_NOT_PERMITTED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.SASL_AUTHENTICATION_FAILED})
_SETTLING_S = 0.3


class Worker:
    """What one namespace runs, as ``wanted`` specifies (see `Load`)."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self.wanted = wanted
        self.bootstrap: str = wanted["bootstrap"]
        self.topics: dict[str, int] = wanted["topics"]
        self.history = HistoryWriter(Path(wanted["history"]))
        self.tls = shown(wanted["tls"], self.history.token)
        self.stopping = asyncio.Event()
        self.going = asyncio.Event()
        self.going.set()
        self.burst = 0
        """How many bursts were asked for, and of how many records."""
        self.burst_records = 0
        self.ends: dict[str, list[int]] | None = None
        self.ends_known = asyncio.Event()
        self.deliveries: set[asyncio.Task[None]] = set()
        self.rounds = 0
        self.draw = random.Random(wanted["seed"])

    async def run(self) -> None:
        """Runs until all records were produced and read."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._obey(tasks))
            producers = [tasks.create_task(work) for work in self._producers()]
            readers = [tasks.create_task(work) for work in self._readers()]
            say({"running": len(producers) + len(readers)})
            await asyncio.gather(*producers)
            await asyncio.gather(*self.deliveries)
            self.history.flush()
            say({"produced": True})
            await self.ends_known.wait()
            await asyncio.gather(*readers)
        self.history.close()
        say({"done": True})

    async def _obey(self, tasks: asyncio.TaskGroup) -> None:
        """Reads commands from stdin until the last one."""
        reader = await commands()
        while not self.ends_known.is_set():
            line = await reader.readline()
            if not line:
                raise RuntimeError("the driver is gone")
            match json.loads(line):
                case {"pause": True}:
                    self.going.clear()
                    tasks.create_task(self._say_when_quiet())
                case {"pause": False}:
                    self.going.set()
                case {"burst": records}:
                    self.burst, self.burst_records = self.burst + 1, records
                case {"read": ends}:
                    tasks.create_task(self._read_up_to(ends))
                case {"stop": True}:
                    self.stopping.set()
                    self.going.set()
                case {"finish": ends}:
                    self.ends = ends
                    self.ends_known.set()

    async def _say_when_quiet(self) -> None:
        """A producer that was about to send when the pause began has begun its send by now."""
        await asyncio.sleep(_SETTLING_S)
        await asyncio.gather(*self.deliveries)
        self.history.flush()
        say({"paused": True})

    async def _read_up_to(self, ends: dict[str, list[int]]) -> None:
        self.rounds += 1
        await self._tail(f"reader {self.rounds}", ends)
        self.history.flush()
        say({"read": True})

    def _producers(self) -> list[Coroutine[Any, Any, None]]:
        work = [self._produce(name, **settings) for name, settings in self.wanted["producers"].items()]
        stale = self.wanted["stale"]
        if stale:
            work.append(StaleClient(self.history, self.going, self.stopping, tls=self.wanted["tls"], **stale).run())
        return work

    def _readers(self) -> list[Coroutine[Any, Any, None]]:
        work = [self._tail(name) for name in self.wanted["consumers"]]
        work += [self._seek_about(name) for name in self.wanted["seekers"]]
        if self.wanted["asks_ends"]:
            work.append(self._ask_ends())
        return work

    async def _produce(self, client: str, *, topic: str, acks: int, pause_s: float) -> None:
        """Sends numbered values round robin; ends on request, after its sends have ended."""
        async with Producer(
            self.bootstrap,
            acks=acks,
            linger_ms=2,
            request_timeout_ms=REQUEST_MS,
            delivery_timeout_ms=DELIVERY_MS,
            max_block_ms=DELIVERY_MS,
            **self.tls,
        ) as producer:
            bursts, hurried = 0, 0
            for seq in itertools.count():
                await self.going.wait()
                if self.stopping.is_set():
                    break
                await self._send(producer, topic, RecordValue(client, seq), seq % self.topics[topic])
                if self.burst > bursts:
                    bursts, hurried = self.burst, self.burst_records
                hurried = max(0, hurried - 1)
                await asyncio.sleep(0.0 if hurried else pause_s)
            await producer.flush()

    async def _send(self, producer: Producer, topic: str, value: RecordValue, partition: int) -> None:
        self.history.send(value, topic, partition)
        try:
            delivery = await producer.send(topic, encode(value), partition=partition)
        except Refused as refused:
            self._note_refused(value.client, refused)
            self.history.sent(value, SendOutcome.DEFINITE)
            return
        task = asyncio.create_task(self._await(delivery, value))
        self.deliveries.add(task)
        task.add_done_callback(self.deliveries.discard)

    async def _await(self, delivery: Delivery, value: RecordValue) -> None:
        try:
            lies = await delivery
        except SendFailed as failed:
            self._note_refused(value.client, failed)
            self.history.sent(value, SendOutcome.DEFINITE if failed.is_definite else SendOutcome.INDEFINITE)
        else:
            self.history.sent(value, SendOutcome.OK, lies.offset)

    async def _tail(self, name: str, ends: dict[str, list[int]] | None = None) -> None:
        """Reads every partition from its first record to ``ends``, or to the last known end."""
        async with self._assigned(name) as consumer:
            while not _is_at(consumer, ends or self.ends):
                await self._take(name, consumer)

    @asynccontextmanager
    async def _assigned(self, name: str) -> AsyncIterator[Consumer]:
        """A consumer of every partition from its first record."""
        async with Consumer(self.bootstrap, max_wait_ms=_POLL_MS, **self.tls) as consumer:
            await consumer.assign(list(self.topics))
            for topic, partitions in self.topics.items():
                for index in range(partitions):
                    self.history.seek(name, topic, index, 0)
            yield consumer

    async def _take(self, name: str, consumer: Consumer) -> None:
        try:
            batches = await consumer.fetch_batches(timeout_ms=_POLL_MS)
        except Refused as refused:
            if not self._note_refused(name, refused):
                raise
            return
        for batch in batches:
            found = [(record.offset, decode(record.value)) for record in batch.records]
            self.history.read(name, batch.topic, batch.partition, found)

    def _note_refused(self, client: str, refused: Refused) -> bool:
        """Writes down that a client may not do what it did, if that is why it was refused."""
        is_about_who = refused.refusal.code in _NOT_PERMITTED
        if is_about_who:
            self.history.refused(client)
        return is_about_who

    async def _seek_about(self, name: str) -> None:
        """Seeks to a random committed offset of a random partition now and then, and reads a little from there.

        Only a little, because a history with all of it again and again would take longer to check than the run took.
        """
        async with self._assigned(name) as consumer:
            due_s = time.monotonic() + _SEEK_EVERY_S
            while not self.ends_known.is_set():
                await self._take(name, consumer)
                if time.monotonic() >= due_s:
                    due_s = time.monotonic() + _SEEK_EVERY_S
                    self._seek(name, consumer)
                await asyncio.sleep(_SEEKER_PAUSE_S)
                await self.going.wait()

    def _seek(self, name: str, consumer: Consumer) -> None:
        topic = self.draw.choice(sorted(self.topics))
        index = self.draw.randrange(self.topics[topic])
        end = consumer.high_watermark(topic, index)
        if end:
            offset = self.draw.randrange(end)
            consumer.seek(topic, index, offset)
            self.history.seek(name, topic, index, offset)

    async def _ask_ends(self) -> None:
        """Requests the partitions' ends continuously; unanswered requests prove nothing."""
        async with Admin(self.bootstrap, timeout_ms=2_000, **self.tls) as admin:
            while not self.ends_known.is_set():
                for topic in self.topics:
                    try:
                        invoked_s = time.monotonic()
                        answers = await admin.list_offsets(topic, timestamp_ms=LATEST)
                    except (ConnectionError, Refused, grpc.aio.AioRpcError, TimeoutError):
                        continue
                    for index, found in answers.items():
                        if found.offset is not None:
                            self.history.end(topic, index, found.offset, invoked_s)
                await asyncio.sleep(_ASK_END_EVERY_S)


def _is_at(consumer: Consumer, ends: dict[str, list[int]] | None) -> bool:
    """Whether a consumer has read up to these ends; never if they are not known yet."""
    if ends is None:
        return False
    positions = [(consumer.position(topic, index), end) for topic, row in ends.items() for index, end in enumerate(row)]
    return all(position is not None and position >= end for position, end in positions)


def say(news: dict[str, Any]) -> None:
    print(json.dumps(news), flush=True)


async def commands() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def stop_on_command(stopping: asyncio.Event) -> None:
    """Sets the event at the first line of stdin; without one the driver is gone, which ends the process."""
    if not await (await commands()).readline():
        raise RuntimeError("the driver is gone")
    stopping.set()


if __name__ == "__main__":
    asyncio.run(Worker(json.loads(sys.argv[1])).run())
