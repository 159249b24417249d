"""What several controllers say of their reigns and of their store, as data: read from the files that they write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from etcd_members import stopped
from several_controllers import Several, several

from strandline.core.reigns.reign import State
from strandline.etcd.members import Members
from strandline.export.sink import EVENTS_NAME


def _rows(directory: Path) -> list[dict[str, Any]]:
    path = directory / EVENTS_NAME
    lines = path.read_text().splitlines() if path.exists() else []
    return [row for line in lines if (row := json.loads(line))["event_type"] in ("CONTROLLER_REIGN", "STORE")]


async def _until(cluster: Several, directory: Path, count: int) -> list[dict[str, Any]]:
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
        one = await _until(cluster, tmp_path / "c1", 2)
        two = await _until(cluster, tmp_path / "c2", 1)
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
        rows = await _until(cluster, tmp_path / "c1", 3)

    assert refusal.startswith("no decisions for 0 s: store unreachable")
    assert [(row["event_type"], row["phase"]) for row in rows[:2]] == [("CONTROLLER_REIGN", "begin"), ("STORE", "away")]
    # etcd 3.4 may revoke the lease when it comes back: then another reign ends the span.
    assert (rows[2]["event_type"], rows[2]["phase"]) in {("STORE", "back"), ("CONTROLLER_REIGN", "end")}
    if rows[2]["phase"] == "back":
        assert rows[2]["closed_ms"] > 0


async def test_a_store_that_went_back_is_told(members: Members, tmp_path: Path) -> None:
    """The last words of a reign whose store a node has proven older."""
    async with several(members, tmp_path, "c1") as cluster:
        active = await cluster.active()
        active.driver.on_stop_serving("node 1 has seen more than the store holds")
        rows = await _until(cluster, tmp_path / "c1", 3)

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

    assert health is not None
    assert (health.answering, health.members) == (3, 3)
    assert set(health.members_leader_last) == set(members.endpoints)
    assert place.store_bytes == health.db_bytes > 0
    assert place.quota_bytes == 2 << 30
