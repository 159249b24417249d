"""Moving and restoring a store: between SQLite and etcd, and from a backup (C44, C45)."""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from migrations import cluster, etcd, killed, lease_ended, moved, served, sqlite, store_of
from several_controllers import WITHIN_S, Several, producer_id, registration, settings, several, stop, stub_of

from strandline.controller.process import ControllerProcess
from strandline.controller.settings import ControllerSettings
from strandline.controller.several import SeveralProcess
from strandline.controller.tools import backup, migrate, recover
from strandline.controller.tools.migrate import MigrationStep
from strandline.core.control.state import ClusterState
from strandline.core.messages import PositionProof
from strandline.core.positions import prove
from strandline.core.reigns.reign import State
from strandline.core.types import NodeEpoch, NodeId
from strandline.etcd.members import Members
from strandline.metadata.sqlite import FILE_NAME
from strandline.metadata.store import StoreFailed, StoreInUse, StoreMarked, StoreWentBack
from strandline.rpc.channels import target
from strandline.rpc.convert.metadata import POSITION
from strandline.runtime.exit_codes import ExitCode

OTHER_TIMES = pytest.mark.timeout(180)


async def test_everything_is_moved_and_comes_back(members: Members, prefix: str, tmp_path: Path) -> None:
    """Epochs, positions, tombstones, the history of reigns and the order of topics are equal there and back again."""
    here, there, state = sqlite(tmp_path / "c1"), etcd(members, prefix), cluster()
    await store_of(tmp_path / "c1", state)

    await moved(here, there)
    in_etcd, left = await served(there), await served(here)
    await moved(there, here)
    back, gone = await served(here), await served(there)

    for found in (in_etcd, back):
        assert found == state
        assert list(found.topics) == ["id-b", "id-a"]
        assert list(found.reigns) == ["f" * 32, "a" * 32]
    assert isinstance(left, StoreMarked) and f"was moved to {there}" in str(left)
    assert isinstance(gone, StoreMarked) and f"was moved to {here}" in str(gone)


@OTHER_TIMES
@pytest.mark.parametrize("step", list(MigrationStep))
async def test_a_migration_that_was_killed_is_run_again(
    members: Members, prefix: str, tmp_path: Path, step: MigrationStep
) -> None:
    """Killed behind any step, in either direction: at most one store serves, a whole one; a second run ends well."""
    here, there, state = sqlite(tmp_path / "c1"), etcd(members, prefix), cluster()
    await store_of(tmp_path / "c1", state)

    for source, to in ((here, there), (there, here)):
        await killed(source, to, step)
        between = [await served(source), *([await served(to)] if _exists(to, step) else [])]
        await lease_ended(there)
        await moved(source, to)
        after, left = await served(to), await served(source)

        serving = [found for found in between if isinstance(found, ClusterState)]
        assert len(serving) <= 1
        assert all(found == state for found in serving)
        assert after == state
        assert isinstance(left, StoreMarked)


def _exists(words: str, step: MigrationStep) -> bool:
    """Whether the target can hold anything yet: before, it is what a new cluster would begin in."""
    return list(MigrationStep).index(step) >= list(MigrationStep).index(MigrationStep.TARGET_PENDING)


async def test_a_half_migrated_store_refuses_to_serve(members: Members, prefix: str, tmp_path: Path) -> None:
    """Controllers and `recover` refuse it in one line that names the command; so do they a store that was moved."""
    here, there = sqlite(tmp_path / "c1"), etcd(members, prefix)
    await store_of(tmp_path / "c1", cluster())
    await killed(here, there, MigrationStep.WRITTEN)
    with pytest.raises(StoreMarked, match="half migrated") as pending:
        await SeveralProcess(settings(members, tmp_path, prefix, "c2"), stop=stop).start()
    recovered = await asyncio.to_thread(
        recover.main,
        ["--data-dir", str(tmp_path / "c2"), "--etcd-endpoints", there.removeprefix("etcd:").partition("/")[0],
         "--etcd-prefix", prefix, str(_node(tmp_path))],
    )  # fmt: skip
    await lease_ended(there)
    await moved(here, there)
    with pytest.raises(StoreMarked, match="was moved to etcd:"):
        await ControllerProcess(ControllerSettings(data_dir=tmp_path / "c1"), stop=stop).start()

    assert f"strandline controller migrate --from {here} --to {there}" in str(pending.value)
    assert "\n" not in str(pending.value)
    assert recovered is ExitCode.FAILED


