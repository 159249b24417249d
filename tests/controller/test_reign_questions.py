"""What a reign asks of etcd: each question ends in exactly one event, whatever the store answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from strandline.controller.reign_questions import ReignQuestions
from strandline.core.messages import Endpoint
from strandline.core.reigns import effects, events
from strandline.core.reigns.events import Head, Holder, ReignEvent
from strandline.etcd.errors import EtcdError, NoSpace, Unanswered
from strandline.metadata.etcd import StoreView
from strandline.metadata.etcd_layout import Batch, Presence
from strandline.metadata.store import StoreWentBack
from strandline.observe.controllers import ReignReports
from strandline.runtime.process import OwnTasks

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
        return lambda questions: questions.append(effect, Batch(effect.head, (), ()))
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
    """Without a holder nobody lost to anybody: it is asked again like any question without an answer."""
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
