"""One event loop per thread of a Spark process, kept for as long as the thread lives.

A worker runs many tasks one after another. gRPC keeps a poller for each loop that it has seen and delivers late events
to it, so with a new loop for every task the events of earlier tasks would reach a closed loop.

Invariant: a thread has at most one such loop; it runs only inside `wait`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_own = threading.local()


def wait(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end and return its result."""
    if not hasattr(_own, "loop"):
        _own.loop = asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = _own.loop
    return loop.run_until_complete(work)


def close() -> None:
    """Close the loop of this thread, for a thread that ends before its process does."""
    if hasattr(_own, "loop"):
        _own.loop.close()
        del _own.loop
