"""A value in etcd that nothing of ours has written: one refusal that names it, and nothing is decided (C126)."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from several_controllers import WITHIN_S, Several, node_directory, several, stub_of

from strandline.controller.tools.etcd_access import EtcdAccess
from strandline.controller.tools.recover import recover_store_in_etcd
from strandline.core.errors import Refused
from strandline.core.reigns.reign import State
from strandline.core.types import NodeEpoch
from strandline.etcd.client import Etcd
from strandline.etcd.members import Members
from strandline.etcd.operations import behind
from strandline.metadata.store import StoreDamaged
from strandline.v1 import controller_service_pb2 as pb

NODES = 14


async def _damage(etcd: Etcd, group: Several, kind: str) -> None:
    """Cut the last value whose key begins so in half."""
    begin = f"{group.prefix}/{kind}".encode()
    last = (await etcd.page(begin, behind(begin), 0, 1_000))[-1]
    await etcd.put(last.key, last.value[: len(last.value) // 2])


def _registration(node_id: int) -> pb.RegisterNodeRequest:
    request = pb.RegisterNodeRequest(
        node_id=node_id,
        incarnation_id=uuid.uuid4().hex,
        directory_id=f"d{node_id}",
        feature_levels={"min_level": 1, "max_level": 1},
        roles=[1, 2],
    )
    for endpoint in (request.endpoints.client, request.endpoints.internal):
        endpoint.host, endpoint.port = "127.0.0.1", 1
    return request


async def _stored(group: Several) -> None:
    """Leave a snapshot, and a log behind it whose transactions are in parts."""
    active = await group.active()
    async with stub_of(active) as stub:
        for node_id in range(1, NODES + 1):
            await stub.RegisterNode(_registration(node_id), timeout=WITHIN_S)
    await group.stop("c1")


@pytest.mark.parametrize(
    ("kind", "said"),
    [("log/", "log value"), ("part/", "gap"), ("snap/0", "the snapshot of offset"),
     ("snap/current", "the key snap/current is damaged")],
)  # fmt: skip
async def test_a_damaged_value_ends_serving(kind: str, said: str, members: Members, etcd: Etcd, tmp_path: Path) -> None:
    """The controller stops for good, and its refusal says which value it cannot read."""
    async with several(members, tmp_path, "c1", part_bytes=200, log_snapshot_every=10) as group:
        await _stored(group)
        await _damage(etcd, group, kind)
        process = await group.start("c1")
        await group.until(lambda: process.reigning.core.state is State.STOPPED)
        with pytest.raises(Refused, match=said):
            process.reigning.deciding()


@pytest.mark.parametrize(
    ("kind", "said"), [("format", "format is not of a controller"), ("head", "the key head is damaged")]
)
async def test_a_damaged_value_refuses_the_start(
    kind: str, said: str, members: Members, etcd: Etcd, tmp_path: Path
) -> None:
    """Which cluster a store is of, and where it ends, is read before anything else."""
    async with several(members, tmp_path, "c1") as group:
        await group.stop("c1")
        await _damage(etcd, group, kind)
        with pytest.raises(StoreDamaged, match=said):
            await group.start("c1")


async def test_a_store_with_a_damaged_head_is_recovered(members: Members, etcd: Etcd, tmp_path: Path) -> None:
    """What the refusal names works: `recover` keeps what snapshot and log hold, and the next start serves."""
    async with several(members, tmp_path, "c1", part_bytes=200, log_snapshot_every=10) as group:
        active = await group.active()
        seen = replace(active.driver.core.state.snapshot(), to_node_epoch=NodeEpoch(1))
        given = node_directory(tmp_path / "node-1", seen)
        await _stored(group)
        await _damage(etcd, group, "head")
        access = EtcdAccess(members=tuple(members.endpoints), prefix=group.prefix)
        state = await recover_store_in_etcd(tmp_path / "c1", [given], access)
        await group.start("c1")
        await group.active()

    assert set(state.nodes) == set(range(1, NODES + 1))