def _node(directory: Path) -> Path:
    path = directory / "node-1"
    path.mkdir()
    (path / "meta.properties").write_text("version=1\nnode.id=1\ndirectory.id=d1\ncluster.id=c\n")
    return path


async def test_controllers_go_on_from_either_store(members: Members, tmp_path: Path) -> None:
    """A cluster of one controller moves to etcd: the next reign there has the next epoch and knows the last reign."""
    alone = ControllerProcess(ControllerSettings(data_dir=tmp_path / "alone"), stop=stop)
    await alone.start()
    first = alone.driver.core.state
    await alone.shut_down()
    async with several(members, tmp_path) as group:
        await moved(sqlite(tmp_path / "alone"), etcd(members, group.prefix))
        await group.start("c1")
        second = (await group.active()).driver.core.state

    assert second.header.cluster_id == first.header.cluster_id
    assert second.header.controller_epoch == first.header.controller_epoch + 1
    assert set(first.reigns) < set(second.reigns)


async def test_a_controller_that_runs_is_named(members: Members, tmp_path: Path) -> None:
    """The source is locked first: a store in use is not touched, and the line names who has it."""
    async with several(members, tmp_path, "c1") as group:
        there = etcd(members, group.prefix)
        with pytest.raises(StoreInUse, match=r"in use by .*; stop every controller"):
            await moved(there, sqlite(tmp_path / "back"))
        alone = ControllerProcess(ControllerSettings(data_dir=tmp_path / "alone"), stop=stop)
        await alone.start()
        with pytest.raises(StoreInUse, match="in use by another process"):
            await moved(sqlite(tmp_path / "alone"), there)
        await alone.shut_down()

    assert not (tmp_path / "back").exists()


async def test_a_target_that_holds_something_is_kept(members: Members, prefix: str, tmp_path: Path) -> None:
    """A store of another cluster is never overwritten; one of this cluster only with --replace."""
    here, there, state = sqlite(tmp_path / "c1"), etcd(members, prefix), cluster()
    await store_of(tmp_path / "c1", state)
    await store_of(tmp_path / "c2", state)
    await moved(here, there)
    with pytest.raises(StoreFailed, match="add --replace"):
        await moved(sqlite(tmp_path / "c2"), there)
    replaced = await moved(sqlite(tmp_path / "c2"), there, replaces=True)
    other = replace(state, header=replace(state.header, cluster_id="other"))
    await store_of(tmp_path / "c3", other)
    with pytest.raises(StoreFailed, match=r"holds cluster c, .* cluster other"):
        await moved(sqlite(tmp_path / "c3"), there, replaces=True)

    assert replaced == await served(there) == state


async def test_a_migration_to_another_store_is_not_taken_over(members: Members, prefix: str, tmp_path: Path) -> None:
    """A store that moved to one place is not moved to another; what one source half filled, another does not."""
    here, there = sqlite(tmp_path / "c1"), etcd(members, prefix)
    await store_of(tmp_path / "c1", cluster())
    await store_of(tmp_path / "c2", cluster())
    await killed(here, there, MigrationStep.TARGET_PENDING)
    await lease_ended(there)
    with pytest.raises(StoreMarked, match=f"half migrated from {here}"):
        await moved(sqlite(tmp_path / "c2"), there)
    await moved(here, there)
    with pytest.raises(StoreMarked, match=f"was moved to {there}"):
        await moved(here, etcd(members, f"{prefix}-other"))


