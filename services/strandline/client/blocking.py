"""Passes the calls of a blocking client to an asynchronous one, in one thread for all clients.

Invariant: only that thread uses the asynchronous client, except that the caller's thread takes unpacked records from
it one by one, and how many it took is settled before the next call does anything.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from strandline.client import consumer
from strandline.client.background import send_what_is_held
from strandline.client.consume.cursor import Cursor
from strandline.client.groups.committed_offsets import Offsets
from strandline.client.groups.membership import GroupMetadata
from strandline.client.log import log
from strandline.client.produce import delivery, transaction
from strandline.client.produce.delivery import RecordMetadata
from strandline.client.records import ConsumerRecord
from strandline.core.types import Offset
from strandline.rpc.channels import ForkedAfterUse

# ---- loop_thread
# The thread in which a process without an event loop of its own runs its clients.
#
# Invariants: a process has at most one such thread, created when it is first needed and again in a forked child. No
# call waits for the thread of another process, which does not exist here, or for a thread that a function of the user
# blocks.

_LAST_WORK_S = 5.0
"""How long the exit of the process waits for the thread."""
_LAST_FLUSH_MS = 4_000
"""How much of that its producers have to send their buffers."""
STUCK_S = 5.0
"""A thread that runs nothing for this long is stuck in a function of the user; callers stop waiting for it."""
_GRACE_S = 0.5
"""The same, once the call should have ended by itself."""


class LoopThread:
    """An event loop that runs in a thread of its own."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._is_closing = False
        # A daemon, so that a client that was not closed does not keep the process alive.
        self._thread = threading.Thread(target=self._run_forever, name="strandline-client", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise if the caller cannot wait for it.

        Raises:
            ForkedAfterUse: it belongs to the process from which this one was forked.
            RuntimeError: the caller runs in this thread, and would wait for itself.
        """
        if self._pid != os.getpid():
            raise ForkedAfterUse(
                f"this client was started in process {self._pid} and cannot be used in process {os.getpid()}, which "
                f"was forked from it; start clients after the fork (in gunicorn: in the worker)"
            )
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "a callback of a client cannot wait for a client; hand the work to another thread, for example by a "
                "queue.Queue"
            )

    def run(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `run_within`, without a time-out."""
        return self.run_within(None, function, *args, **kwargs)

    def run_within(
        self, timeout_ms: int | None, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a coroutine function in the thread; it ends by itself after ``timeout_ms``, if that is given.

        Raises:
            ForkedAfterUse, RuntimeError: as `check`; RuntimeError also if the call was cancelled from outside.
            TimeoutError: the thread is stuck; the message says where.
        """
        self.check()
        # Created before anything starts: Ctrl-C may interrupt this thread between any two steps from here on, and must
        # not leave work behind that no call waits for.
        waited: Future[T] = Future()
        try:
            self._loop.call_soon_threadsafe(self._begin, lambda: function(*args, **kwargs), waited)
            return self._result(waited, timeout_ms)
        except BaseException:
            waited.cancel()
            raise

    def _result(self, waited: Future[T], timeout_ms: int | None) -> T:
        patience_s, again_s = (STUCK_S, STUCK_S) if timeout_ms is None else (timeout_ms / 1000 + _GRACE_S, _GRACE_S)
        ran: threading.Event | None = None
        while True:
            try:
                # Not result(): a TimeoutError that the call itself has raised would pass for the end of this wait.
                waited.exception(patience_s)
            except CancelledError:
                raise RuntimeError("the call was cancelled with all tasks of its thread; the process may end") from None
            except TimeoutError:
                if ran is not None and not ran.is_set():
                    raise TimeoutError(
                        f"the thread of this process's clients has run nothing for {patience_s:g} s; it is in "
                        f"{self._place()}; functions that are given to a client must not block"
                    ) from None
                # The call may just take long. Only a thread that does not run this either is stuck.
                patience_s, ran = again_s, threading.Event()
                self._loop.call_soon_threadsafe(ran.set)
            else:
                return waited.result()

    def _place(self) -> str:
        """Where the thread is now, the innermost function first."""
        stack = traceback.extract_stack(sys._current_frames().get(self._thread.ident or 0))[-3:]
        return ", called by ".join(f"{one.name} ({one.filename}:{one.lineno})" for one in reversed(stack))

    def _begin(self, work: Callable[[], Coroutine[Any, Any, T]], waited: Future[T]) -> None:
        # The caller was interrupted before this thread came to its call.
        if waited.cancelled():
            return
        task = self._loop.create_task(work())
        task.add_done_callback(lambda _: _hand_over(task, waited))
        waited.add_done_callback(lambda _: self._loop.call_soon_threadsafe(task.cancel) if waited.cancelled() else None)

    def close(self) -> None:
        """End the loop, and wait for its thread."""
        if self._pid == os.getpid() and self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)
            self._thread.join(_LAST_WORK_S)

    async def _end(self) -> None:
        await send_what_is_held(_LAST_FLUSH_MS)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self._is_closing = True
        self._loop.stop()

    def _run_forever(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._is_closing:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                # From a function of the user; it would end this thread instead of the process, which waits for it.
                log.exception("a function that was given to a client cannot end the process")
        self._loop.close()


def _hand_over(task: asyncio.Task[T], waited: Future[T]) -> None:
    """Wake the waiting thread, unless it gave up."""
    if task.cancelled():
        waited.cancel()
    if not waited.set_running_or_notify_cancel():
        return
    error = task.exception()
    if error is not None:
        waited.set_exception(error)
    else:
        waited.set_result(task.result())


_lock = threading.Lock()
_of_this_process: LoopThread | None = None


def loop_thread() -> LoopThread:
    """The thread of this process."""
    global _of_this_process
    # Two threads may make the first call at once.
    with _lock:
        if _of_this_process is None:
            _of_this_process = LoopThread()
            atexit.register(_of_this_process.close)
        return _of_this_process


def _forget_the_parents() -> None:
    """In a forked child: its parent's thread is not here, so its lock will never be released."""
    global _lock, _of_this_process
    _lock, _of_this_process = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_the_parents)


P = ParamSpec("P")
T = TypeVar("T")


class Blocking:
    """Base of all blocking clients."""

    _thread: LoopThread | None = None

    def _run(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine function of the asynchronous client and wait for its result."""
        return self._run_within(None, function, *args, **kwargs)

    def _run_within(
        self, timeout_ms: int | None, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The same, for a function that ends by itself after ``timeout_ms``, if that is given."""
        # With the first call and not before: a client that is made before a fork may then be started in the child.
        if self._thread is None:
            self._thread = loop_thread()
        return self._thread.run_within(timeout_ms, function, *args, **kwargs)

    def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same, for a function that does not wait."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self._run(call)


class Delivery:
    """The delivery of one record, or of a batch sent whole."""

    __slots__ = ("_delivery", "_owner")

    def __init__(self, owner: Blocking, found: delivery.Delivery) -> None:
        self._owner = owner
        self._delivery = found

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._delivery.done

    def result(self, timeout_ms: int | None = None) -> RecordMetadata:
        """Wait for the end; returns the record's metadata.

        Raises:
            SendFailed: the record was given up.
            TimeoutError: after ``timeout_ms``; without it the delivery time-out ends the wait.
        """
        # No round trip to the other thread, so a loop over deliveries that have ended costs little.
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
        # First: the offsets that are committed with it are those behind the records that were taken in this thread.
        self._settle()
        self._owner._run(self._transaction.__aexit__, kind, error, trace)

    def send_offsets(self, offsets: Offsets, group: GroupMetadata | str) -> None:
        """Commit these offsets for a group when the transaction commits; a plain name means a group without members.

        Raises:
            Refused: INVALID_TXN_STATE, the transaction is not open.
        """
        self._owner._run(self._transaction.send_offsets, offsets, group)

    def commit(self) -> None:
        """Commit now; the end of the block does it too. After `OutcomeUnknown` it asks again.

        Raises:
            TransactionAborted: it could not be committed, so none of it counts; run the block again.
            ProducerFenced: another producer has the transactional id; end the process.
            OutcomeUnknown: the coordinator did not answer within ``delivery_timeout_ms``.
            Refused: INVALID_TXN_STATE, the transaction has ended.
        """
        self._settle()
        self._owner._run(self._transaction.commit)

    def abort(self) -> None:
        """Abort now; an exception that leaves the block does it too. After the end it does nothing.

        Raises:
            ProducerFenced: another producer has the transactional id; the transaction is aborted all the same.
        """
        self._settle()
        self._owner._run(self._transaction.abort)

    def _settle(self) -> None:
        """Settle the positions of the transaction's consumer after the records taken from it."""
        if self._consumer is not None:
            self._consumer._call(lambda: None)


class BlockingReader(Blocking):
    """Base of the blocking consumer, which also takes records in the caller's thread."""

    _inner: consumer.Consumer[Any, Any]
    # The partition whose records are being taken, its count of seeks then, and the offset after the last taken one.
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
        """Set the position after the taken records, unless a seek has moved it meanwhile."""
        cursor, offset = self._cursor, self._next_offset
        if cursor is not None and offset is not None and cursor.generation == self._generation:
            first, cursor.position = cursor.position, offset
            if self._inner._group is not None:
                # All but the last one have been processed; that one counts as processed when more is requested.
                self._inner._group.step()
                if first is not None and first < offset - 1:
                    self._inner._group.gave(cursor, first)
                    self._inner._group.step()
                self._inner._group.gave(cursor, Offset(offset - 1))
        # Another call may pause or move it, so the next records are requested again.
        self._cursor = self._next_offset = None

    async def _advance(self) -> bool:
        """Make records available; returns False when finished."""
        try:
            cursor = await self._inner._next_served()
        except StopAsyncIteration:
            return False
        if self._inner._group is not None:
            # They are in the caller's hand until its next call, so the partition is not given up before.
            self._inner._group.gave(cursor, cursor.unpacked[0].offset)
        self._cursor, self._generation = cursor, cursor.generation
        return True

    def _may_take(self, cursor: Cursor) -> bool:
        """Whether a record of this partition may be given now, as `Consumer.__anext__` judges it."""
        membership = self._inner._membership
        return not cursor.is_withheld and (membership is None or membership.gives_on())

    def _take(self) -> ConsumerRecord[Any, Any]:
        """The next record.

        Raises:
            StopIteration: everything was returned.
        """
        incoming = self._inner._incoming
        while True:
            cursor = self._cursor
            try:
                # Only this thread takes records; a seek in the other thread, which empties the list, is detected below.
                record = cursor.unpacked.popleft() if cursor is not None and self._may_take(cursor) else None
            except IndexError:
                record = None
            if cursor is None or record is None:
                if not self._run(self._advance):
                    raise StopIteration
                continue
            self._next_offset = Offset(record.offset + 1)
            if incoming is None:
                return record
            for given in incoming.intercept([incoming.convert(record)]):
                return given
