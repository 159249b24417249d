"""The performers' own work: reading for a fetch, and that every effect has a performer."""

from __future__ import annotations

from typing import Any, get_args

from strandline.core.log.effects import AnswerFetch, Append, Effect
from strandline.core.log.events import FetchServed, LogRolled
from strandline.core.messages import FetchResult, ReadRange, Served
from strandline.core.types import BatchHeader, LeaderEpoch, NodeId, Offset, TopicPartition
from strandline.runtime.calls import Calls
from strandline.runtime.performers import Performers
from strandline.runtime.ports import Chunk

TP0, TP1, TP2 = (TopicPartition("id", index) for index in range(3))


class FakeLogs:
    """Ten batches of 100 bytes and one offset each per partition; appends roll on request."""

    def __init__(self) -> None:
        self.rolls = False

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None

    def append(self, effect: Append) -> bool:
        return self.rolls

    def read(self, tp: TopicPartition, start: Offset, end: Offset, max_bytes: int, *, at_least_one: bool) -> Chunk:
        count = min(end - start, max_bytes // 100)
        if not count and at_least_one:
            count = 1
        return Chunk(bytes(100 * count), Offset(start + count))


class Unused:
    """A port that this test does not use."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def _performers(calls: Calls, logs: FakeLogs | None = None) -> Performers:
    unused: Any = Unused()
    return Performers(
        logs=logs or FakeLogs(),
        flusher=unused,
        peers=unused,
        calls=calls,
        reporter=unused,
        clock=lambda: 1_000,
        session=unused,
        believe=lambda _: None,
        look_up=lambda _: None,
        coordinating=unused,
    )


def _fetch(calls: Calls, *results: FetchResult, max_bytes: int = 1_000, room: int = 10_000) -> Any:
    """Perform an AnswerFetch; returns the caller's answer and the event that followed."""
    got: list[Served] = []
    request_id = calls.new_id()
    calls.wait(request_id, lambda answer: got.append(answer) or True, lambda: room)
    effect = AnswerFetch(request_id, results, max_bytes, NodeId(2))
    return got, _performers(calls).table[AnswerFetch](effect)


def _result(tp: TopicPartition, start: int, end: int, max_bytes: int = 1_000) -> FetchResult:
    return FetchResult(tp, Offset(0), Offset(0), ReadRange(Offset(start), Offset(end), max_bytes))


def test_every_effect_has_a_performer() -> None:
    """The table has an entry for each type in the union of effects."""
    assert set(_performers(Calls()).table) == set(get_args(Effect))


def test_an_answer_reports_what_it_really_carried() -> None:
    """FetchServed names the end of the bytes read, not of the requested range."""
    got, event = _fetch(Calls(), _result(TP0, 3, 9, max_bytes=250))

    assert [len(served.payload) for served in got[0].partitions] == [200]
    assert event == FetchServed(1_000, NodeId(2), ((TP0, Offset(5)),))


def test_the_answers_limit_is_shared_and_only_the_first_batch_may_break_it() -> None:
    """The first partition with bytes gets at least one batch, the others the rest."""
    got, event = _fetch(Calls(), _result(TP0, 0, 4), _result(TP1, 0, 4), _result(TP2, 0, 4), max_bytes=550)

    assert [len(served.payload) for served in got[0].partitions] == [400, 100, 0]
    assert event.ends == ((TP0, 4), (TP1, 1), (TP2, 0))


def test_a_batch_above_the_limit_is_still_given_first() -> None:
    """KIP-74: a fetch always makes progress."""
    got, _ = _fetch(Calls(), _result(TP0, 0, 4), _result(TP1, 0, 4), max_bytes=50)

    assert [len(served.payload) for served in got[0].partitions] == [100, 0]


def test_a_slow_reader_is_answered_without_records() -> None:
    """When a stream's backlog is full, nothing is read for it and nothing counts as sent."""
    got, event = _fetch(Calls(), _result(TP0, 3, 9), room=0)

    assert [served.payload for served in got[0].partitions] == [b""]
    assert event.ends == ((TP0, 3),)


def test_a_caller_that_is_gone_costs_no_read() -> None:
    """Nothing is read, sent or counted for an unknown caller."""
    effect = AnswerFetch(99, (_result(TP0, 0, 4),), 1_000, NodeId(2))

    assert _performers(Calls()).table[AnswerFetch](effect) is None


def test_an_append_that_began_a_segment_says_so() -> None:
    """LogRolled follows the append that rolled, and no other."""
    logs = FakeLogs()
    table = _performers(Calls(), logs).table
    effect = Append(TP0, Offset(0), LeaderEpoch(0), BatchHeader(Offset(0), 0, 1, 100, 0), b"")
    quiet = table[Append](effect)
    logs.rolls = True

    assert quiet is None
    assert table[Append](effect) == LogRolled(1_000, TP0)
