"""A member that reads a topic to its end, writes it in capitals, and commits once a line comes on its standard input.

Arguments: bootstrap address, group, topic to read, topic to write, number of records. It prints `ready` before it
waits, and then how its transaction ended: `committed`, or `aborted` and why. The test stops the process in between, and
itself copies with another member.
"""

from __future__ import annotations

import asyncio
import sys

from strandline.client import Consumer, Producer, TransactionAborted

SESSION_MS = 6_000
"""The shortest session of a member."""


async def copy(bootstrap: str, group: str, source: str, target: str, count: int, *, waits: bool) -> str:
    """Read, write, wait if it ``waits``, commit as the member of before; how that ended."""
    name = "zombie" if waits else "heir"
    async with (
        Producer(bootstrap, transactional_id=f"{name} {group}", linger_ms=1) as producer,
        Consumer(bootstrap, group=group, auto_commit=False, session_timeout_ms=SESSION_MS) as consumer,
    ):
        await consumer.subscribe(source)
        transaction = await producer.transaction().__aenter__()
        behind: dict[tuple[str, int], int] = {}
        n_read = 0
        while n_read < count:
            for record in await consumer.poll(300):
                assert record.value is not None
                await producer.send(target, record.value.upper(), partition=record.partition)
                behind[source, record.partition] = record.offset + 1
                n_read += 1
        await producer.flush()
        # Taken now: after the pause this process may already have heard that it is no member any more.
        await transaction.send_offsets(behind, consumer.group_metadata())
        if waits:
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
        try:
            await transaction.commit()
        except TransactionAborted as aborted:
            return f"aborted: {aborted.refusal.code.name}"
        return "committed"


if __name__ == "__main__":
    address, of_group, reads, writes, number = sys.argv[1:]
    print(asyncio.run(copy(address, of_group, reads, writes, int(number), waits=True)), flush=True)
