"""The pages of groups: lag from what was measured and committed, who is late, what is asked back; names are escaped."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from http_calls import ask
from reported_cluster import NOW_MS, led, partition, picture, topic_of, tp
from running_console import console_here
from tests.client.fake_cluster import TOPIC, fake_cluster
from tests.client.test_consumer import write

from strandline.client import DescribedGroup, DescribedMember, TopicPartition
from strandline.console.group_rows import MOST_ROWS, GroupRow, group_rows
from strandline.console.overview import partition_rows
from strandline.console.pages import write_page
from strandline.console.picture import GroupLook, HeldGroup, NodeLook, Picture
from strandline.console.seen import see
from strandline.console.settings import ConsoleSettings
from strandline.console.site import Site
from strandline.console.watching import Watching
from strandline.core.types import NodeId

EVIL = "<img src=x onerror=alert(1)>\"'&/x"
ANSWERED_S = 20.0


def member(member_id: str, *partitions: int, **changed: Any) -> DescribedMember:
    """A member that reads partitions of tides and was heard a second before its coordinator answered."""
    assigned = tuple(TopicPartition("tides", index) for index in partitions)
    whole = DescribedMember(
        member_id=member_id,
        instance_id=None,
        rack=None,
        member_epoch=3,
        client_id="app",
        client_host="10.0.0.7",
        topics=("tides",),
        pattern=None,
        assignment=assigned,
        target_assignment=assigned,
        revoking=(),
        state="Stable",
        last_heartbeat_age_ms=1_000,
        last_commit_age_ms=None,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
    )
    return replace(whole, **changed)


def held(name: str, *members: DescribedMember, state: str = "Stable", **offsets: int | None) -> HeldGroup:
    """A group that node 2 coordinates; offsets of tides by ``p0``, ``p1`` and so on."""
    committed = {TopicPartition("tides", int(key[1:])): offset for key, offset in offsets.items() if offset is not None}
    return HeldGroup(DescribedGroup(name, state, 3, 3, "uniform", 2, members), committed)


def shown(*groups: HeldGroup, answered_ms: int = NOW_MS - 500, **changed: Any) -> Picture:
    """Three partitions of tides, HW 100 in the first two; nobody leads the third."""
    looks = {1: NodeLook(answered_ms=NOW_MS, led={tp(index): led({1: 100}, hw=100) for index in (0, 1)})}
    topic = topic_of(partition(0), partition(1), partition(2, leader=None))
    of_groups = {NodeId(2): GroupLook(answered_ms=answered_ms, groups=groups, **changed)}
    return replace(picture(topic, looks=looks), groups=of_groups)


def rows(of: Picture) -> Mapping[str, GroupRow]:
    """The groups by name, in their order."""
    return {row.name: row for row in group_rows(of, partition_rows(of))}


def page(of: Picture, path: str) -> str:
    """A page as HTML."""
    watching = Watching(ConsoleSettings(bootstrap=("127.0.0.1:1",)), lambda: None, clock=lambda: NOW_MS)
    return write_page(Site(watching, report="", allow_changes=False).page(path, {}, see(1, of)))


def words(html: str) -> str:
    """What a reader sees."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


async def test_lag_is_what_was_measured_minus_what_is_committed() -> None:
    """Without a high watermark, or without an offset, there is none; a partition behind the HW it knows has lag 0."""
    row = rows(shown(held("g", member("m1", 0, 1), p0=90, p1=120, p2=7)))["g"]
    fresh = rows(shown(held("g", member("m1", 0), p0=None)))["g"]

    assert [(one.partition, one.committed, one.hw, one.lag) for one in row.partitions] == [
        (0, 90, 100, 10),
        (1, 120, 100, 0),
        (2, 7, None, None),
    ]
    assert (row.lag, row.unmeasured) == (10, 1)
    assert [(one.lag, one.readers) for one in fresh.partitions] == [(None, ("m1",))]
    assert (fresh.lag, fresh.unmeasured) == (None, 1)


async def test_who_is_waited_for_comes_first() -> None:
    """Members that are to give something up, then those whose heartbeats are late; groups that are not settled."""
    asked = member("z-asked", 0, revoking=(TopicPartition("tides", 1),), state="unrevoked_partitions")
    late = member("y-late", last_heartbeat_age_ms=22_400)
    found = rows(
        shown(
            held("a-stable", member("m"), p0=0),
            held("b-moving", member("m1"), late, asked, state="Reconciling", p0=90, p1=99),
        )
    )
    moving = found["b-moving"]

    assert list(found) == ["b-moving", "a-stable"]
    assert [row.member.member_id for row in moving.members] == ["z-asked", "y-late", "m1"]
    assert [row.is_late for row in moving.members] == [False, True, False]
    assert moving.members[1].heartbeat_age_ms == 22_900
    assert [(one.partition, one.is_revoking, one.readers) for one in moving.partitions] == [
        (0, False, ("z-asked",)),
        (1, True, ("z-asked",)),
    ]
    assert (moving.revoking, moving.members[0].lag) == (1, 11)


