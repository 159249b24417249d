"""What a controller is asked: by watchers, by suspicion of a node, by a reign, and how old its copy is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.controller import prober
from strandline.controller.among import ServedCopy
from strandline.controller.prober import Prober
from strandline.controller.reign_questions import ReignQuestions
from strandline.controller.watches import Watches
from strandline.core.control.events import ConnectionRefused, OpenWatch, Publish
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import Endpoint, MetadataImage, NodeImage
from strandline.core.positions import prove
from strandline.core.reigns import effects, events
from strandline.core.reigns.events import Head, Holder, ReignEvent
from strandline.core.types import NodeEpoch, NodeId, Rules
from strandline.etcd.errors import EtcdError, NoSpace, Unanswered
from strandline.metadata.etcd import StoreView
from strandline.metadata.etcd_layout import Presence, TransactionBatch
from strandline.metadata.store import StoreWentBack
from strandline.observe.controllers import ReignReports
from strandline.runtime.process import OwnTasks

ALIVE_MS = 20
SECRET = "5a" * 32


def watches_of(backlog: int) -> Watches[MetadataImage]:
    """An empty set of watches; metadata is sent unchanged."""
    return Watches(backlog, lambda image: image)


def image(offset: int, *nodes: NodeImage, is_snapshot: bool = False) -> MetadataImage:
    """A change at an offset."""
    return MetadataImage(
        cluster_id="c", controller_epoch=1, metadata_offset=offset, is_snapshot=is_snapshot, rules=Rules(), nodes=nodes
    )


def published(offset: int, *nodes: NodeImage) -> Publish:
    """A change at an offset, as the core publishes it."""
    return Publish(image(offset, *nodes), SECRET)


def node(node_id: int, epoch: int) -> NodeImage:
    """A node of an epoch."""
    return NodeImage(node_id=NodeId(node_id), node_epoch=NodeEpoch(epoch))


def opened(node_id: int | None = None, epoch: int | None = None) -> OpenWatch:
    """A new watch, by a node or by a client."""
    return OpenWatch(
        1,
        image(1, is_snapshot=True),
        None if node_id is None else NodeId(node_id),
        None if epoch is None else NodeEpoch(epoch),
    )


async def test_snapshot_comes_first_then_changes_in_order() -> None:
    """Nothing published after the opening is missed or reordered."""
    watches = watches_of(10)
    watch = watches.open(opened())
    for offset in (2, 3):
        watches.publish(published(offset))

    got = [(await watch.next_news(ALIVE_MS)).metadata.metadata_offset for _ in range(3)]

    assert got == [1, 2, 3]


async def test_a_watcher_may_be_as_far_behind_as_its_queue_is_long() -> None:
    """The message that fills the queue is kept; the next one ends the watch, whose reader comes back for a snapshot."""
    watches = watches_of(2)
    watch = watches.open(opened())
    watches.publish(published(2))
    full = watch.refusal
    watches.publish(published(3))

    assert full is None
    with pytest.raises(Refused, match="reconnect for a snapshot"):
        await watch.next_news(ALIVE_MS)


async def test_each_node_gets_its_own_proof_of_a_change() -> None:
    """A change carries a proof for the process that watches; a client gets none (F5)."""
    watches = watches_of(10)
    node_watch, client_watch = watches.open(opened(1, 5)), watches.open(opened())
    watches.publish(published(2))

    messages = [[await watch.next_news(ALIVE_MS) for _ in range(2)][1] for watch in (node_watch, client_watch)]
    proof = prove(SECRET, node_id=NodeId(1), node_epoch=NodeEpoch(5), controller_epoch=1, metadata_offset=2)

    assert messages[0].position == proof
    assert messages[1].position is None


async def test_slow_watcher_is_cut_off_and_holds_nobody_up() -> None:
    """At its bound a watch ends with RESOURCE_EXHAUSTED; a faster one beside it gets everything."""
    watches = watches_of(3)
    slow, quick = watches.open(opened()), watches.open(opened())
    for offset in range(2, 8):
        watches.publish(published(offset))
        await quick.next_news(ALIVE_MS)

    with pytest.raises(Refused) as caught:
        await slow.next_news(ALIVE_MS)

    assert caught.value.refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert "snapshot" in caught.value.refusal.message
    assert (await quick.next_news(ALIVE_MS)).metadata.metadata_offset == 7


async def test_change_that_supersedes_a_watcher_ends_its_watch() -> None:
    """TR15: the old process of a node that registered again gets no further metadata; other nodes do."""
    watches = watches_of(10)
    old, other = watches.open(opened(1, 5)), watches.open(opened(2, 6))
    watches.publish(published(2, node(1, 7)))

    with pytest.raises(Refused) as caught:
        await old.next_news(ALIVE_MS)
    snapshot, change = [await other.next_news(ALIVE_MS) for _ in range(2)]

    assert caught.value.refusal.code is ErrorCode.STALE_BROKER_EPOCH
    assert (snapshot.node_epoch, change.node_epoch, change.metadata.metadata_offset) == (6, 6, 2)


async def test_removal_of_the_watching_node_ends_its_watch() -> None:
    """The watch of a process whose node was removed ends with that reason, instead of never ending (C85)."""
    watches = watches_of(10)
    watch = watches.open(opened(1, 5))
    watches.publish(Publish(replace(image(2), removed_node_ids=(NodeId(1),)), SECRET))

    with pytest.raises(Refused, match="node 1 was removed") as caught:
        await watch.next_news(ALIVE_MS)
    assert caught.value.refusal.code is ErrorCode.STALE_BROKER_EPOCH


async def test_change_of_the_watching_node_itself_goes_to_it() -> None:
    """A fenced or unfenced state is a message to the node, not the end of its watch."""
    watches = watches_of(10)
    watch = watches.open(opened(1, 5))
    await watch.next_news(ALIVE_MS)
    watches.publish(published(2, node(1, 5)))

    assert (await watch.next_news(ALIVE_MS)).metadata.nodes[0].node_epoch == 5


async def test_silence_is_broken_by_a_sign_of_life() -> None:
    """A message without metadata is addressed as well."""
    watch = watches_of(10).open(opened(1, 5))
    await watch.next_news(ALIVE_MS)

    sign = await watch.next_news(ALIVE_MS)

    assert (sign.metadata, sign.node_epoch) == (None, 5)


async def test_end_of_all_watches_tells_the_first_reason() -> None:
    """A watch that is ended twice keeps its first reason; a closed one is removed."""
    watches = watches_of(10)
    watch, gone = watches.open(opened()), watches.open(opened())
    watches.close(gone)
    watches.end_all(Refusal(ErrorCode.NOT_CONTROLLER, "first"))
    watches.end_all(Refusal(ErrorCode.NETWORK_EXCEPTION, "second"))

    with pytest.raises(Refused, match="first"):
        await watch.next_news(ALIVE_MS)
    assert gone.refusal is None
    assert len(watches) == 1


# What a look at a suspected node proves: a refused connection alone, and of the process that was suspected alone.


ONE = NodeId(1)


class OneNode:
    """The driver of a controller that knows one node, which is unfenced."""

    def __init__(self, *, decides: bool = True) -> None:
        image = SimpleNamespace(node_epoch=NodeEpoch(3), fenced=False, internal_endpoint=Endpoint("node", 1))
        self.record = SimpleNamespace(image=image)
        self.core = SimpleNamespace(state=SimpleNamespace(nodes={ONE: self.record}))
        self.seen: list[ConnectionRefused] = []
        self.may_decide = lambda: decides

    def clock(self) -> int:
        return 1_000

    def step(self, event: ConnectionRefused) -> None:
        self.seen.append(event)


async def refused(*_: object) -> Any:
    raise ConnectionRefusedError


async def unreachable(*_: object) -> Any:
    raise OSError("no route to host")


async def silent(*_: object) -> Any:
    await asyncio.Event().wait()


async def _reported(
    monkeypatch: pytest.MonkeyPatch, driver: OneNode, connect: Callable[..., Awaitable[Any]], suspected: int = 3
) -> list[ConnectionRefused]:
    """What the core hears after a watch of this node epoch ended."""
    monkeypatch.setattr(prober, "_LOOK_EVERY_S", 0)
    monkeypatch.setattr(prober, "_GATHER_S", 0)
    monkeypatch.setattr(prober.asyncio, "open_connection", connect)
    core: Any = driver
    looking = Prober(core, deadline_ms=1)
    watch: Any = SimpleNamespace(node_id=ONE, node_epoch=NodeEpoch(suspected))
    looking.suspect(watch)
    async with asyncio.timeout(10):
        while looking._looking or looking._reporting:  # noqa: ASYNC110 - a look from outside
            await asyncio.sleep(0.001)
    await looking.close()
    return driver.seen


async def test_a_refused_connection_is_the_nodes_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is gone, long before its session is over."""
    seen = await _reported(monkeypatch, OneNode(), refused)

    assert seen == [ConnectionRefused(1_000, ((ONE, NodeEpoch(3)),))]


