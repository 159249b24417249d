"""The thread in which a process without an event loop of its own runs its clients.

Invariant: a process has at most one such thread, made when it is first needed and again in a forked child; what
belongs to the thread of another process is never waited for, because that thread does not exist here.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from strandline.rpc.forks import ForkedAfterUse

P = ParamSpec("P")
T = TypeVar("T")

_LAST_WORK_S = 5.0
"""How long the end of the process waits for the thread."""


class LoopThread:
    """An event loop that runs in a thread of its own."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        # A daemon, so that a client that nobody closed does not keep the process alive.
        self._thread = threading.Thread(target=self._run_forever, name="strandline-client", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise if it cannot be waited for here.

        Raises:
            ForkedAfterUse: it belongs to the process that this one was forked from.
            RuntimeError: this is a function that it runs, which would wait for itself.
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
        """What the coroutine function returns, or raises.

        Raises:
            ForkedAfterUse, RuntimeError: as `check`.
        """
        self.check()
        future = asyncio.run_coroutine_threadsafe(function(*args, **kwargs), self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C reaches the thread that waits, and must not leave the work behind it.
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop, and wait for its thread."""
        if self._pid == os.getpid() and self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)
            self._thread.join(_LAST_WORK_S)

    async def _end(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self._loop.stop()

    def _run_forever(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()


_lock = threading.Lock()
_of_this_process: LoopThread | None = None


def loop_thread() -> LoopThread:
    """The thread of this process."""
    global _of_this_process
    with _lock:
        if _of_this_process is None:
            _of_this_process = LoopThread()
            atexit.register(_of_this_process.close)
        return _of_this_process


def _forget_the_parents() -> None:
    """In a forked child: its parent's thread is not here, and nobody will release its lock."""
    global _lock, _of_this_process
    _lock, _of_this_process = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_the_parents)
