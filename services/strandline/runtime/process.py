"""What every service process of ours does around its work: loop, malloc, log lines, signals.

Invariant: one event loop per process; SIGTERM and SIGINT ask for a clean stop once, and a second one of them
ends the process at once.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from strandline.runtime.exit_codes import ExitCode, stop_process
from strandline.runtime.log_form import LogFormat, LogLevel, configure_log_lines
from strandline.runtime.malloc import keep_large_buffers


def run_service(
    main: Callable[[asyncio.Event], Coroutine[Any, Any, ExitCode]],
    *,
    log_format: LogFormat = LogFormat.AUTO,
    log_level: LogLevel = LogLevel.INFO,
) -> ExitCode:
    """Run ``main(stop_asked)`` on the fastest loop there is and return its exit code."""
    keep_large_buffers()
    configure_log_lines(log_format, log_level)
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        return runner.run(_with_signals(main))


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes a loop: uvloop's where it can be imported."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def _with_signals(main: Callable[[asyncio.Event], Coroutine[Any, Any, ExitCode]]) -> ExitCode:
    stop_asked = asyncio.Event()

    def on_signal(name: str) -> None:
        if stop_asked.is_set():
            stop_process(ExitCode.STOP_TOOK_TOO_LONG, f"{name} again: ended without a clean stop")
        stop_asked.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number.name)
    return await main(stop_asked)