async def test_the_coordinator_that_answered_last_is_believed() -> None:
    """A deposed one may go on describing a group that another coordinates by now."""
    of = shown(held("g", member("m1"), p0=90))
    newer = GroupLook(answered_ms=NOW_MS, groups=(held("g", p0=95),))

    row = rows(replace(of, groups={**of.groups, NodeId(1): newer}))["g"]
    assert (row.coordinator, row.lag, row.members) == (1, 5, ())


async def test_the_list_shows_state_members_and_total_lag() -> None:
    """One row for each group, with a link to its page; what a node does not say is said."""
    of = shown(held("readers", member("m1", 0, 1), p0=90, p1=80), failure="no answer", left_out=3, lacking="loads")
    html = page(of, "/groups")

    assert "readers Stable 1 2 30 2 0.5 s" in words(html)
    assert 'href="/groups/readers"' in html
    assert "Node 2 does not say which groups it coordinates: no answer" in words(html)
    assert "Node 2 coordinates 3 more groups than are shown here" in words(html)
    assert "Node 2 does not know all of its groups yet: loads" in words(html)


async def test_the_page_of_a_group_shows_members_and_partitions() -> None:
    """Each partition with its offset, HW, lag and reader; nobody reads what no member has."""
    asked = member("m1", 0, revoking=(TopicPartition("tides", 1),), instance_id="till-7")
    text = words(page(shown(held("readers", asked, state="Reconciling", p0=90, p1=80, p2=7)), "/groups/readers"))

    assert "m1 instance till-7 app 10.0.0.7 Stable e3 1 1 1 30 1.5 s" in text
    assert "tides-1 80 100 20 m1 asked back tides-0 90 100 10 m1 tides-2 7 – – nobody" in text


async def test_a_group_that_is_not_known_is_not_found() -> None:
    """A page says so, with its status."""
    text = words(page(shown(), "/groups/nobody"))

    assert "No node has reported a group nobody." in text


@pytest.mark.parametrize("path", ["/groups", f"/groups/{EVIL}"])
async def test_names_of_groups_and_members_are_escaped(path: str) -> None:
    """A name may be markup, and may have a slash: its page is found, and shows it as it is."""
    evil = member(EVIL, 0, instance_id=EVIL, client_id=EVIL, client_host=EVIL, rack=EVIL, state=EVIL)
    described = DescribedGroup(EVIL, EVIL, 3, 3, EVIL, 2, (evil,))
    committed = {TopicPartition(EVIL, 0): 5, TopicPartition("tides", 0): 5}
    html = page(shown(HeldGroup(described, committed), failure=EVIL, lacking=EVIL), path)

    assert "<img" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in html
    assert "No node has reported" not in html


async def test_a_table_has_a_bounded_number_of_rows() -> None:
    """Of a thousand groups, and of a thousand members, the first are shown, and how many there are."""
    many = shown(*(held(f"g{number}", p0=number % 100) for number in range(1_000)))
    crowded = shown(held("g", *(member(f"m{number}") for number in range(1_000)), p0=1))

    assert page(many, "/groups").count("<tr>") == MOST_ROWS + 1
    assert f"1,000 groups, the first {MOST_ROWS} of them" in words(page(many, "/groups"))
    assert page(crowded, "/groups/g").count("instance") == 0
    assert f"the first {MOST_ROWS} of 1,000" in words(page(crowded, "/groups/g"))


async def test_groups_are_asked_for_at_their_coordinators() -> None:
    """A console of a cluster lists its group, with what it has committed and the lag from the leader's HW."""
    async with fake_cluster(nodes=2) as cluster:
        write(cluster, b"a", b"b", b"c")
        cluster.groups.committed["readers"] = {(TOPIC, 0): 1}
        async with console_here(cluster.bootstrap) as address, asyncio.timeout(ANSWERED_S):
            text = ""
            while f"{TOPIC}-0 1 " not in text:
                text = words((await ask(address, "/groups/readers")).text)
            listed = words((await ask(address, "/groups")).text)

    assert f"{TOPIC}-0 1 3 2 nobody" in text
    assert "readers Empty 0 1 2" in listed
