"""A controller and data nodes with TLS inside the test's own process, on ports of the kernel's choice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certificates import CLUSTER, Certificates, settings_of
from scripted_core import ProcessEnded, end

from strandline.client import Admin, DescribedLeader, DescribedPartition
from strandline.controller.process import ControllerProcess
from strandline.controller.settings import ControllerSettings
from strandline.core.messages import Endpoint
from strandline.core.types import NodeId
from strandline.node.node import ReplicaNode
from strandline.node.settings import ReplicaSettings
from strandline.rpc.channels import target
from strandline.storage.directory import DataDirectory

SETTLE_S = 20.0


@dataclass(slots=True)
class Secured:
    """The running processes, and the channels to them."""

    made: Certificates
    controller: ControllerProcess
    nodes: list[ReplicaNode]
    admin: Admin

    @property
    def for_clients(self) -> Endpoint:
        """The controller's port for clients."""
        assert self.controller.endpoint is not None
        return self.controller.endpoint

    @property
    def for_nodes(self) -> Endpoint:
        """The controller's port for nodes."""
        assert self.controller.internal is not None
        return self.controller.internal

    async def topic_id(self, topic: str) -> str:
        return (await self.admin.describe_topics([topic]))[0].topic_id

    async def partition(self, topic: str) -> DescribedPartition:
        """Partition 0 of a topic as the controller currently has it."""
        return (await self.admin.describe_topics([topic]))[0].partitions[0]

    async def led(self, topic: str) -> DescribedLeader:
        """Partition 0 of a topic as its leader currently reports it."""
        return (await self.admin.describe_partitions([topic]))[0]


async def until(look: Callable[[], Awaitable[Any]], what: str) -> Any:
    """The result of ``look``, as soon as there is one."""
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        if found := await look():
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within {SETTLE_S:g} s: {what}")


@asynccontextmanager
async def secured_cluster(
    directory: Path, node_ids: Sequence[int] = (1, 2, 3), **settings: Any
) -> AsyncIterator[Secured]:
    """A cluster whose nodes use the controller's port for nodes; ``settings`` apply to every process."""
    made = Certificates.at(directory / "certs")
    async with AsyncExitStack() as stack:
        controller = ControllerProcess(
            ControllerSettings(
                data_dir=directory / "controller",
                internal_bind="127.0.0.1:0",
                heartbeat_interval_ms=200,
                **settings_of(made.files("controller/controller")),
                **settings,
            ),
            stop=end,
        )
        await controller.start()
        stack.push_async_callback(controller.shut_down)
        assert controller.internal is not None and controller.endpoint is not None
        nodes = []
        for node_id in node_ids:
            node = build_node(directory / f"node-{node_id}", controller.internal, made, node_id, **settings)
            await node.start()
            stack.push_async_callback(node.shut_down)
            nodes.append(node)
        admin = Admin(target(controller.endpoint), **settings_of(made.files("admin/root")))
        await stack.enter_async_context(admin)
        yield Secured(made, controller, nodes, admin)


def build_node(directory: Path, controller: Endpoint, made: Certificates, node_id: int, **more: Any) -> ReplicaNode:
    """A data node that is not started."""
    settings = ReplicaSettings(
        node_id=node_id,
        data_dir=directory,
        controllers=(target(controller),),
        tick_ms=10,
        low_space_bytes=0,
        **settings_of(made.files(f"replica/{node_id}")),
        **more,
    )
    opened = DataDirectory.open(directory, node_id=NodeId(node_id), durability=settings.durability, low_space_bytes=0)
    return ReplicaNode(settings, opened, stop=end)


__all__ = ["CLUSTER", "ProcessEnded", "Secured", "build_node", "end", "secured_cluster", "until"]
