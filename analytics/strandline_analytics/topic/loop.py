"""Decides in which event loop a process of Spark's waits for the cluster: in one, as long as the process lives.

A worker serves many tasks one after another. gRPC keeps a poller for each loop that it has met and goes on telling it
of what ended, so a new loop for every task would be told of the tasks before it after it was closed.

Invariant: a thread has at most one such loop; it runs only while somebody waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_own = threading.local()


def wait(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end of ``work`` and give its result."""
    if not hasattr(_own, "loop"):
        _own.loop = asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = _own.loop
    return loop.run_until_complete(work)
