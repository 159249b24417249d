"""Controllers on one etcd, each in this process with its own ports and directory."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from etcd_members import client_of
from running_controller import registration as first_registration, stop, stub_of

from strandline.controller.settings import ControllerSettings, StoreKind
from strandline.controller.several import SeveralProcess
from strandline.core.errors import Refused
from strandline.core.reigns.reign import State
from strandline.etcd.members import Members
from strandline.etcd.operations import behind
from strandline.rpc.channels import target
from strandline.v1 import controller_service_pb2 as pb

WITHIN_S = 20.0
_LOOK_S = 0.01


def settings(members: Members, directory: Path, prefix: str, name: str, **given: Any) -> ControllerSettings:
    """Settings of one of several controllers, with short times."""
    fields: dict[str, Any] = {
        "session_timeout_ms": 5_000,
        "heartbeat_interval_ms": 100,
        "tick_ms": 20,
        "store": StoreKind.ETCD,
        "controller_id": name,
        "etcd_prefix": prefix,
        "etcd_endpoints": ",".join(target(endpoint) for endpoint in members.endpoints),
    }
    return ControllerSettings(data_dir=directory / name, **{**fields, **given})


class Several:
    """Controllers c1, c2, c3 of one cluster, as many as were started."""

    def __init__(self, members: Members, directory: Path) -> None:
        self._members = members
        self._directory = directory
        self.prefix = f"/strandline/{uuid.uuid4().hex}"
        self.running: dict[str, SeveralProcess] = {}

    async def start(self, name: str, **given: Any) -> SeveralProcess:
        """Start one, from what it remembers if it ran before."""
        process = SeveralProcess(settings(self._members, self._directory, self.prefix, name, **given), stop=stop)
        await process.start()
        self.running[name] = process
        return process

    async def stop(self, name: str) -> None:
        await self.running.pop(name).shut_down()

    async def active(self) -> SeveralProcess:
        """Wait until one decides."""
        await self.until(lambda: any(_decides(process) for process in self.running.values()))
        return next(process for process in self.running.values() if _decides(process))

    async def all_follow(self) -> None:
        """Wait until every standby has a lease and the whole log, so that it may be the next one to decide."""
        await self.until(lambda: all(_may_decide(p) for p in self.running.values() if not _decides(p)))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while True:
                if condition():
                    return
                await asyncio.sleep(_LOOK_S)

    async def lose_store(self) -> None:
        """Lose everything that is kept of this cluster."""
        async with client_of(self._members.endpoints) as etcd:
            await etcd.delete(f"{self.prefix}/".encode(), behind(f"{self.prefix}/".encode()))

    def standbys(self) -> list[SeveralProcess]:
        return [p for p in self.running.values() if p.reigning.core.state is State.STANDBY]


def _decides(process: SeveralProcess) -> bool:
    try:
        process.reigning.deciding()
    except Refused:
        return False
    return True


def _may_decide(standby: SeveralProcess) -> bool:
    core, now_ms = standby.reigning.core, standby.reigning._clock()
    return core.is_ready(now_ms) and core._lease.is_live(now_ms)


@asynccontextmanager
async def several(members: Members, directory: Path, *names: str, **given: Any) -> AsyncIterator[Several]:
    """Started controllers, with settings of ``given``, stopped at the end; the first one decides."""
    cluster = Several(members, directory)
    try:
        for name in names:
            await cluster.start(name, **given)
            await cluster.active()
        yield cluster
    finally:
        for name in list(cluster.running):
            await cluster.stop(name)


async def producer_id(process: SeveralProcess) -> int:
    """One decision that takes a transaction: a block of producer ids."""
    async with stub_of(process) as stub:
        return int((await stub.InitProducerId(pb.InitProducerIdRequest(), timeout=WITHIN_S)).producer_id)


def registration(node_id: int) -> pb.RegisterNodeRequest:
    """Another process of a node: a change of the state that is stored in one transaction."""
    return first_registration(node_id, incarnation_id=uuid.uuid4().hex)
