"""Who is served when: a few subscribers at a time, in turn, and each only as often as it has to be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.core.test_metadata_history import image, partition, topic
from tests.subscriptions.served_metadata import Served, served
from tests.subscriptions.test_metadata_service import read

from strandline.subscriptions import feed as feeds
from strandline.subscriptions import servicer as servicers


def following(cluster: Served, count: int) -> list[int]:
    """So many followers; returns the list to which each adds its number when it is woken."""
    woken: list[int] = []

    def follower(number: int) -> Callable[[], None]:
        return lambda: woken.append(number)

    for number in range(count):
        cluster.feed.follow(follower(number))
    return woken


async def turn() -> None:
    """One turn of the loop."""
    await asyncio.sleep(0)


async def test_a_change_wakes_a_few_subscribers_in_each_turn() -> None:
    """Of 80, 32 are woken at once, 32 in the next turn and 16 in the one behind it."""
    cluster = Served()
    cluster.take(image(1))
    woken = following(cluster, 80)
    counts = []
    cluster.take(image(2))
    for _ in range(4):
        counts.append(len(woken))
        await turn()

    assert counts == [32, 64, 80, 80]
    assert woken == list(range(80))


async def test_a_second_change_takes_no_turn_away() -> None:
    """Those who do not know of the first change yet come before those who do not know of the second only."""
    cluster = Served()
    cluster.take(image(1))
    woken = following(cluster, 40)
    cluster.take(image(2))
    cluster.take(image(3))
    for _ in range(3):
        await turn()

    assert woken == [*range(40), *range(32)]


async def test_a_subscriber_that_left_is_not_woken() -> None:
    """Also if it was about to be."""
    cluster = Served()
    cluster.take(image(1))
    woken = following(cluster, 32)
    gone: list[str] = []
    last = lambda: gone.append("woken")  # noqa: E731  # the follower itself is what leaves
    cluster.feed.follow(last)
    cluster.take(image(2))
    cluster.feed.leave(last)
    await turn()

    assert len(woken) == 32
    assert not gone


async def test_changes_of_other_topics_cost_a_subscriber_no_message_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their positions alone are sent now and then; the next change of its own topic brings the newest."""
    monkeypatch.setattr(servicers, "POSITION_MS", 60_000)
    async with served(image(1, topic("a"), topic("b"))) as cluster:
        stream = await cluster.subscribe("a")
        await read(stream)
        for offset in (2, 3, 4):
            cluster.take(image(offset, topic("b", partition("b", 0, epoch=offset)), whole=False))
        cluster.take(image(5, topic("a", partition("a", 0, epoch=2)), whole=False))
        update = await read(stream)

    assert (update.as_of.metadata_offset, update.changed) == (5, (("id-a", (partition("a", 0, epoch=2),)),))


async def test_the_position_of_such_changes_is_sent_before_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the next sign of life, so that a subscriber knows how current it is."""
    monkeypatch.setattr(servicers, "SIGN_OF_LIFE_MS", 60_000)
    async with served(image(1, topic("a"), topic("b"))) as cluster:
        stream = await cluster.subscribe("a")
        await read(stream)
        cluster.take(image(2, topic("b", partition("b", 0, epoch=2)), whole=False))
        update = await read(stream)

    assert (update.as_of.metadata_offset, update.is_sign_of_life) == (2, True)


async def test_a_sign_of_life_names_no_position_that_was_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a change came in and the stream was not woken yet, the change is sent instead."""
    monkeypatch.setattr(servicers, "SIGN_OF_LIFE_MS", 100)
    monkeypatch.setattr(feeds.MetadataFeed, "_wake_some", lambda _feed: None)
    async with served(image(1, topic("a"))) as cluster:
        stream = await cluster.subscribe("a")
        await read(stream)
        cluster.take(image(2, topic("a", partition("a", 0, epoch=2)), whole=False))
        update = await read(stream)

    assert (update.as_of.metadata_offset, update.is_sign_of_life) == (2, False)
