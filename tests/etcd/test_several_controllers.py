"""Several controllers on a real etcd: one decides, the others know what it decided, and one of them is next."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import grpc
import pytest
from etcd_members import stopped
from running_controller import node_directory
from several_controllers import WITHIN_S, producer_id, registration, settings, several, stop, stub_of

from strandline.client import Admin
from strandline.controller import among, reigning
from strandline.controller.several import SeveralProcess
from strandline.controller.tools import recover
from strandline.core.errors import ControllerHint, ErrorCode, Refused
from strandline.core.messages import MetadataImage
from strandline.core.reigns.reign import State
from strandline.core.types import Rules
from strandline.etcd.errors import Unanswered
from strandline.etcd.members import Members
from strandline.metadata.etcd import StoreView
from strandline.metadata.store import StoreInUse
from strandline.rpc.channels import target
from strandline.rpc.status import refusal_of
from strandline.runtime.exit_codes import ExitCode
from strandline.v1 import controller_service_pb2 as pb


async def test_one_decides_and_the_others_name_it(members: Members, tmp_path: Path) -> None:
    """A standby refuses with NOT_CONTROLLER and says where the active controller is (C31)."""
    async with several(members, tmp_path, "c1", "c2", "c3") as cluster:
        active = await cluster.active()
        await cluster.until(lambda: len(cluster.standbys()) == 2)
        given = await producer_id(active)
        standby = cluster.standbys()[0]
        await cluster.until(lambda: standby.reigning.store.active is not None)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await producer_id(standby)
        refusal = refusal_of(refused.value)

        assert given >= 0
        assert active is cluster.running["c1"]
        assert refusal.code is ErrorCode.NOT_CONTROLLER
        assert active.endpoint is not None
        assert (refusal.hint.why, refusal.hint.active_id) == ("STANDBY", "c1")
        assert refusal.hint.endpoint == target(active.endpoint)


async def test_a_request_repeated_at_the_successor_is_not_done_twice(members: Members, tmp_path: Path) -> None:
    """A caller whose answer was lost with the active asks its successor again, with the same request id (C32)."""
    create = pb.CreateTopicsRequest(topics=[pb.CreatableTopic(name="t")], request_id=str(uuid.uuid4()))
    grow = pb.CreatePartitionsRequest(topics=[pb.GrowingTopic(name="t", count=3)], request_id=str(uuid.uuid4()))

    async def both(process: SeveralProcess) -> tuple[Any, Any]:
        async with stub_of(process) as stub:
            created = await stub.CreateTopics(create, timeout=WITHIN_S)
            return created.topics[0], (await stub.CreatePartitions(grow, timeout=WITHIN_S)).results[0]

    async with several(members, tmp_path, "c1", "c2") as cluster:
        async with stub_of(await cluster.active()) as stub:
            node = await stub.RegisterNode(registration(1), timeout=WITHIN_S)
        created, grown = await both(await cluster.active())
        await cluster.stop("c1")
        async with stub_of(await cluster.active()) as stub:
            # The successor waits for a node's word before it answers an administrator (C37).
            beat = pb.HeartbeatRequest(node_id=1, node_epoch=node.node_epoch, cluster_id=node.cluster_id)
            await stub.Heartbeat(beat, timeout=WITHIN_S)
        again, regrown = await both(await cluster.active())
        topic = (await cluster.active()).driver.core.state.topics[created.topic_id]

        assert (created.error_code, grown.error_code) == (0, 0)
        assert (again.topic_id, again.error_code) == (created.topic_id, 0)
        assert regrown == grown
        assert len(topic.partitions) == 3


async def test_an_admin_does_not_notice_a_hand_over(members: Members, tmp_path: Path) -> None:
    """A topic that is asked for while no controller decides is created once one does (C32)."""
    async with several(members, tmp_path, "c1", "c2") as cluster:
        first = await cluster.active()
        async with stub_of(first) as stub:
            await stub.RegisterNode(registration(1), timeout=WITHIN_S)
        addresses = [target(p.endpoint) for p in cluster.running.values() if p.endpoint is not None]
        await cluster.all_follow()
        async with Admin(addresses, timeout_ms=int(WITHIN_S * 1000)) as admin:
            leaving = asyncio.create_task(first.reigning.hand_over(to="c2"))
            created = [await admin.create_topic(f"t{number}", partitions=1) for number in range(20)]
            await leaving
        second = await cluster.active()

        assert second is cluster.running["c2"]
        assert {one.topic_id for one in created} == set(second.driver.core.state.topics)


async def test_a_linearizable_question_is_answered_only_if_the_store_confirms(
    members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C14b: `GetMetadata(linearizable)` waits for the confirmation, and is refused without one; a plain one is not."""
    plain, confirmed = pb.GetMetadataRequest(), pb.GetMetadataRequest(linearizable=True)
    asked: list[str] = []

    async def refuse() -> None:
        asked.append("confirm")
        raise Refused(ErrorCode.NOT_CONTROLLER, "not confirmed")

    async with several(members, tmp_path, "c1", "c2") as cluster:
        active = await cluster.active()
        async with stub_of(active) as stub:
            given = await producer_id(active)
            offset = active.driver.core.state.header.metadata_offset
            answer = await stub.GetMetadata(confirmed, timeout=WITHIN_S)
            monkeypatch.setattr(active.reigning, "confirm", refuse)
            await stub.GetMetadata(plain, timeout=WITHIN_S)
            with pytest.raises(grpc.aio.AioRpcError, match="not confirmed"):
                await stub.GetMetadata(confirmed, timeout=WITHIN_S)

        assert given >= 0
        assert answer.metadata.metadata_offset >= offset
        assert asked == ["confirm"]