async def test_a_directory_is_the_same_from_wherever_it_is_named(
    members: Members, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration that began with a relative path is ended by one with the whole path."""
    await store_of(tmp_path / "c1", cluster())
    await killed(sqlite(tmp_path / "c1"), etcd(members, prefix), MigrationStep.TARGET_PENDING)
    await lease_ended(etcd(members, prefix))
    monkeypatch.chdir(tmp_path)

    assert await moved("sqlite:c1", etcd(members, prefix)) == cluster()
    assert sqlite(tmp_path / "c1") in str(await served("sqlite:c1"))


@OTHER_TIMES
async def test_ten_thousand_partitions_are_moved(members: Members, prefix: str, tmp_path: Path) -> None:
    """They go in several parts and come back equal; the target of 5 s is one of processor time here."""
    state = cluster(partitions=5_000)
    await store_of(tmp_path / "c1", state)
    began_s = time.process_time()
    await moved(sqlite(tmp_path / "c1"), etcd(members, prefix))
    spent_s = time.process_time() - began_s

    assert await served(etcd(members, prefix)) == state
    assert spent_s < 10, f"{spent_s:.1f} s of processor time"


@pytest.mark.parametrize(
    ("source", "to", "code", "said"),
    [
        ("nonsense", "etcd:127.0.0.1:1", ExitCode.USAGE, "'nonsense' names no store"),
        ("sqlite:/x", "backup:/y", ExitCode.USAGE, "'backup:/y' names no store"),
        ("sqlite:{}", "etcd:host", ExitCode.USAGE, "write host:port"),
        ("sqlite:{}", "sqlite:{}", ExitCode.FAILED, "both source and target"),
        ("sqlite:{}", "sqlite:{}/other", ExitCode.FAILED, f"holds no {FILE_NAME}"),
    ],
    ids=["no kind", "a backup as target", "no port", "one store twice", "no store"],
)
def test_words_that_name_no_store_are_refused(
    source: str, to: str, code: ExitCode, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line with the forms, and nothing is created."""
    words = ["--from", source.format(tmp_path), "--to", to.format(tmp_path)]

    assert migrate.main(words) is code
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# A backup is the same file from either store, and what is restored from it does not pretend to be newer (C45).


async def _back_up(members: Members, prefix: str, file: Path) -> ExitCode:
    where = ",".join(map(target, members.endpoints))
    words = ["--etcd-endpoints", where, "--etcd-prefix", prefix, "--to", str(file)]
    return await asyncio.to_thread(backup.main, words)


async def _restore(file: Path, to: str, *words: str) -> ExitCode:
    return await asyncio.to_thread(backup.restore, ["--from", str(file), "--to", to, *words])


async def _restored_group(group: Several, members: Members, file: Path) -> PositionProof:
    """Decide, back up beside the running controller, decide more, stop, restore; returns what node 1 was sent last."""
    active = await group.active()
    node_epoch = await _register(active)
    assert await _back_up(members, group.prefix, file) is ExitCode.CLEAN
    await producer_id(active)
    await producer_id(active)
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
        with pytest.raises(grpc.aio.AioRpcError, match="strandline controller recover"):
            await _register(active, seen)
        await group.until(lambda: active.reigning.core.state is State.STOPPED)


async def _register(process: SeveralProcess, proof: PositionProof | None = None) -> int:
    """Node 1 registers, with the newest position that it was sent; returns its epoch."""
    request = registration(1)
    if proof is not None:
        request.position.CopyFrom(POSITION.write(proof))
    async with stub_of(process) as stub:
        return int((await stub.RegisterNode(request, timeout=WITHIN_S)).node_epoch)


async def test_a_backup_of_the_end_serves_on(members: Members, tmp_path: Path) -> None:
    """Nothing was decided since, so no process has seen more, and the next reign continues that history."""
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
    assert ["cannot be read" in said[0], "is not a backup" in said[1], "check the prefix" in said[2]] == [True] * 3
    assert not (tmp_path / "copy").exists()
