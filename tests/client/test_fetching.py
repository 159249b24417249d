"""Which fetches are sent, and what each answer leads to, without sockets."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.client.fake_cluster import FakeCluster

from strandline.client.cluster.view import ClusterView
from strandline.client.consume import fetching as module
from strandline.client.consume.cursor import EARLIEST, Cursor, FetchAnswer, WantedFetch
from strandline.client.consume.fetching import Fetching, FetchPolicy
from strandline.client.consume.positions import PositionFinder
from strandline.client.errors import TopicDeleted
from strandline.client.offsets import FoundOffset
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import Endpoint, MetadataImage
from strandline.core.types import LeaderEpoch, NodeId, Offset, TopicPartition
from strandline.records.batch import stamp
from strandline.records.codec import NewRecord, encode_batch
from strandline.rpc.convert.subscription import update_of_image

PARTITIONS = 2


def batch(offset: int) -> bytes:
    """One record as a log holds it."""
    bytes_ = bytearray(encode_batch([NewRecord(None, b"x", 5)]))
    stamp(bytes_, offset, 1)
    return bytes(bytes_)


class FakeLink:
    """Notes what it is asked."""

    def __init__(self, channel: Endpoint, terms: object, *on: Any) -> None:
        self.endpoint, (self.answered, self.refused, self.ended) = channel, on
        self.is_broken = False
        self.asked: list[tuple[int, list[int]]] = []
        self.forgotten: list[int] = []

    async def run(self) -> None:
        raise AssertionError("never started here")

    def name(self, number: int, wanted: list[WantedFetch]) -> None:
        self.asked.append((number, [one.tp.partition for one in wanted]))

    def forget(self, partitions: list[TopicPartition]) -> None:
        self.forgotten += [tp.partition for tp in partitions]


class Reading:
    """A `Fetching` with its links and its cluster at hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **policy: Any) -> None:
        for kind in ("LeaderLink", "FollowerLink"):
            monkeypatch.setattr(module, kind, FakeLink)
        nodes = FakeCluster(3, PARTITIONS)
        for node in nodes.nodes:
            node.endpoint = Endpoint("n", 1000 + node.node_id)
        self.image = nodes.image()
        self.view = ClusterView()
        self.refreshed = 0
        self.hints: list[object] = []
        self.now_ms = 1_000.0
        self.news = 0
        self.changed: Any = None
        cluster: Any = SimpleNamespace(
            view=self.view,
            cluster_id="c",
            background=SimpleNamespace(start=lambda *_, **__: None),
            channels=SimpleNamespace(to=lambda endpoint: endpoint),
            listen=lambda changed: setattr(self, "changed", changed),
            refresh=lambda: setattr(self, "refreshed", self.refreshed + 1),
            note_leader=lambda tp, hint: self.hints.append(hint),
        )
        usual: dict[str, Any] = {
            "from_followers": False, "rack": None, "draw": 0, "auto_offset_reset": "error", "max_wait_ms": 1,
            "min_bytes": 1, "max_bytes": 1 << 20, "buffer_bytes": 100, "isolation_level": 0,
        }  # fmt: skip
        self.fetching = Fetching(
            cluster,
            FetchPolicy(**{**usual, **policy}),
            on_news=lambda: setattr(self, "news", self.news + 1),
            on_lost=lambda: None,
        )
        monkeypatch.setattr(self.fetching, "now_ms", lambda: self.now_ms)
        self.show(self.image)
        (topic,) = self.image.topics
        for partition in topic.partitions:
            cursor = Cursor(topic.name, partition.tp)
            cursor.seek(offset=Offset(0))
            self.fetching.cursors[partition.tp] = cursor
        self.cursors = list(self.fetching.cursors.values())

    def show(self, image: MetadataImage) -> None:
        """What metadata says from now on."""
        self.image = replace(image, metadata_offset=self.image.metadata_offset + 1)
        self.view.apply(update_of_image(self.image))
        self.changed()

    def leads(self, node_id: int) -> MetadataImage:
        """The image with the next leader epoch, led by this node."""
        (topic,) = self.image.topics
        moved = tuple(
            replace(one, leader=NodeId(node_id), leader_epoch=LeaderEpoch(one.leader_epoch + 1))
            for one in topic.partitions
        )
        return replace(self.image, topics=(replace(topic, partitions=moved),))

    def links(self) -> list[FakeLink]:
        """In the order in which they were opened."""
        links: Any = self.fetching._links
        return list(links.values())

    def outstanding(self, cursor: Cursor) -> tuple[FakeLink, int]:
        assert cursor.outstanding is not None
        link: Any = cursor.outstanding[0]
        return link, cursor.outstanding[1]

    def answer(self, cursor: Cursor, payload: bytes = b"", refusal: Refusal | None = None, hint: Any = None) -> None:
        """What its link was asked for last is answered."""
        link, number = self.outstanding(cursor)
        given = FetchAnswer(refusal, Offset(9), Offset(0), None, payload)
        link.answered(link, number, cursor.tp, given, hint)