@pytest.mark.parametrize("connect", [unreachable, silent])
async def test_what_cannot_be_reached_is_not_called_gone(
    monkeypatch: pytest.MonkeyPatch, connect: Callable[..., Awaitable[Any]]
) -> None:
    """A time-out and a network without a way prove nothing of the node, which is left to its session."""
    assert await _reported(monkeypatch, OneNode(), connect) == []


async def test_a_newer_process_of_the_node_is_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address may be another one by now, so a refused connection says nothing of it."""
    assert await _reported(monkeypatch, OneNode(), refused, suspected=2) == []


async def test_who_does_not_decide_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reign that ended during the look leaves the node to the next one."""
    assert await _reported(monkeypatch, OneNode(decides=False), refused) == []


# What a reign asks of etcd: each question ends in exactly one event, whatever the store answers.


NOW_MS = 7_000
OTHER = Holder(12, "c2", "c2-1", 4)
HEAD = Head("r2", 3, "digest", 11)
VIEW = StoreView(13, OTHER, HEAD)
APPEND = effects.Append(question=1, token=9, after=8, head=Head("r1", 4, "mine"))
CAMPAIGN = effects.Campaign(question=1, lease_id=5)


class OneAnswer:
    """A store of which every call ends alike: with this value, or by raising it."""

    applied = None

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def called(*given: Any) -> Any:
            self.calls.append((name, *given))
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer

        return called


