"""etcd in trouble: no space, restored from an older snapshot, or with values of other programs."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from etcd_members import READY_S, client_of, etcdctl, started
from running_controller import node_directory
from several_controllers import WITHIN_S, Several, producer_id, registration, several, stub_of

from strandline.controller.several import SeveralProcess
from strandline.controller.store_health import remedy
from strandline.controller.tools.etcd_access import EtcdAccess
from strandline.controller.tools.recover import recover_store_in_etcd
from strandline.core.errors import Refused
from strandline.core.reigns.reign import State
from strandline.core.types import NodeEpoch
from strandline.etcd.client import Etcd
from strandline.etcd.errors import NoSpace
from strandline.etcd.members import Members
from strandline.etcd.operations import behind
from strandline.metadata.etcd import EtcdStore
from strandline.metadata.store import StoreDamaged
from strandline.rpc.status import refusal_of

_QUOTA = 8 << 20
ETCDCTL = {**os.environ, "ETCDCTL_API": "3"}
needs_etcdctl = pytest.mark.skipif(
    shutil.which("etcdctl") is None, reason="etcdctl is not installed; on Debian: apt-get install etcd-client"
)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Members]:
    """One member, with little space."""
    with started(tmp_path / "etcd", 1, arguments=("--quota-backend-bytes", str(_QUOTA))) as members:
        yield members


@pytest.fixture
async def client(small: Members) -> AsyncIterator[Etcd]:
    async with client_of(small.endpoints) as etcd:
        await etcd.until_serving(READY_S)
        yield etcd


async def _fill(etcd: Etcd) -> None:
    """Write until etcd refuses: it compares the quota with the size at its last commit, up to 100 ms ago."""
    for number in range(32 * _QUOTA >> 20):
        await etcd.put(b"filling/%d" % number, b"x" * (1 << 20))


@needs_etcdctl
async def test_without_space_nothing_is_decided_until_there_is_some(
    small: Members, client: Etcd, tmp_path: Path
) -> None:
    """NOSPACE closes the doors with its own reason; no other takes over; the printed remedy opens them again (C16)."""
    async with several(small, tmp_path, "c1", "c2") as cluster:
        active = await cluster.active()
        standby = cluster.running["c2"].reigning
        with pytest.raises(NoSpace):
            await _fill(client)
        with pytest.raises(NoSpace):
            await client.grant(5)
        # A registration changes the state each time; this one meets the full store and waits for it.
        await _ask_until_full(cluster, active)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await producer_id(active)
        refusal = refusal_of(refused.value)
        alarm = await standby.store.has_alarm()
        await client.delete(b"filling/", b"filling0")
        # As the controller's own look at the members says.
        members_in_order = (await active.reigning.store.health()).members_leader_last
        for command in remedy(members_in_order, client.revision):
            await asyncio.to_thread(_run, command)
        again = await cluster.active()
        await producer_id(again)

        assert refusal.hint.why == "STORE_FULL"
        assert alarm
        assert again is active
        assert standby.core.state is State.STANDBY


def _run(command: str) -> None:
    """One line of the remedy, as it is printed."""
    subprocess.run(command.split(), check=True, capture_output=True, timeout=60, env=ETCDCTL)


async def _snapshot(client: Etcd, key: bytes) -> None:
    while True:
        if await client.get(key) is not None:
            return


@needs_etcdctl
async def test_without_space_the_old_log_goes(small: Members, client: Etcd, tmp_path: Path) -> None:
    """etcd deletes what the snapshot holds although it has no space, and a standby still has every decision (C29)."""
    async with several(small, tmp_path, "c1", "c2", log_snapshot_every=10) as cluster:
        active = await cluster.active()
        store, keys = active.reigning.store, active.reigning.store.keys
        async with stub_of(active) as stub:
            for number in range(12):
                await stub.RegisterNode(registration(number), timeout=WITHIN_S)
        await asyncio.wait_for(_snapshot(client, keys.current_snapshot), WITHIN_S)
        before = len(await client.page(keys.logs, behind(keys.logs), 0, 1_000))
        with pytest.raises(NoSpace):
            await _fill(client)
        assert active.reigning.core.token is not None
        deleted = await store.make_room(active.reigning.core.token)
        after = len(await client.page(keys.logs, behind(keys.logs), 0, 1_000))
        stranger = await store.make_room(active.reigning.core.token + 1)
        await client.delete(b"filling/", b"filling0")
        etcdctl(small, "alarm", "disarm")
        read = await EtcdStore(client, cluster.prefix).read_state()

        assert deleted == before - after > 0
        assert stranger == 0
        assert len(read.nodes) == 12


async def _ask_until_full(cluster: Several, active: SeveralProcess) -> None:
    """Change something that is stored, without waiting for it, until the store has refused it."""
    async with asyncio.timeout(WITHIN_S), stub_of(active) as stub:
        for name in itertools.count():
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.RegisterNode(registration(name), timeout=0.5)
            if active.reigning.core.state is State.UNSURE:
                return


@needs_etcdctl
async def test_a_store_that_was_restored_under_a_running_controller(
    small: Members, client: Etcd, tmp_path: Path
) -> None:
    """etcd goes back with the same cluster id: the controller sees it, decides no more, and says what to do (C40)."""
    async with several(small, tmp_path, "c1") as cluster:
        active = await cluster.active()
        await producer_id(active)
        saved = tmp_path / "saved.db"
        etcdctl(small, "snapshot", "save", str(saved))
        for number in range(20):
            await client.put(b"later/%d" % number, b"")
        await cluster.until(lambda: active.reigning.store.etcd.revision >= client.revision)
        small.kill(0)
        _restore(small, saved, tmp_path)
        small.start_member(0)
        await cluster.until(lambda: active.reigning.core.state is State.STOPPED)
        with pytest.raises(grpc.aio.AioRpcError, match="recover"):
            await producer_id(active)


def _restore(members: Members, saved: Path, directory: Path) -> None:
    data = directory / "etcd" / "etcd-1" / "data"
    shutil.rmtree(data)
    peer = f"http://127.0.0.1:{members._peers[0]}"
    etcdctl(
        members, "snapshot", "restore", str(saved), "--name", "etcd-1", "--data-dir", str(data),
        "--initial-cluster", f"etcd-1={peer}", "--initial-advertise-peer-urls", peer,
        "--initial-cluster-token", "strandline",
    )  # fmt: skip


# A value in etcd that nothing of ours has written: one refusal that names it, and nothing is decided.


NODES = 14


async def _damage(etcd: Etcd, group: Several, kind: str) -> None:
    """Cut the last value whose key begins so in half."""
    begin = f"{group.prefix}/{kind}".encode()
    last = (await etcd.page(begin, behind(begin), 0, 1_000))[-1]
    await etcd.put(last.key, last.value[: len(last.value) // 2])


async def _stored(group: Several) -> None:
    """Leave a snapshot, and a log behind it whose transactions are in parts."""
    active = await group.active()
    async with stub_of(active) as stub:
        for node_id in range(1, NODES + 1):
            await stub.RegisterNode(registration(node_id), timeout=WITHIN_S)
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


async def test_a_controller_that_stops_has_given_its_key_up(
    members: Members, etcd: Etcd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow the store is: what replaces it next, `recover` for example, finds no controller."""
    resign = EtcdStore.resign

    async def late(self: EtcdStore, token: int, lease_id: int | None) -> None:
        await asyncio.sleep(0.3)
        await resign(self, token, lease_id)

    monkeypatch.setattr(EtcdStore, "resign", late)
    async with several(members, tmp_path, "c1") as group:
        key = f"{group.prefix}/active".encode()
        await group.active()
        assert await etcd.page(key, behind(key), 0, 1)
        await group.stop("c1")

        assert await etcd.page(key, behind(key), 0, 1) == []


async def test_a_store_with_a_damaged_head_is_recovered(members: Members, etcd: Etcd, tmp_path: Path) -> None:
    """What the refusal names works: `recover` keeps what snapshot and log hold, and the next start serves."""
    async with several(members, tmp_path, "c1", part_bytes=200, log_snapshot_every=10) as group:
        active = await group.active()
        seen = replace(active.driver.core.state.snapshot(), to_node_epoch=NodeEpoch(1))
        given = node_directory(tmp_path, 1, seen, seen.cluster_id)
        await _stored(group)
        await _damage(etcd, group, "head")
        access = EtcdAccess(members=tuple(members.endpoints), prefix=group.prefix)
        state = await recover_store_in_etcd(tmp_path / "c1", [given], access)
        await group.start("c1")
        await group.active()

    assert set(state.nodes) == set(range(1, NODES + 1))