@pytest.fixture
async def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    return Reading(monkeypatch)


async def test_a_full_buffer_stops_fetches_for_what_has_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond ``buffer_bytes`` only a partition without buffered records is fetched, so that none starves."""
    reading = Reading(monkeypatch, buffer_bytes=len(batch(0)))
    reading.fetching.pump()
    reading.answer(reading.cursors[0], batch(0))
    first, second = reading.cursors
    is_stopped = first.outstanding is None
    reading.answer(second)

    assert is_stopped
    assert second.outstanding is not None


async def test_only_the_answer_of_the_fetch_under_way_is_taken(reading: Reading) -> None:
    """After a seek a late answer to the fetch before it changes nothing."""
    cursor = reading.cursors[0]
    reading.fetching.pump([cursor])
    link, number = reading.outstanding(cursor)
    reading.fetching.drop(cursor)
    cursor.seek(offset=Offset(0))
    reading.fetching.pump([cursor])
    link.answered(link, number, cursor.tp, FetchAnswer(None, Offset(9), Offset(0), None, batch(0)), None)

    assert link.forgotten == [cursor.tp.partition]
    assert not cursor.chunks
    assert cursor.outstanding is not None


async def test_a_new_leader_is_asked_at_once(reading: Reading) -> None:
    """The back-off that the old leader caused does not delay the first fetch from the new one."""
    cursor = reading.cursors[0]
    reading.fetching.pump([cursor])
    reading.answer(cursor, refusal=Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved"))
    waits = cursor.outstanding is None
    reading.show(reading.leads(2))

    assert waits
    assert reading.outstanding(cursor)[0].endpoint == Endpoint("n", 1002)


async def test_a_refusal_asks_for_metadata_and_its_hint_is_kept(reading: Reading) -> None:
    """A node that does not lead any more names the next leader, and metadata is fetched whatever it says."""
    hint = object()
    reading.fetching.pump()
    reading.answer(reading.cursors[0], refusal=Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved"), hint=hint)

    assert reading.refreshed == 1
    assert reading.hints == [hint]


async def test_a_link_that_ends_asks_for_metadata(reading: Reading) -> None:
    """The node behind it may be gone; its partitions wait, and those of other links go on."""
    reading.fetching.pump()
    link, _ = reading.outstanding(reading.cursors[0])
    link.is_broken = True
    link.ended(link, "gone")

    assert reading.refreshed == 1
    assert [cursor.outstanding for cursor in reading.cursors if cursor.resume_at_ms] == [None] * len(link.asked[0][1])


async def test_consumers_of_many_partitions_spread_over_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    """One consumer reads neighbouring partitions of one leader from different followers."""
    reading = Reading(monkeypatch, from_followers=True)
    reading.show(reading.leads(0))
    reading.fetching.pump()

    assert len({reading.outstanding(cursor)[0].endpoint for cursor in reading.cursors}) == PARTITIONS


async def test_a_deleted_topic_is_raised_again_only_a_little_later(reading: Reading) -> None:
    """The error is there once, and once more when the back-off is over."""
    cursor = reading.cursors[0]
    reading.show(replace(reading.image, topics=()))
    first, cursor.failure = cursor.failure, None
    cursor.resume_at_ms = reading.now_ms + 50
    reading.fetching.pump([cursor])
    at_once = cursor.failure
    reading.now_ms += 50
    reading.fetching.pump([cursor])

    assert isinstance(first, TopicDeleted)
    assert at_once is None
    assert isinstance(cursor.failure, TopicDeleted)


async def test_a_timer_does_not_ask_beside_a_fetch_under_way(reading: Reading) -> None:
    """A cursor whose back-off ended early by metadata has one fetch under way, whatever its timer does."""
    cursor = reading.cursors[0]
    reading.fetching.pump([cursor])
    reading.answer(cursor, refusal=Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved"))
    reading.show(reading.leads(2))
    under_way = reading.outstanding(cursor)
    reading.news = 0
    cursor.failure = TopicDeleted(cursor.topic)
    reading.fetching._woken(cursor)

    assert cursor.outstanding == under_way
    assert reading.news == 0


class Finder:
    """Stands for the leaders: does something while it is asked, then answers offset 7."""

    def __init__(self, meanwhile: Any) -> None:
        self._meanwhile = meanwhile
        self.asked: list[dict[TopicPartition, int]] = []

    async def find_some(self, wanted: dict[TopicPartition, int], **_: Any) -> dict[TopicPartition, FoundOffset]:
        self.asked.append(wanted)
        if wanted:
            self._meanwhile()
        return {tp: FoundOffset(Offset(7), None, LeaderEpoch(1)) for tp in wanted}


def finder_of(
    reading: Reading, finder: Any, *, stop_at_end: bool = False, group: Any = None, on_found: Any = lambda: None
) -> PositionFinder:
    """Of the reading's cursors."""
    lost = asyncio.Event()
    return PositionFinder(finder, reading.fetching, stop_at_end=stop_at_end, lost=lost, on_found=on_found, group=group)


