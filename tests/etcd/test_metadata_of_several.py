"""What several controllers serve and report: their copies, their reigns (C60, C62)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from etcd_members import stopped
from several_controllers import WITHIN_S, Several, producer_id, several

from strandline.client import Admin
from strandline.client.cluster import subscribing
from strandline.controller.several import SeveralProcess
from strandline.core.reigns.reign import State
from strandline.etcd.members import Members
from strandline.export.sink import EVENTS_NAME
from strandline.rpc.channels import open_channel, target
from strandline.v1 import metadata_service_pb2 as pb
from strandline.v1.metadata_service_pb2_grpc import MetadataServiceStub


@asynccontextmanager
async def _metadata_of(process: SeveralProcess) -> AsyncIterator[Any]:
    """A stub for the MetadataService of a controller."""
    assert process.endpoint is not None
    async with open_channel(process.endpoint) as channel:
        yield MetadataServiceStub(channel)


async def _decide(process: SeveralProcess) -> int:
    """One transaction; returns its offset."""
    await producer_id(process)
    return process.driver.core.state.header.metadata_offset


async def _until(stream: Any, controller_epoch: int, offset: int) -> None:
    """Read until the subscription has reached a position."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            message = await stream.read()
            assert isinstance(message, pb.SubscribeResponse), "the stream ended"
            if (message.as_of.controller_epoch, message.as_of.metadata_offset) >= (controller_epoch, offset):
                return


async def _settled(cluster: Several) -> tuple[SeveralProcess, SeveralProcess]:
    """The active controller, and a standby that has all it has."""
    active = await cluster.active()
    (standby,) = [process for process in cluster.running.values() if process is not active]
    await cluster.until(lambda: standby.reigning.store.state == active.driver.core.state)
    return active, standby


async def test_a_standby_serves_what_the_active_decided(members: Members, tmp_path: Path) -> None:
    """Both answer with the same state; only the one that decides says that it has no age."""
    async with several(members, tmp_path, "c1", "c2") as cluster:
        await _decide(await cluster.active())
        answers = []
        for process in await _settled(cluster):
            async with _metadata_of(process) as stub:
                answers.append(await stub.GetMetadata(pb.MetadataServiceGetMetadataRequest(), timeout=WITHIN_S))
        of_active, of_standby = answers

        assert of_active.metadata == of_standby.metadata
        assert of_active.as_of.age_ms == 0
        assert 0 < of_standby.as_of.age_ms < WITHIN_S * 1000


async def test_a_subscription_goes_on_when_the_reign_moves(members: Members, tmp_path: Path) -> None:
    """A subscriber of a controller that hands over stays with it, and is sent what its successor decides."""
    async with several(members, tmp_path, "c1", "c2") as cluster:
        first, second = await _settled(cluster)
        async with _metadata_of(first) as stub:
            stream = stub.Subscribe()
            await stream.write(pb.SubscribeRequest(all_topics=True))
            await _until(stream, 1, await _decide(first))
            await cluster.all_follow()
            await first.reigning.hand_over(to="c2")
            await cluster.until(lambda: second.reigning.core.state is State.ACTIVE)
            assert await cluster.active() is second
            await _until(stream, 2, await _decide(second))
            stream.cancel()


