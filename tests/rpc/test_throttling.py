"""Who waits for the end of a mute, in which order, and how that is bounded (C103)."""

from __future__ import annotations

import asyncio
import time

import pytest

from strandline.core.errors import ErrorCode, Refused
from strandline.core.quotas import Meters, Quota, QuotaKey
from strandline.rpc import throttling
from strandline.rpc.permissions import parse_identity
from strandline.rpc.permitted import IDENTITY, principal_of_call
from strandline.rpc.throttling import METERED, Metered, Throttle
from strandline.rpc.wire_fields import WithRecords
from strandline.v1 import leader_service_pb2 as pb

REQUESTS = (QuotaKey.REQUEST_RATE,)
MESSAGE = pb.ProduceRequest(cluster_id="c" * 100)


def now_ms() -> int:
    """The clock of a node."""
    return int(time.monotonic() * 1_000)


def throttle(rate: float, burst_ms: int) -> Throttle:
    """With one quota of requests."""
    made = Throttle(Meters(burst_ms), now_ms)
    made.know((Quota("client/x", QuotaKey.REQUEST_RATE, rate),))
    return made


async def test_who_waits_for_the_same_goes_on_one_by_one() -> None:
    """Ten calls at 100 a second and a burst of one take a tenth of a second, in the order in which they came; the end
    of a mute does not let all of them through."""
    made, order = throttle(100, 10), []
    began_s = time.monotonic()

    async def call(number: int) -> None:
        await Metered(made, "client/x", REQUESTS).admit(MESSAGE)
        order.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(11):
            tasks.create_task(call(number))

    assert order == list(range(11))
    assert time.monotonic() - began_s > 0.085
    assert made.waiting_bytes == 0


@pytest.mark.parametrize("message", [MESSAGE, WithRecords(MESSAGE, (), MESSAGE.ByteSize())], ids=["call", "stream"])
async def test_what_waits_is_bounded_in_bytes(message: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all callers together; one that gives up makes room, and the refusal says when to ask again."""
    monkeypatch.setattr(throttling, "MOST_WAITING_BYTES", MESSAGE.ByteSize())
    made = throttle(1, 1_000)
    metered = Metered(made, "client/x", REQUESTS)
    for _ in range(9):
        metered.take(QuotaKey.REQUEST_RATE, 1)
    waiting = asyncio.ensure_future(metered.admit(message))
    await asyncio.sleep(0)
    with pytest.raises(Refused) as refused:
        await metered.admit(message)
    waiting.cancel()
    await asyncio.wait([waiting])

    assert refused.value.refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert 7_000 < refused.value.refusal.throttle_time_ms <= 8_000
    assert made.waiting_bytes == 0


@pytest.mark.parametrize("how", ["removed", "closed"])
async def test_everybody_goes_on_when_the_quota_or_the_process_goes(how: str) -> None:
    """At once, all that wait."""
    made = throttle(0.01, 1_000)
    metered = Metered(made, "client/x", REQUESTS)
    metered.take(QuotaKey.REQUEST_RATE, 1)
    waiting = [asyncio.ensure_future(metered.admit(MESSAGE)) for _ in range(100)]
    await asyncio.sleep(0)
    held = made.waiting_bytes
    made.know(()) if how == "removed" else made.close()
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting)

    assert held == 100 * MESSAGE.ByteSize()
    assert made.waiting_bytes == 0


def test_a_call_that_nobody_counts_is_off() -> None:
    """What a handler finds by default, and for nodes and administrators, while others have quotas."""
    assert not METERED.get().is_on
    assert throttle(1, 1_000).meters.quotas


@pytest.mark.parametrize("role", ["client", "admin", "replica", "controller"])
def test_quotas_are_about_clients_alone(role: str) -> None:
    """Of what calls, administrators, nodes and controllers have no principal that a quota could be of."""
    token = IDENTITY.set(parse_identity(f"strandline://c1/{role}/1"))
    principal = principal_of_call()
    IDENTITY.reset(token)

    assert principal == ("client/1" if role == "client" else None)
