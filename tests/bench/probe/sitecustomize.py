"""Counts what a Python process does between two signals; Python loads it by its name from PYTHONPATH.

With BENCH_PROBE set to a folder, SIGUSR1 begins a count and SIGUSR2 ends it and writes `PID.json` and the profile
`PID.prof` there: gRPC messages, their bytes and protobuf objects, Python calls, and how often tasks ran. It slows the
process down, so nothing else is measured while it counts. Tasks are Python's own instead of C's from the start, since
only those can be counted.
"""

from __future__ import annotations

import asyncio
import asyncio.tasks
import cProfile
import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = os.environ.get("BENCH_PROBE")

counts: Counter[str] = Counter()
profiles: list[cProfile.Profile] = []


def objects_in(message: Any) -> int:
    """How many protobuf objects a message consists of."""
    total = 1
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if not hasattr(value, "ListFields") else (value,):
                total += objects_in(each)
    return total


def counted(direction: str, convert: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    """A (de)serializer that counts its messages."""
    if convert is None:
        return None

    def counting(given: Any) -> Any:
        made = convert(given)
        if profiles:
            message, data = (made, given) if direction == "in" else (given, made)
            counts[f"gRPC messages {direction}"] += 1
            counts[f"bytes of messages {direction}"] += len(data)
            counts["protobuf objects"] += objects_in(message)
        return made

    return counting


def count_servers(grpc: Any) -> None:
    """Count what handlers receive and send."""
    for name in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
        make = getattr(grpc, f"{name}_rpc_method_handler")

        def making(
            behavior: Any,
            request_deserializer: Any = None,
            response_serializer: Any = None,
            _make: Callable[..., Any] = make,
        ) -> Any:
            return _make(behavior, counted("in", request_deserializer), counted("out", response_serializer))

        setattr(grpc, f"{name}_rpc_method_handler", making)


def count_clients(channel: Any) -> None:
    """Count what calls send and receive."""
    for name in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
        make = getattr(channel, name)

        def making(
            self: Any,
            method: str,
            request_serializer: Any = None,
            response_deserializer: Any = None,
            _make: Callable[..., Any] = make,
            **given: Any,
        ) -> Any:
            return _make(
                self, method, counted("out", request_serializer), counted("in", response_deserializer), **given
            )

        setattr(channel, name, making)


def count_encoded(interceptors: Any) -> None:
    """Count the answers that handlers encode themselves, which no serializer of gRPC's sees."""
    unless_encoded = interceptors._unless_encoded

    def counting(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
        wrapped = unless_encoded(encode)

        def encoded(answer: Any) -> bytes:
            if profiles and isinstance(answer, bytes):
                counts["gRPC messages out"] += 1
                counts["bytes of messages out"] += len(answer)
            return bytes(wrapped(answer))

        return encoded

    interceptors._unless_encoded = counting


def begin(*_: object) -> None:
    """Count from here."""
    counts.clear()
    profiles.append(cProfile.Profile())
    profiles[-1].enable()


def end(*_: object) -> None:
    """Write what was counted since `begin`."""
    profile = profiles.pop()
    profile.disable()
    calls = 0
    for entry in profile.getstats():  # type: ignore[attr-defined]  # typeshed lacks it
        calls += entry.callcount
        if not isinstance(entry.code, str) and entry.code.co_name == "__step":
            counts["task runs"] += entry.callcount
    counts["Python calls"] = calls
    assert FOLDER is not None
    written = Path(FOLDER) / f"{os.getpid()}.json"
    profile.dump_stats(written.with_suffix(".prof"))
    part = written.with_suffix(".part")
    part.write_text(json.dumps(counts))
    part.rename(written)


if FOLDER is not None:
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    asyncio.Task = asyncio.tasks.Task = asyncio.tasks._PyTask  # type: ignore[attr-defined,misc]  # CPython's own
    import grpc
    from grpc.aio import _channel

    count_servers(grpc)
    count_clients(_channel.Channel)
    from strandline.rpc import interceptors

    count_encoded(interceptors)
    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