async def test_a_seek_while_a_position_is_looked_for_wins(reading: Reading) -> None:
    """The answer to the question before the seek is not the position after it."""
    cursor = reading.cursors[0]
    cursor.seek(time=5)
    finder = Finder(lambda: cursor.seek(time=EARLIEST))
    await finder_of(reading, finder)._find_or_fail()

    assert cursor.is_lost


async def test_a_seek_while_the_group_is_asked_wins(reading: Reading) -> None:
    """What the group has committed is no position for a cursor that was sent elsewhere meanwhile."""
    cursor = reading.cursors[0]
    cursor.seek(time=5)
    cursor.begin_at_committed()

    class Group:
        group_id = "g"

        async def find(self, asked: list[Cursor]) -> dict[TopicPartition, Offset]:
            cursor.seek(time=EARLIEST)
            return {one.tp: Offset(3) for one in asked}

    await finder_of(reading, Finder(lambda: None), group=Group())._find_or_fail()

    assert cursor.position == 7


async def test_ends_are_asked_for_before_beginnings(reading: Reading) -> None:
    """A record that is written after a consumer began is not waited for by ``stop_at_end``."""
    cursor = reading.cursors[0]
    cursor.seek(time=EARLIEST)
    finder = Finder(lambda: None)
    await finder_of(reading, finder, stop_at_end=True)._find_or_fail()

    assert [set(wanted.values()) for wanted in finder.asked if wanted] == [{-1}, {EARLIEST}]


async def test_what_was_cut_off_is_looked_for_again(reading: Reading) -> None:
    """A finder that begins again after it was cancelled looks at once, though nothing says again what is lost."""
    cursor = reading.cursors[0]
    cursor.seek(time=EARLIEST)
    found = asyncio.Event()
    running = asyncio.ensure_future(finder_of(reading, Finder(lambda: None), on_found=found.set).run())
    async with asyncio.timeout(60):
        await found.wait()
    running.cancel()

    assert cursor.position == 7
