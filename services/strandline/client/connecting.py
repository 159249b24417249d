"""Whether a channel is connected before anything is entrusted to it, and what is left of a call's time then.

Invariant: "not connected" means that not a byte was sent; for a produce that is a definite outcome.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import grpc

_SECOND_CHANCE_MS = 250
"""A channel goes on reporting an old failure while it tries again; so long it may succeed after all."""


async def is_connected(channel: grpc.aio.Channel, deadline_ms: int) -> bool:
    """Connect if necessary; False when the address refuses, or at the deadline."""
    if channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
        deadline_ms = min(deadline_ms, _SECOND_CHANCE_MS)
    try:
        async with asyncio.timeout(deadline_ms / 1000):
            return await _is_ready(channel)
    except TimeoutError:
        return False


async def _is_ready(channel: grpc.aio.Channel) -> bool:
    has_failed_before = channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
    while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
        if state is grpc.ChannelConnectivity.SHUTDOWN:
            return False
        if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE and not has_failed_before:
            return False
        await channel.wait_for_state_change(state)
    return True


def countdown(deadline_ms: int) -> Callable[[], int]:
    """What is left of a call's time, in ms, for each of its steps; 1 once it is over, with which each step fails."""
    ends_s = time.monotonic() + deadline_ms / 1000
    return lambda: max(1, int((ends_s - time.monotonic()) * 1000))