async def test_the_age_of_a_standby_grows_while_the_store_is_not_read(
    members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a standby knows is as old as the last read of the store whose head it has, not as its last change."""
    async with several(members, tmp_path, "c1", "c2") as cluster:
        _, standby = await _settled(cluster)
        at = standby.reigning.store.applied
        now_ms = 10_000_000
        copy = standby.served
        monkeypatch.setattr(copy, "_clock", lambda: now_ms)
        monkeypatch.setattr(standby.reigning.questions, "on_head_read", lambda _asked_ms, _head: None)

        copy.head_read(now_ms - 500, at)
        ages = [copy.feed.as_of().age_ms]
        copy.head_read(now_ms - 100, replace(at, offset=at.offset + 1))
        ages.append(copy.feed.as_of().age_ms)
        copy.head_read(now_ms, at)
        ages.append(copy.feed.as_of().age_ms)

        assert ages == [500, 500, 1]


async def test_a_client_of_a_standby_finds_the_one_that_decides(
    members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One address of a standby is enough, and no client needs WatchMetadata for it."""

    def refuse(*_: object) -> None:
        raise AssertionError("WatchMetadata was opened")

    monkeypatch.setattr(subscribing, "WatchedStream", refuse)
    async with several(members, tmp_path, "c1", "c2") as cluster:
        active, standby = await _settled(cluster)
        assert standby.endpoint is not None
        async with Admin(target(standby.endpoint)) as admin:
            image = await admin.metadata()
            # The standby refuses it, and names the active controller.
            described = await admin.list_nodes()
            age_ms = admin.metadata_age_ms

        assert image.metadata_offset == active.driver.core.state.header.metadata_offset
        assert described == []
        assert age_ms is not None
        assert age_ms > 0


# What several controllers say of their reigns and of their store, as data: read from the files that they write.


def _rows(directory: Path) -> list[dict[str, Any]]:
    path = directory / EVENTS_NAME
    lines = path.read_text().splitlines() if path.exists() else []
    return [row for line in lines if (row := json.loads(line))["event_type"] in ("CONTROLLER_REIGN", "STORE")]


async def _until_events(cluster: Several, directory: Path, count: int) -> list[dict[str, Any]]:
    """Wait until so many of them are written."""
    await cluster.until(lambda: len(_rows(directory)) >= count)
    return _rows(directory)


async def test_a_reign_has_a_begin_and_an_end(members: Members, tmp_path: Path) -> None:
    """Token and reign id join the two; a controller that never decided writes neither."""
    async with several(members, tmp_path, "c1", "c2", "c3") as cluster:
        first = await cluster.active()
        token = first.reigning.core.token
        await cluster.all_follow()
        await first.reigning.hand_over(to="c2")
        await cluster.until(lambda: cluster.running["c2"].reigning.core.state is State.ACTIVE)
        one = await _until_events(cluster, tmp_path / "c1", 2)
        two = await _until_events(cluster, tmp_path / "c2", 1)
        third = _rows(tmp_path / "c3")

    assert [(row["phase"], row["cause"], row["token"]) for row in one] == [
        ("begin", "key_free", token),
        ("end", "hand_over", token),
    ]
    assert one[0]["reign_id"] == one[1]["reign_id"] != two[0]["reign_id"]
    assert two[0]["token"] > token
    assert two[0]["controller_id"] == "c2"
    assert two[0]["meta_offset"] > one[0]["meta_offset"]
    assert third == []


async def test_an_outage_of_the_store_is_told_with_its_length(members: Members, tmp_path: Path) -> None:
    """Away when the doors close; back, with the time without decisions, when they open in the same reign."""
    async with several(members, tmp_path, "c1") as cluster:
        active = await cluster.active()
        with stopped(members, 0, 1, 2):
            await cluster.until(lambda: active.reigning.core.state is State.UNSURE)
            refusal = active.reigning.refusal().message
        await cluster.active()
        rows = await _until_events(cluster, tmp_path / "c1", 3)

    assert refusal.startswith("no decisions for 0 s: store unreachable")
    assert [(row["event_type"], row["phase"]) for row in rows[:2]] == [("CONTROLLER_REIGN", "begin"), ("STORE", "away")]
    # etcd 3.4 may revoke the lease when it comes back: then another reign ends the span.
    assert (rows[2]["event_type"], rows[2]["phase"]) in {("STORE", "back"), ("CONTROLLER_REIGN", "end")}
    if rows[2]["phase"] == "back":
        assert rows[2]["closed_ms"] > 0


async def test_a_store_that_went_back_is_told(members: Members, tmp_path: Path) -> None:
    """What stops a controller's core from serving ends its reign: its last words, a free key, and refusals with why."""
    async with several(members, tmp_path, "c1") as cluster:
        active = await cluster.active()
        active.driver.on_stop_serving("node 1 has seen more than the store holds")
        rows = await _until_events(cluster, tmp_path / "c1", 3)
        with pytest.raises(grpc.aio.AioRpcError, match="node 1 has seen more"):
            await producer_id(active)
        async with asyncio.timeout(WITHIN_S):
            while (await active.reigning.store.read()).holder is not None:
                continue

    assert [(row["event_type"], row["phase"], row["cause"]) for row in rows[1:]] == [
        ("CONTROLLER_REIGN", "end", "store_went_back"),
        ("STORE", "went_back", "older_than_seen"),
    ]


async def test_the_size_of_the_store_is_known(members: Members, tmp_path: Path) -> None:
    """Status of every member, for the metrics and for refusals: how many answer, and how large the file is."""
    async with several(members, tmp_path, "c1") as cluster:
        active = await cluster.active()
        await cluster.until(lambda: active.reigning.health.last is not None)
        health = active.reigning.health.last
        place = active._place()

    assert (health.answering, health.members) == (3, 3)
    assert set(health.members_leader_last) == set(members.endpoints)
    assert place.store_bytes == health.db_bytes > 0
    assert place.quota_bytes == 2 << 30
