"""The demo's producer and consumer, each a process of its own: one sends every line, the other reads along.

Run as `python -m strandline.cli.demo.children produce BOOTSTRAP TOPIC PARTITIONS FILE HOLD_AT`, or as `... consume
BOOTSTRAP TOPIC PARTITIONS LINES DIRECTORY`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from strandline.cli.demo.ledgers import LINE_NUMBER, REPORT_EVERY_S, AckLedger, AckReport, ReadLedger, ReadReport, tell
from strandline.cli.demo.load import Corpus, open_corpus
from strandline.client import BatchOutcome, Consumer, Producer
from strandline.core.types import Acks

# ---- producing
# Sends every line with acks=all, idempotent, and reports; ends with 1 if a line was given up. Before line HOLD_AT it
# waits for a line on stdin, with everything before acknowledged.
#
# Invariant: it keeps no record that is acknowledged, so its memory does not grow with the file.

_BUFFER_BYTES = 8 << 20
"""How far sending may run ahead of the acknowledgements: little, so that half way means half way."""


class Producing:
    """The lines of a file on their way into a topic."""

    def __init__(self, corpus: Corpus, topic: str, bootstrap: str, hold_at: int) -> None:
        self.corpus = corpus
        self.hold_at = hold_at
        self.topic = topic
        self.bootstrap = bootstrap
        self.ledger = AckLedger(lines_of=[corpus.lines_of(partition) for partition in range(corpus.partitions)])
        self.began_ms = self.held_ms = 0.0
        self.is_held = False

    async def run(self) -> bool:
        """Sends everything, reporting on the way; whether every line was acknowledged."""
        producer = Producer(
            self.bootstrap,
            acks=Acks.ALL,
            idempotent=True,
            buffer_bytes=_BUFFER_BYTES,
            on_delivery=self._ended,
        )
        async with producer:
            self.began_ms = now_ms()
            self.ledger.begin(self.began_ms)
            reporting = asyncio.create_task(self._report())
            await self._send(producer)
            await producer.flush()
            reporting.cancel()
        tell(self._state(done=True))
        return self.ledger.refused == 0

    async def _send(self, producer: Producer) -> None:
        partitions, pack, send, topic = self.corpus.partitions, LINE_NUMBER.pack, producer.send, self.topic
        for line_number, line in enumerate(self.corpus.read()):
            if line_number == self.hold_at:
                await self._hold(producer)
            await send(topic, line, pack(line_number), partition=line_number % partitions)

    async def _hold(self, producer: Producer) -> None:
        await producer.flush()
        held_at_ms, self.is_held = now_ms(), True
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        self.is_held = False
        self.held_ms = now_ms() - held_at_ms
        self.ledger.begin(now_ms())

    def _ended(self, outcome: BatchOutcome) -> None:
        if outcome.refusal is not None:
            self.ledger.refuse(outcome.record_count)
            print(f"{outcome.topic}-{outcome.partition}: {outcome.refusal}", file=sys.stderr)
        else:
            self.ledger.acknowledge(outcome.partition, outcome.base_offset, outcome.record_count, now_ms())

    async def _report(self) -> None:
        while True:
            tell(self._state(done=False))
            await asyncio.sleep(REPORT_EVERY_S)

    def _state(self, *, done: bool) -> AckReport:
        given = {"began_ms": self.began_ms, "at_ms": now_ms(), "held_ms": self.held_ms, "is_held": self.is_held}
        return AckReport.of(self.ledger, **given, done=done)


def now_ms() -> float:
    """Monotonic time in ms."""
    return time.monotonic() * 1000


def _produce(bootstrap: str, topic: str, partitions: str, path: str, hold_at: str) -> int:
    corpus = open_corpus(Path(path), int(partitions))
    return 0 if asyncio.run(Producing(corpus, topic, bootstrap, int(hold_at)).run()) else 1


# ---- consuming
# Reads along, checks every record's place, spools it, and reports.
#
# Invariant: it knows nothing of the file but its number of lines; what it spools comes from the cluster alone.


def spool_path(directory: Path, partition: int) -> Path:
    """Where the records of a partition are kept."""
    return directory / f"consumed-{partition}.txt"


async def _read_along(bootstrap: str, topic: str, ledger: ReadLedger) -> None:
    """Reads until as many records have come as the file has lines."""
    reported_s = 0.0
    async with Consumer(bootstrap) as consumer:
        await consumer.assign([topic])
        while ledger.consumed < ledger.lines:
            for fetched in await consumer.fetch_batches():
                for record in fetched.records:
                    ledger.take(fetched.partition, record.offset, record.key, record.value or b"")
            if time.monotonic() - reported_s >= REPORT_EVERY_S:
                reported_s = time.monotonic()
                tell(ReadReport.of(ledger, done=False))


def _consume(bootstrap: str, topic: str, partitions: str, lines: str, directory: str) -> int:
    with ExitStack() as stack:
        paths = [spool_path(Path(directory), partition) for partition in range(int(partitions))]
        spools = [stack.enter_context(path.open("wb")) for path in paths]
        ledger = ReadLedger(lines=int(lines), spools=list(spools))
        asyncio.run(_read_along(bootstrap, topic, ledger))
    tell(ReadReport.of(ledger, done=True))
    return 0


if __name__ == "__main__":
    sys.exit({"produce": _produce, "consume": _consume}[sys.argv[1]](*sys.argv[2:]))