async def events_after(store: OneAnswer, ask: Callable[[ReignQuestions], None]) -> list[ReignEvent]:
    """What one question ends in."""
    seen: list[ReignEvent] = []
    failures: list[BaseException] = []
    tasks = OwnTasks(failures.append)
    presence = Presence("c1", "c1-1", Endpoint("127.0.0.1", 1), Endpoint("127.0.0.1", 2))
    questions = ReignQuestions(
        store,  # type: ignore[arg-type]
        presence, ReignReports("c1"), tasks, clock=lambda: NOW_MS, step=seen.append,
    )  # fmt: skip
    ask(questions)
    await asyncio.gather(*tasks._tasks)
    assert failures == []
    return seen


def performing(effect: Any) -> Callable[[ReignQuestions], None]:
    """Ask what an effect asks."""
    if isinstance(effect, effects.Append):
        return lambda questions: questions.append(effect, TransactionBatch(effect.head, (), ()))
    return lambda questions: questions.performs[type(effect)](effect)


@pytest.mark.parametrize(
    ("effect", "answer", "event"),
    [
        (APPEND, 14, events.Appended(NOW_MS, 1, 14)),
        (APPEND, VIEW, events.AppendRefused(NOW_MS, 1, 13, OTHER, HEAD)),
        (CAMPAIGN, 14, events.CampaignWon(NOW_MS, 1, 14)),
        (CAMPAIGN, VIEW, events.CampaignLost(NOW_MS, 1, 13, OTHER)),
        (effects.ReadStore(1), VIEW, events.StoreRead(NOW_MS, 1, 13, OTHER, HEAD)),
        (
            effects.ReadStore(1),
            VIEW._replace(holder=None, successor="c3"),
            events.StoreRead(NOW_MS, 1, 13, None, HEAD, "c3"),
        ),
        (effects.GrantLease(1, 5_000), 6, events.LeaseGranted(NOW_MS, 1, 6)),
        (effects.RenewLease(1, 6), True, events.LeaseRenewed(NOW_MS, 1)),
        (effects.RenewLease(1, 6), False, events.LeaseLost(NOW_MS, 1)),
        (effects.TakeKey(1, 12), (13, True), events.KeyTaken(NOW_MS, 1, 13, True)),
        (effects.ReadAlarm(1), True, events.AlarmRead(NOW_MS, 1, True)),
    ],
    ids=lambda given: type(given).__name__,
)
async def test_an_answer_becomes_its_event(effect: Any, answer: Any, event: ReignEvent) -> None:
    """Every field of what the store answered is in the field of the event that means it."""
    assert await events_after(OneAnswer(answer), performing(effect)) == [event]


