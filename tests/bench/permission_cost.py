"""The cost of the permission check for a call and for a message of a stream, over TLS on loopback.

Real calls reach a handler that repeats exactly the check that was made before it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent / "security"))

from certificates import CLUSTER, Certificates
from guarded_service import guarded, stub

from strandline.rpc.authorization import PermissionInterceptor
from strandline.rpc.permissions import OWN_REPLICA
from strandline.v1 import leader_service_pb2 as pb

REPEATS = 20_000
FETCH = "/strandline.v1.LeaderService/Fetch"


def microseconds(work: Callable[[], Any]) -> float:
    """The least of five means, in µs: the cost when nothing else runs."""
    best = float("inf")
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(REPEATS):
            work()
        best = min(best, (time.perf_counter() - begun) / REPEATS * 1e6)
    return best


async def measured() -> dict[str, float]:
    """Each part of a check, by name."""
    found: dict[str, float] = {}
    request = pb.FetchRequest(replica_state={"replica_id": 2, "replica_epoch": 1}, topics=[{"topic": "t"}])

    async def fetch(message: Any, context: Any) -> pb.FetchResponse:
        check = PermissionInterceptor(CLUSTER)
        caller, _ = check._grant(FETCH, context)
        found["a call: who calls, and may they (once per call or stream)"] = microseconds(
            lambda: check._grant(FETCH, context)
        )
        found["of that, gRPC telling the peer's certificate"] = microseconds(context.auth_context)
        found["a replica's fetch: is it its own (once per message)"] = microseconds(
            lambda: OWN_REPLICA.holds(message, caller)
        )
        return pb.FetchResponse()

    with tempfile.TemporaryDirectory() as folder:
        made = Certificates.at(Path(folder))
        async with (
            guarded(made.tls("replica/1"), Fetch=fetch) as endpoint,
            stub(endpoint, made.tls("replica/2")) as node,
        ):
            await node.Fetch(request, timeout=60)
    return found


if __name__ == "__main__":
    for name, cost in asyncio.run(measured()).items():
        print(f"{cost:6.2f} µs  {name}")
