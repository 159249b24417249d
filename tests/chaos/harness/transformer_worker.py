"""One process that transforms: it reads as a member of a group, writes an output for each input, and commits both.

Invariant: a commit is asked for only when its line is in the kernel; `kill -9` at any moment leaves a history that is
true. Every tenth transaction is aborted when its records lie in the logs.

It ends with the line {"stop": true} on stdin, having left the group, or with the driver.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.history_file import decode, encode
from harness.load_worker import say, stop_on_command
from harness.member_history_file import Input, TransactionHistoryWriter

from strandline import client
from strandline.core.errors import Refused
from strandline_sim.checks.history import RecordValue
from strandline_sim.checks.transaction_history import TxnOutcome

_POLL_MS = 200
_MAX_RECORDS = 50
_REQUEST_MS = 5_000
_DELIVERY_MS = 15_000
_ABORTED_EVERY = 10


class _OneInTen(Exception):
    """The reason for which a transaction is aborted by its own process."""


class Transformer:
    """One life of one process, as ``wanted`` specifies (see `Transformers`)."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self._name: str = wanted["name"]
        self._inputs: str = wanted["inputs"]
        self._outputs: str = wanted["outputs"]
        self._partitions: int = wanted["partitions"]
        self._group: str = wanted["group"]
        self._transactional_id: str = wanted["transactional_id"]
        self._history = TransactionHistoryWriter(Path(wanted["history"]))
        self._producer: client.Producer[bytes, bytes] = client.Producer(
            wanted["bootstrap"],
            transactional_id=self._transactional_id,
            transaction_timeout_ms=wanted["transaction_timeout_ms"],
            linger_ms=2,
            request_timeout_ms=_REQUEST_MS,
            delivery_timeout_ms=_DELIVERY_MS,
            max_block_ms=_DELIVERY_MS,
        )
        self._consumer: client.Consumer[bytes, bytes] = client.Consumer(
            wanted["bootstrap"],
            group=self._group,
            auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=wanted["session_timeout_ms"],
            rebalance_timeout_ms=wanted["rebalance_timeout_ms"],
            request_timeout_ms=_REQUEST_MS,
            max_wait_ms=_POLL_MS,
        )
        self._stopping = asyncio.Event()
        self._count = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(stop_on_command(self._stopping))
            async with self._producer, self._consumer as consumer:
                await consumer.subscribe(self._inputs)
                say({"running": self._name})
                while not self._stopping.is_set():
                    records = await consumer.poll(timeout_ms=_POLL_MS, max_records=_MAX_RECORDS)
                    if records:
                        await self._transform(records)
        self._history.close()
        say({"done": True})

    async def _transform(self, records: Sequence[client.ConsumerRecord[bytes, bytes]]) -> None:
        self._count += 1
        name = f"{self._name}-{self._count}"
        # Outputs go to another partition than their input, so that a transaction has several.
        inputs = [
            Input(one.partition, one.offset, value, value.seq % self._partitions)
            for one in records
            for value in [decode(one.value)]
        ]
        transaction = await self._begun()
        if transaction is None:
            return
        self._history.begun(name, self._transactional_id, self._group, inputs)
        try:
            deliveries = await self._send(name, inputs)
            self._history.asked(name)
            await self._commit(transaction)
        except (client.TransactionAborted, _OneInTen):
            await transaction.abort()
            self._history.ended(name, TxnOutcome.ABORTED)
        else:
            self._history.ended(name, TxnOutcome.COMMITTED, [each.result().offset for each in deliveries])

    async def _begun(self) -> client.Transaction | None:
        """A transaction; None if it cannot begin now, and then the records that were polled are given again."""
        try:
            return await self._producer.transaction(consumer=self._consumer).__aenter__()
        except client.ProducerFenced:
            raise
        except Refused as refused:
            print(f"{self._transactional_id} waits for its coordinator: {refused}", file=sys.stderr)
            return None

    async def _send(self, name: str, inputs: Sequence[Input]) -> list[client.Delivery]:
        deliveries = [
            await self._producer.send(
                self._outputs, encode(RecordValue(name, index)), key=encode(one.value), partition=one.into
            )
            for index, one in enumerate(inputs)
        ]
        if self._count % _ABORTED_EVERY == 0:
            await self._producer.flush()
            raise _OneInTen
        return deliveries

    async def _commit(self, transaction: client.Transaction) -> None:
        while True:
            try:
                await transaction.commit()
            except client.OutcomeUnknown as unknown:
                print(f"{self._transactional_id} asks again: {unknown}", file=sys.stderr)
            else:
                return


if __name__ == "__main__":
    asyncio.run(Transformer(json.loads(sys.argv[1])).run())
