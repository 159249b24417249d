"""A controller that really listens, on a port the kernel chose, and a channel to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import grpc

from strandline.controller.process import ControllerProcess
from strandline.controller.settings import ControllerSettings
from strandline.core.messages import Endpoint, MetadataImage
from strandline.metadata.store import MetadataStore
from strandline.rpc.channels import open_channel
from strandline.rpc.convert.subscription import ImageWriter
from strandline.runtime.exit_codes import ExitCode
from strandline.v1 import controller_service_pb2 as pb, controller_service_pb2_grpc as pb_grpc, metadata_pb2

DEADLINE_S = 10


class Stopped(Exception):
    """Replaces the end of the process."""

    def __init__(self, code: ExitCode, line: str) -> None:
        super().__init__(line)
        self.code = code


def stop(code: ExitCode, line: str) -> NoReturn:
    """Raise instead of ending the test run."""
    raise Stopped(code, line)


def settings(directory: Path, **given: Any) -> ControllerSettings:
    """Settings with short times."""
    fields: dict[str, Any] = {"session_timeout_ms": 5_000, "heartbeat_interval_ms": 100, "tick_ms": 20}
    return ControllerSettings(data_dir=directory, **{**fields, **given})


@asynccontextmanager
async def controller(
    directory: Path, *, store: MetadataStore | None = None, **given: Any
) -> AsyncIterator[ControllerProcess]:
    """A serving controller, stopped at the end."""
    process = ControllerProcess(settings(directory, **given), store=store, stop=stop)
    await process.start()
    try:
        yield process
    finally:
        await process.shut_down()


@asynccontextmanager
async def stub_of(process: Any) -> AsyncIterator[Any]:
    """A stub for its service."""
    assert process.endpoint is not None
    channel: grpc.aio.Channel = open_channel(process.endpoint)
    try:
        yield pb_grpc.ControllerServiceStub(channel)
    finally:
        await channel.close()


def registration(node_id: int, *, port: int = 1, **given: Any) -> pb.RegisterNodeRequest:
    """A registration as a node sends it; the rules are left to the controller."""
    message = pb.RegisterNodeRequest(
        node_id=node_id,
        incarnation_id=given.pop("incarnation_id", f"incarnation-{node_id}"),
        directory_id=f"directory-{node_id}",
        roles=[metadata_pb2.NODE_ROLE_LEADER, metadata_pb2.NODE_ROLE_FOLLOWER],
        feature_levels=metadata_pb2.FeatureLevels(min_level=1, max_level=1),
        **given,
    )
    for endpoint in (message.endpoints.client, message.endpoints.internal):
        endpoint.host, endpoint.port = "127.0.0.1", port
    return message


async def join(stub: Any, node_id: int, *, port: int = 1, **given: Any) -> pb.RegisterNodeResponse:
    """Register and unfence a node."""
    answer: pb.RegisterNodeResponse = await stub.RegisterNode(
        registration(node_id, port=port, **given), timeout=DEADLINE_S
    )
    assert answer.error_code == 0, answer.error_message
    beat = await stub.Heartbeat(
        pb.HeartbeatRequest(node_id=node_id, node_epoch=answer.node_epoch, cluster_id=answer.cluster_id),
        timeout=DEADLINE_S,
    )
    assert not beat.is_fenced
    return answer


async def create(stub: Any, *names: str, factor: int | None = None) -> pb.CreateTopicsResponse:
    """Create topics of one partition."""
    topics = [pb.CreatableTopic(name=name, replication_factor=factor) for name in names]
    answer: pb.CreateTopicsResponse = await stub.CreateTopics(pb.CreateTopicsRequest(topics=topics), timeout=DEADLINE_S)
    return answer


def port_of(endpoint: Endpoint | None) -> int:
    """The bound port."""
    assert endpoint is not None
    return endpoint.port


def node_directory(parent: Path, node_id: int, seen: MetadataImage, cluster_id: str = "c") -> Path:
    """A data directory in the state that a node leaves it in."""
    path = parent / f"node-{node_id}"
    path.mkdir(parents=True)
    lines = ["version=1", f"node.id={node_id}", f"directory.id=dir-{node_id}", f"cluster.id={cluster_id}"]
    (path / "meta.properties").write_text("\n".join(lines) + "\n")
    (path / "metadata.snapshot").write_bytes(ImageWriter().to_bytes(seen))
    return path
