"""Two clusters on one etcd do not see each other, even where the prefix of one begins like that of the other (C126)."""

from __future__ import annotations

from pathlib import Path

from several_controllers import WITHIN_S, Several, several, stub_of

from strandline.core.reigns.reign import State
from strandline.etcd.client import Etcd
from strandline.etcd.members import Members
from strandline.etcd.operations import behind
from strandline.v1 import controller_service_pb2 as pb


async def _producer_id(group: Several) -> int:
    async with stub_of(await group.active()) as stub:
        return int((await stub.InitProducerId(pb.InitProducerIdRequest(), timeout=WITHIN_S)).producer_id)


async def _values(etcd: Etcd, group: Several) -> dict[bytes, bytes]:
    """All that is kept of a cluster but what its controllers renew."""
    begin = f"{group.prefix}/".encode()
    found = await etcd.page(begin, behind(begin), 0, 1_000)
    return {kv.key: kv.value for kv in found if b"/controllers/" not in kv.key}


async def test_two_clusters_on_one_etcd_do_not_see_each_other(members: Members, etcd: Etcd, tmp_path: Path) -> None:
    """Each has its id, its key and its log; the end of one, and the loss of its store, change nothing in the other."""
    async with several(members, tmp_path / "one", "c1") as one:
        other = Several(members, tmp_path / "other")
        other.prefix = f"{one.prefix}-2"
        try:
            await other.start("c1")
            active = await other.active()
            ids = {(await one.active()).cluster_id, active.cluster_id}
            given = [await _producer_id(one), await _producer_id(other)]
            before = await _values(etcd, other)
            await _producer_id(one)
            await one.stop("c1")
            await one.lose_store()
            left = await _values(etcd, one)
            after = await _values(etcd, other)
            state = active.reigning.core.state
        finally:
            for name in list(other.running):
                await other.stop(name)

    assert (len(ids), given) == (2, [0, 0])
    assert (left, after, state) == ({}, before, State.ACTIVE)
