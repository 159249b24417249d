"""Overload of a real node: waiting requests are bounded, the rest is rejected, and memory is released."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from controller_stub import ControllerStub, topic
from nodes_in_process import TOPIC, TOPIC_ID, batch, fetch, produce

from strandline.core.errors import ErrorCode
from strandline.rpc.channels import MAX_CONCURRENT_STREAMS, target
from strandline.v1 import leader_service_pb2_grpc as pb_grpc

FETCHES, PRODUCES, TOO_MANY = 2_000, 1_000, 50
WAIT_MS = 60_000
"""How long they would wait: no process in this cluster ever fetches as node 2, so nothing is committed."""
BATCH_BYTES = 32 << 10
MIB = 1 << 20
DEADLINE_S = 30
OTHER, OTHER_ID = "single", "22222222-0000-4000-8000-000000000002"


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    return int(psutil.Process(pid).memory_info().rss)


@asynccontextmanager
async def node_process(directory: Path, controller: ControllerStub) -> AsyncIterator[tuple[int, str]]:
    """A data node as a process of its own: its pid and its client address; ended at the end."""
    flags = ["--node-id=1", f"--data-dir={directory}", f"--controllers={target(controller.endpoint)}"]
    flags += [f"--tune=purgatory_max_entries={PRODUCES}", "--low-space-bytes=0", "--shutdown-deadline-ms=0"]
    with (directory.parent / "node.log").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "strandline.node", *flags, stdout=log, stderr=log, env=os.environ
        )
    try:
        await asyncio.wait_for(controller.known_by(1), DEADLINE_S)
        yield process.pid, json.loads((directory / "endpoint.json").read_text())["client"]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def stubs(address: str, calls: int) -> AsyncIterator[list[Any]]:
    """Enough connections for this many open calls, each with a stub."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    async with AsyncExitStack() as stack:
        yield [
            pb_grpc.LeaderServiceStub(await stack.enter_async_context(grpc.aio.insecure_channel(address, options=own)))
            for _ in range(calls // MAX_CONCURRENT_STREAMS + 2)
        ]


async def refused(calls: list[Any], count: int) -> list[grpc.aio.AioRpcError]:
    """The first ``count`` rejections among calls that all wait or are rejected."""
    pending = {asyncio.ensure_future(_refusal_of(call)) for call in calls}
    found: list[grpc.aio.AioRpcError] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            found += [task.result() for task in done]
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return found


async def _refusal_of(call: Any) -> grpc.aio.AioRpcError:
    try:
        raise AssertionError(f"answered: {await asyncio.shield(call)}")
    except grpc.aio.AioRpcError as error:
        return error


async def room_again(stub: Any) -> int:
    """The answer to a produce once one is accepted again."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                answer = await stub.Produce(produce(batch("probe"), timeout_ms=1), timeout=DEADLINE_S)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise
            else:
                return int(answer.responses[0].partition_responses[0].error_code)


async def warm_up(stub: Any) -> None:
    """Let the process load and allocate everything that normal use needs."""
    for _ in range(20):
        answers = [stub.Produce(produce(batch("w" * BATCH_BYTES), name=OTHER), timeout=DEADLINE_S) for _ in range(20)]
        await asyncio.gather(*answers)
        await stub.Fetch(fetch(0), timeout=DEADLINE_S)


@pytest.mark.timeout(90)
async def test_overload_is_refused_and_memory_comes_back(tmp_path: Path) -> None:
    """2,000 parked fetches and 1,000 waiting produces: the next is RESOURCE_EXHAUSTED, and RSS returns to normal."""
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1, 2)), topic(OTHER, OTHER_ID, (1,)))
    await controller.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(controller.stop)
        pid, address = await stack.enter_async_context(node_process(tmp_path / "node-1", controller))
        callers = await stack.enter_async_context(stubs(address, FETCHES + PRODUCES))
        await warm_up(callers[-1])
        warm = resident_bytes(pid)

        spread = callers[:-1]
        reading = [spread[n % len(spread)].Fetch(fetch(0, max_wait_ms=WAIT_MS)) for n in range(FETCHES)]
        payload = produce(batch("x" * BATCH_BYTES), timeout_ms=WAIT_MS)
        writing = [spread[n % len(spread)].Produce(payload) for n in range(PRODUCES + TOO_MANY)]
        refusals = await refused(writing, TOO_MANY)
        during = resident_bytes(pid)
        assert {error.code() for error in refusals} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert [sum(call.done() for call in calls) for calls in (reading, writing)] == [0, TOO_MANY]

        for call in (*reading, *writing):
            call.cancel()
        assert await room_again(callers[-1]) == ErrorCode.REQUEST_TIMED_OUT
        after = resident_bytes(pid)
        print(f"RSS in MiB: warm {warm / MIB:.0f}, during {during / MIB:.0f}, after {after / MIB:.0f}")

        assert during <= warm + 4 * PRODUCES * BATCH_BYTES + 256 * MIB, f"{during / MIB:.0f} MiB of {warm / MIB:.0f}"
        assert after <= max(2 * warm, warm + 256 * MIB), f"{after / MIB:.0f} MiB of {warm / MIB:.0f}"
        await callers[-1].Produce(produce(batch("again"), name=OTHER), timeout=DEADLINE_S)