@pytest.mark.parametrize(
    ("failure", "event"),
    [
        (Unanswered("no member answers"), events.Unanswered(NOW_MS, 1)),
        (NoSpace("the quota is reached"), events.NoSpace(NOW_MS, 1)),
        (EtcdError("refused"), events.Unanswered(NOW_MS, 1)),
    ],
    ids=["unanswered", "no-space", "refused"],
)
@pytest.mark.parametrize(
    "effect", [APPEND, CAMPAIGN, effects.GrantLease(1, 5_000)], ids=["append", "campaign", "grant"]
)
async def test_a_failure_ends_the_question(effect: Any, failure: Exception, event: ReignEvent) -> None:
    """A store that fails leaves no question open, and does not end the process."""
    assert await events_after(OneAnswer(failure), performing(effect)) == [event]


async def test_a_campaign_whose_winner_is_gone_again_has_no_answer() -> None:
    """Without a holder the key was not lost to another: it is asked again like any question without an answer."""
    found = await events_after(OneAnswer(VIEW._replace(holder=None)), performing(CAMPAIGN))

    assert found == [events.Unanswered(NOW_MS, 1)]


async def test_a_store_that_went_back_is_broken_before_its_question_ends() -> None:
    """The reason comes first, so that nothing is decided between the two."""
    found = await events_after(OneAnswer(StoreWentBack("offset 3, and 5 was seen")), performing(APPEND))

    assert [type(event) for event in found] == [events.StoreBroken, events.Unanswered]


async def test_a_resignation_waits_for_the_name_of_the_successor() -> None:
    """The name is written while the key is held: afterwards the store refuses it."""
    store = OneAnswer(None)

    def hand_over(questions: ReignQuestions) -> None:
        questions.name_successor(9, "c3")
        questions.performs[effects.Resign](effects.Resign(1, 9, 5))

    assert await events_after(store, hand_over) == [events.Resigned(NOW_MS, 1)]
    assert store.calls == [("name_successor", 9, "c3"), ("resign", 9, 5)]


# How old the metadata is that a controller serves beside the one that decides (C62).


def head(offset: int) -> Head:
    """The last transaction of a store."""
    return Head("r", offset, "d")


async def test_the_age_counts_from_the_read_whose_head_the_copy_has_reached() -> None:
    """Neither from one that names more than the copy has, nor from when it ended; who decides is never behind."""
    store: Any = SimpleNamespace(applied=head(4), active=None)
    now_ms, decides, ages = 1_000, False, []
    copy = ServedCopy(store, decides=lambda: decides, clock=lambda: now_ms, merge_ms=0)

    def look(at_ms: int) -> None:
        nonlocal now_ms
        now_ms = at_ms
        ages.append(copy.feed.as_of().age_ms)

    copy.head_read(1_200, head(4))
    look(1_500)
    copy.head_read(1_600, head(5))
    look(2_000)
    store.applied = head(5)
    look(2_100)
    decides = True
    look(9_000)

    assert ages == [300, 800, 500, 0]
