"""A backup is the same file from either store, and what is restored from it does not pretend to be newer (C45)."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from pathlib import Path

import grpc
import pytest
from migrations import cluster, etcd, moved, served, sqlite, store_of
from several_controllers import WITHIN_S, Several, several, stub_of

from strandline.controller.several import SeveralProcess
from strandline.controller.tools import backup
from strandline.core.messages import PositionProof
from strandline.core.positions import prove
from strandline.core.reigns.reign import State
from strandline.core.types import NodeEpoch, NodeId
from strandline.etcd.members import Members
from strandline.metadata.store import StoreWentBack
from strandline.rpc.channels import target
from strandline.rpc.convert.metadata import write_position
from strandline.runtime.exit_codes import ExitCode
from strandline.v1 import controller_service_pb2 as pb


async def _back_up(members: Members, prefix: str, file: Path) -> ExitCode:
    where = ",".join(map(target, members.endpoints))
    words = ["--etcd-endpoints", where, "--etcd-prefix", prefix, "--to", str(file)]
    return await asyncio.to_thread(backup.main, words)


async def _restore(file: Path, to: str, *words: str) -> ExitCode:
    return await asyncio.to_thread(backup.restore, ["--from", str(file), "--to", to, *words])


async def _decide(process: SeveralProcess) -> None:
    """Something that takes a transaction."""
    async with stub_of(process) as stub:
        await stub.InitProducerId(pb.InitProducerIdRequest(), timeout=WITHIN_S)


async def _restored_group(group: Several, members: Members, file: Path) -> PositionProof:
    """Decide, back up beside the running controller, decide more, stop, restore; returns what node 1 was sent last."""
    active = await group.active()
    node_epoch = await _register(active)
    assert await _back_up(members, group.prefix, file) is ExitCode.CLEAN
    await _decide(active)
    await _decide(active)
    header = active.driver.core.state.header
    await group.stop("c1")
    assert await _restore(file, etcd(members, group.prefix), "--replace") is ExitCode.CLEAN
    return prove(
        header.secret,
        node_id=NodeId(1),
        node_epoch=NodeEpoch(node_epoch),
        controller_epoch=header.controller_epoch,
        metadata_offset=header.metadata_offset,
        reign_id=active.reigning.reign_id,
    )


async def test_a_backup_is_one_file_from_either_store(members: Members, tmp_path: Path) -> None:
    """The backup of etcd is restored to SQLite, and that of SQLite to etcd; both hold what was there."""
    state = cluster()
    here, there = tmp_path / "c1", etcd(members, "/strandline/either")
    await store_of(here, state)
    of_sqlite = await asyncio.to_thread(backup.main, ["--data-dir", str(here), "--to", str(tmp_path / "one")])
    await moved(sqlite(here), there)
    of_etcd = await _back_up(members, "/strandline/either", tmp_path / "two")
    to_sqlite = await _restore(tmp_path / "two", sqlite(tmp_path / "c2"))
    to_etcd = await _restore(tmp_path / "one", etcd(members, "/strandline/restored"))

    assert [of_sqlite, of_etcd, to_sqlite, to_etcd] == [ExitCode.CLEAN] * 4
    assert await served(sqlite(tmp_path / "c2")) == await served(etcd(members, "/strandline/restored")) == state


async def test_a_controller_notices_that_its_store_was_restored(
    members: Members, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has seen more than the backup holds, so it refuses to start and names `recover` (C40)."""
    async with several(members, tmp_path, "c1") as group:
        await _restored_group(group, members, tmp_path / "backup")
        with pytest.raises(StoreWentBack, match="strandline controller recover"):
            await group.start("c1")

    assert "refuses to serve" in capsys.readouterr().out


async def test_a_node_notices_where_no_controller_remembers(members: Members, tmp_path: Path) -> None:
    """With every controller's directory lost, the position of a node with its proof ends service (C35)."""
    async with several(members, tmp_path, "c1") as group:
        seen = await _restored_group(group, members, tmp_path / "backup")
        shutil.rmtree(tmp_path / "c1")
        await group.start("c1")
        active = await group.active()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await _register(active, seen)
        await group.until(lambda: active.reigning.core.state is State.STOPPED)

    assert "strandline controller recover" in (refused.value.details() or "")


async def _register(process: SeveralProcess, proof: PositionProof | None = None) -> int:
    """Node 1 registers, with the newest position that it was sent; returns its epoch."""
    request = pb.RegisterNodeRequest(
        node_id=1,
        incarnation_id=uuid.uuid4().hex,
        directory_id="d1",
        feature_levels={"min_level": 1, "max_level": 1},
        roles=[1, 2],
    )
    for endpoint in (request.endpoints.client, request.endpoints.internal):
        endpoint.host, endpoint.port = "127.0.0.1", 1
    if proof is not None:
        request.position.CopyFrom(write_position(proof))
    async with stub_of(process) as stub:
        return int((await stub.RegisterNode(request, timeout=WITHIN_S)).node_epoch)


async def test_a_backup_of_the_end_serves_on(members: Members, tmp_path: Path) -> None:
    """Nothing was decided since, so nobody has seen more, and the next reign continues that history."""
    async with several(members, tmp_path, "c1") as group:
        before = (await group.active()).driver.core.state
        await group.stop("c1")
        made = await _back_up(members, group.prefix, tmp_path / "backup")
        await group.lose_store()
        back = await _restore(tmp_path / "backup", etcd(members, group.prefix))
        await group.start("c1")
        after = (await group.active()).driver.core.state

    assert (made, back) == (ExitCode.CLEAN, ExitCode.CLEAN)
    assert after.header.controller_epoch == before.header.controller_epoch + 1
    assert set(before.reigns) < set(after.reigns)


async def test_what_is_no_backup_is_named(members: Members, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is missing, or is something else, is refused in one line; so is a prefix that holds no cluster."""
    (tmp_path / "other").write_text("no backup at all, but long enough to be looked at as one")
    nothing = await _restore(tmp_path / "missing", sqlite(tmp_path / "c1"))
    no_backup = await _restore(tmp_path / "other", sqlite(tmp_path / "c1"))
    empty = await _back_up(members, "/strandline/nobody", tmp_path / "copy")
    said = capsys.readouterr().err.splitlines()

    assert [nothing, no_backup, empty] == [ExitCode.FAILED] * 3
    assert ["cannot be read" in said[0], "is no backup" in said[1], "check the prefix" in said[2]] == [True] * 3
    assert not (tmp_path / "copy").exists()
