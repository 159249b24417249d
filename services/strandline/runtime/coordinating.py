"""What coordinators need done outside of a step: their logs read piece by piece, and long computations in a worker.

Invariant: each effect ends in one event, stepped later and never within the step that asked: loading a log, and
computing an assignment, leave the event loop to everybody else in between (G7).
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from functools import partial
from typing import Any

from strandline.core.effects import Compute, ReadCoordinatorLog
from strandline.core.events import Computed, CoordinatorLogRead
from strandline.runtime.clock import Clock
from strandline.runtime.ports import Logs


def leave_to_counts() -> None:
    """Take what was just loaded out of the collector's sight; reference counts free it as before.

    A full collection looks at every object of the state, and while it grows there is one again and again: with 100,000
    keys each holds the loop for 40 ms and more.
    """
    gc.freeze()


class Coordinating:
    """``step`` takes the events, ``fail`` the first error, after which the process ends."""

    def __init__(
        self,
        logs: Logs,
        step: Callable[[Any], None],
        fail: Callable[[BaseException], None],
        clock: Clock,
        *,
        loaded: Callable[[], None] = lambda: None,
        read_s: float = 0,
    ) -> None:
        """``loaded`` is called behind each piece of a log that was folded, ``read_s`` after it was read."""
        self._logs = logs
        self._step = step
        self._fail = fail
        self._clock = clock
        self._loaded = loaded
        self._read_s = read_s

    def read_log(self, effect: ReadCoordinatorLog) -> None:
        """Read a piece of a log now, and hand it over when the loop comes round."""
        chunk = self._logs.read(effect.tp, effect.start, effect.end, effect.max_bytes, at_least_one=True)
        asyncio.get_running_loop().call_later(self._read_s, self._hand_over, effect, chunk.payload, chunk.end)

    def _hand_over(self, effect: ReadCoordinatorLog, payload: Any, end: Any) -> None:
        event = CoordinatorLogRead(
            self._clock(), effect.tp, effect.leader_epoch, effect.start, end, payload, len(payload)
        )
        self._step(event)
        self._loaded()

    def compute(self, effect: Compute) -> None:
        """Run ``work`` in a thread."""
        done = asyncio.get_running_loop().run_in_executor(None, effect.work)
        done.add_done_callback(partial(self._computed, effect))

    def _computed(self, effect: Compute, done: asyncio.Future[object]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._fail(error)
        else:
            self._step(Computed(self._clock(), effect.tp, effect.leader_epoch, done.result()))