async def test_a_paused_controller_does_not_confirm(
    members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C14b: what the read of the store shows counts, not that this process believes that it decides."""
    async with several(members, tmp_path, "c1") as cluster:
        reigning = (await cluster.active()).reigning
        view = await reigning.store.read()
        assert view.holder is not None
        await reigning.confirm()

        for holder in (None, view.holder._replace(token=view.holder.token + 1)):
            now = view._replace(holder=holder)

            # No turn of the loop passes between the replacement and the read, so no other read is answered by it.
            async def read(now: StoreView = now) -> StoreView:
                return now

            with monkeypatch.context() as patched:
                patched.setattr(reigning.store, "read", read)
                with pytest.raises(Refused) as refused:
                    await reigning.confirm()
            assert refused.value.refusal.hint == ControllerHint("STANDBY")

        async def no_answer() -> StoreView:
            raise Unanswered("no member answers")

        with monkeypatch.context() as patched:
            patched.setattr(reigning.store, "read", no_answer)
            with pytest.raises(Refused) as refused:
                await reigning.confirm()
        assert refused.value.refusal.hint == ControllerHint("STORE_AWAY")


async def test_every_controller_says_who_the_controllers_are(members: Members, tmp_path: Path) -> None:
    """A standby lists all of them, which one decides, and how far the others are."""
    async with several(members, tmp_path, "c1", "c2", "c3") as cluster:
        standby = cluster.running["c3"]
        async with stub_of(standby) as stub:

            async def described() -> dict[str, bool]:
                answer = await stub.DescribeControllers(pb.DescribeControllersRequest(), timeout=WITHIN_S)
                return {one.controller_id: one.is_active for one in answer.controllers}

            async with asyncio.timeout(WITHIN_S):
                while len(found := await described()) < 3:
                    continue

        assert found == {"c1": True, "c2": False, "c3": False}


async def test_the_command_hands_over(members: Members, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`controller hand-over` finds the active one at any address; an unknown successor is refused by name."""
    async with several(members, tmp_path, "c1", "c2") as cluster:
        standby = cluster.running["c2"]
        await cluster.until(lambda: len(cluster.standbys()) == 1)
        assert standby.endpoint is not None
        where = ["--bootstrap", target(standby.endpoint)]
        async with asyncio.timeout(WITHIN_S):
            while await asyncio.to_thread(among.main, [*where, "--to", "c2"]) is not ExitCode.CLEAN:
                # It is listed once it has said that it is there.
                continue
        await cluster.until(lambda: standby.reigning.core.state is State.ACTIVE)
        await cluster.active()
        capsys.readouterr()
        refused = await asyncio.to_thread(among.main, [*where, "--to", "c9"])

        assert refused is ExitCode.FAILED
        assert "no standby is called 'c9'" in capsys.readouterr().err


async def test_a_key_that_ends_deposes(members: Members, tmp_path: Path) -> None:
    """A controller whose key is gone drops its core and follows again; in all, no epoch is given twice (C13)."""
    async with several(members, tmp_path, "c1", "c2") as cluster:
        first = await cluster.active()
        epoch = first.driver.core.state.header.controller_epoch
        store = first.reigning.store
        await store.etcd.delete(store.keys.active)
        await cluster.until(lambda: first.reigning.core.state is not State.ACTIVE)
        again = await cluster.active()
        await cluster.until(lambda: len(cluster.standbys()) == 1)

        assert again.driver.core.state.header.controller_epoch == epoch + 1
        assert await producer_id(again) >= 0


async def test_calls_that_wait_for_the_store_are_bounded(
    members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a commit hangs, calls wait behind it up to a limit; the next one is refused at the door (C26)."""
    monkeypatch.setattr(reigning, "_MOST_WAITING", 2)
    async with several(members, tmp_path, "c1") as cluster:
        active = await cluster.active()
        with stopped(members, 0, 1, 2):
            async with stub_of(active) as stub:
                waiting = [
                    asyncio.ensure_future(stub.RegisterNode(registration(number), timeout=WITHIN_S))
                    for number in range(3)
                ]
                await cluster.until(lambda: len(active.driver.calls) == 3)
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stub.RegisterNode(registration(3), timeout=WITHIN_S)
                state = active.reigning.core.state
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)
        refusal = refusal_of(refused.value)
        await cluster.active()

        assert state is State.ACTIVE
        assert (refusal.code, refusal.hint.why) == (ErrorCode.NOT_CONTROLLER, "STORE_AWAY")
        assert "3 calls wait" in refusal.message


async def test_one_member_that_hangs_costs_no_reign(members: Members, tmp_path: Path) -> None:
    """The member that the active controller uses stops answering: it asks the next one, and goes on deciding (C24)."""
    async with several(members, tmp_path, "c1") as cluster:
        active = await cluster.active()
        epoch = active.driver.core.state.header.controller_epoch
        etcd = active.reigning.store.etcd
        used = members.endpoints.index(etcd.member)
        with stopped(members, used):
            await cluster.until(lambda: etcd.member != members.endpoints[used])
            await _stored(active)
            again = await cluster.active()

        assert again is active
        assert active.driver.core.state.header.controller_epoch == epoch


async def _stored(process: SeveralProcess) -> None:
    """Wait until something more is stored: a node registers, as often as it takes."""
    offset = process.driver.core.state.header.metadata_offset
    async with stub_of(process) as stub, asyncio.timeout(WITHIN_S):
        while process.reigning.store.applied is None or process.reigning.store.applied.offset <= offset:
            try:
                await stub.RegisterNode(registration(1), timeout=WITHIN_S)
            except grpc.aio.AioRpcError:
                continue


async def test_one_id_serves_one_process(members: Members, tmp_path: Path) -> None:
    """A second process of one controller id, with another directory, is refused and named the first one."""
    async with several(members, tmp_path, "c1") as cluster:
        active = await cluster.active()
        await asyncio.sleep(0)
        await active.reigning.store.announce(active.reigning.presence, 0)
        other = settings(members, tmp_path / "other", cluster.prefix, "c1")
        with pytest.raises(StoreInUse, match="controller_id c1 is in use"):
            await SeveralProcess(other, stop=stop).start()


async def test_a_lost_store_is_recovered_from_the_nodes(
    members: Members, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`controller recover` refuses while a controller holds the key, then replaces the store by what nodes know."""
    seen = MetadataImage(cluster_id="c", controller_epoch=7, metadata_offset=40, is_snapshot=True, rules=Rules())
    node = node_directory(tmp_path, 1, seen, seen.cluster_id)
    async with several(members, tmp_path, "c1") as cluster:
        await cluster.active()
        where = [target(endpoint) for endpoint in members.endpoints]
        words = ["--etcd-endpoints", ",".join(where), "--etcd-prefix", cluster.prefix, str(node)]
        own = ["--data-dir", str(tmp_path / "c1")]
        held = await asyncio.to_thread(recover.main, [*own, *words])
        said = capsys.readouterr().out
        await cluster.stop("c1")
        await cluster.lose_store()
        done = await asyncio.to_thread(recover.main, [*own, *words])
        await cluster.start("c1")
        header = (await cluster.active()).driver.core.state.header

        assert held is ExitCode.FAILED
        assert "nothing was changed" in said
        assert done is ExitCode.CLEAN
        assert header.cluster_id == "c"
        assert header.controller_epoch > 7
        assert header.metadata_offset > 40
