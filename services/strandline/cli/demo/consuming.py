"""The demo's consumer, a process of its own: reads along, checks every record's place, spools it, and reports.

Run as `python -m strandline.cli.demo.consuming BOOTSTRAP TOPIC PARTITIONS LINES DIRECTORY`. Invariant: it knows
nothing of the file but its number of lines; what it spools comes from the cluster alone.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from strandline.cli.demo.ledgers import REPORT_EVERY_S, ReadLedger, ReadReport, tell
from strandline.client import Consumer


def spool_path(directory: Path, partition: int) -> Path:
    """Where the records of a partition are kept."""
    return directory / f"consumed-{partition}.txt"


async def run(bootstrap: str, topic: str, ledger: ReadLedger) -> None:
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


def main(words: list[str]) -> int:
    """Runs the consumer; returns the exit code."""
    bootstrap, topic, partitions, lines, directory = words
    with ExitStack() as stack:
        paths = [spool_path(Path(directory), partition) for partition in range(int(partitions))]
        spools = [stack.enter_context(path.open("wb")) for path in paths]
        ledger = ReadLedger(lines=int(lines), spools=list(spools))
        asyncio.run(run(bootstrap, topic, ledger))
    tell(ReadReport.of(ledger, done=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
