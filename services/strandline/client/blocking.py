"""How a blocking client passes its calls to an asynchronous one that runs in the thread for all of them.

Invariant: only that thread touches the asynchronous client; the one thing that the caller's thread takes from it is
records that were unpacked, one by one, and how many it took is settled before the next call does anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from strandline.client import consumer, delivery, transaction
from strandline.client.committed_offsets import Offsets
from strandline.client.cursor import Cursor
from strandline.client.delivery import RecordMetadata
from strandline.client.fetched import ConsumerRecord
from strandline.client.loop_thread import LoopThread, loop_thread
from strandline.client.membership import GroupMetadata
from strandline.core.types import Offset

P = ParamSpec("P")
T = TypeVar("T")


class Blocking:
    """What every blocking client is."""

    _thread: LoopThread | None = None

    def _run(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a coroutine function of the asynchronous client returns, or raises."""
        return self._run_within(None, function, *args, **kwargs)

    def _run_within(
        self, timeout_ms: int | None, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The same; ``timeout_ms``: after which it ends by itself, if it is given."""
        if self._thread is None:
            self._thread = loop_thread()
        return self._thread.run_within(timeout_ms, function, *args, **kwargs)

    def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for a function that does not wait."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self._run(call)


class Delivery:
    """What became of one record, or of a batch sent whole."""

    __slots__ = ("_delivery", "_owner")

    def __init__(self, owner: Blocking, found: delivery.Delivery) -> None:
        self._owner = owner
        self._delivery = found

    @property
    def done(self) -> bool:
        """Whether the end is known."""
        return self._delivery.done

    def result(self, timeout_ms: int | None = None) -> RecordMetadata:
        """Wait for the end; where the record lies.

        Raises:
            SendFailed: the record was given up.
            TimeoutError: after ``timeout_ms``; without it the delivery time-out ends the wait.
        """
        if self._delivery.done:
            return self._delivery.result()
        return self._owner._run_within(timeout_ms, self._wait, timeout_ms)

    async def _wait(self, timeout_ms: int | None) -> RecordMetadata:
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            return await self._delivery


class Transaction:
    """One transaction of a producer, for ``with``."""

    def __init__(self, owner: Blocking, found: transaction.Transaction, consumer: BlockingReader | None) -> None:
        self._owner = owner
        self._transaction = found
        self._consumer = consumer

    def __enter__(self) -> Self:
        self._owner._run(self._transaction.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._settle()
        self._owner._run(self._transaction.__aexit__, kind, error, trace)

    def send_offsets(self, offsets: Offsets, group: GroupMetadata | str) -> None:
        """Commit these positions for a group when the transaction is committed; a bare name is a group without members.

        Raises:
            Refused: INVALID_TXN_STATE, the transaction is not open.
        """
        self._owner._run(self._transaction.send_offsets, offsets, group)

    def commit(self) -> None:
        """Commit now; the end of the block does it too. After `OutcomeUnknown` it asks again.

        Raises:
            TransactionAborted: it could not be committed, and nothing of it counts; run the block again.
            ProducerFenced: another producer has the transactional id; end the process.
            OutcomeUnknown: the coordinator did not answer within ``delivery_timeout_ms``.
            Refused: INVALID_TXN_STATE, the transaction has ended.
        """
        self._settle()
        self._owner._run(self._transaction.commit)

    def abort(self) -> None:
        """Abort now; an exception that leaves the block does it too. After the end it does nothing.

        Raises:
            ProducerFenced: another producer has the transactional id; it is aborted all the same.
        """
        self._settle()
        self._owner._run(self._transaction.abort)

    def _settle(self) -> None:
        """The consumer's positions are behind what was taken from it."""
        if self._consumer is not None:
            self._consumer._call(lambda: None)


class BlockingReader(Blocking):
    """What a blocking consumer is: one that also takes records in the thread of its caller."""

    _inner: consumer.Consumer[Any, Any]
    # Whose records are taken now, its count of seeks then, and the offset behind the last one that was.
    _cursor: Cursor | None = None
    _generation = 0
    _next_offset: Offset | None = None

    def _run_within(
        self, timeout_ms: int | None, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        async def settled() -> T:
            self._settle()
            return await function(*args, **kwargs)

        return super()._run_within(timeout_ms, settled)

    def _settle(self) -> None:
        """The position is behind what was taken, unless a seek went elsewhere meanwhile."""
        cursor, offset = self._cursor, self._next_offset
        if cursor is not None and offset is not None and cursor.generation == self._generation:
            first, cursor.position = cursor.position, offset
            if self._inner._group is not None:
                # All but the last one have been worked on; that one has when more is asked for.
                self._inner._group.step()
                if first is not None and first < offset - 1:
                    self._inner._group.gave(cursor, first)
                    self._inner._group.step()
                self._inner._group.gave(cursor, Offset(offset - 1))
        # Another call may pause or move it: what comes next is asked for again.
        self._cursor = self._next_offset = None

    async def _advance(self) -> bool:
        """Have records to take; False when finished."""
        self._inner._step()
        cursor = self._inner._current
        if (cursor is None or not cursor.unpacked) and not await self._inner._next_chunk():
            return False
        self._cursor = self._inner._current
        assert self._cursor is not None
        self._generation = self._cursor.generation
        return True

    def _take(self) -> ConsumerRecord[Any, Any]:
        """The next record.

        Raises:
            StopIteration: everything was given.
        """
        incoming = self._inner._incoming
        while True:
            cursor = self._cursor
            try:
                # Alone in this thread; a seek that empties it in the other one is found out below.
                record = cursor.unpacked.popleft() if cursor is not None else None
            except IndexError:
                record = None
            if cursor is None or record is None:
                if not self._run(self._advance):
                    raise StopIteration
                continue
            self._next_offset = Offset(record.offset + 1)
            if incoming is None:
                return ConsumerRecord(cursor.topic, cursor.tp.partition, *record)
            converted = incoming.convert(cursor.topic, cursor.tp.partition, record)
            for given in incoming.intercept([converted]):
                return given
