"""Producers that nobody closed: what they hold when they, or the process, end is said, and sent if it still can be.

Invariant: a record that `send` took is never given up without a word: a line of the log and a `ResourceWarning`.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from strandline.client.logger import log

if TYPE_CHECKING:
    from strandline.client.producer import Producer

STARTED: weakref.WeakSet[Producer[Any, Any]] = weakref.WeakSet()
# Those of a parent are the parent's to send.
os.register_at_fork(after_in_child=STARTED.clear)


def report(producer: Producer[Any, Any]) -> None:
    """It is over: say how many records it still held, if it was not closed."""
    count = producer._give_up()
    if count:
        message = f"{count} records are given up: their producer was not closed; use `with`, or call close() or flush()"
        log.warning("%s", message)
        warnings.warn(message, ResourceWarning, stacklevel=2)


async def send_what_is_held(timeout_ms: int) -> None:
    """The process ends, and this loop can still run: send what its producers hold."""
    await asyncio.gather(*(producer.flush(timeout_ms) for producer in list(STARTED)), return_exceptions=True)


@atexit.register
def _report_all() -> None:
    for producer in list(STARTED):
        report(producer)
