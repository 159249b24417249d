"""How effects are performed: reads for a fetch, group commit, and when saves become durable."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, get_args
from unittest.mock import Mock

import pytest
from scripted_core import ScriptedCore, driver_with

from strandline.core.log import effects as want
from strandline.core.log.effects import AnswerFetch, Append, Effect
from strandline.core.log.events import FetchServed, LogFlushed, LogRolled, Ticked
from strandline.core.log.replica_log import DurablePoint
from strandline.core.messages import FetchResult, ReadRange, Served
from strandline.core.types import BatchHeader, LeaderEpoch, NodeId, Offset, TopicPartition
from strandline.runtime.calls import Calls
from strandline.runtime.log_performers import Flusher
from strandline.runtime.performers import WITHOUT_SYNC, Performers, behind_saves
from strandline.runtime.ports import Chunk
from strandline.runtime.threads import OwnThreads

TP0, TP1, TP2 = (TopicPartition("id", index) for index in range(3))


class FakeLogs:
    """Ten batches of 100 bytes and one offset each per partition; appends roll on request."""

    rolls = False

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None

    def append(self, effect: Append) -> bool:
        return self.rolls

    def read(self, tp: TopicPartition, start: Offset, end: Offset, max_bytes: int, *, at_least_one: bool) -> Chunk:
        count = min(end - start, max_bytes // 100)
        if not count and at_least_one:
            count = 1
        return Chunk(bytes(100 * count), Offset(start + count))


def _performers(calls: Calls, logs: FakeLogs | None = None) -> Performers:
    unused: Any = Mock()
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
    """FetchServed names the end and the number of the bytes read, not the requested range."""
    got, event = _fetch(Calls(), _result(TP0, 3, 9, max_bytes=250))

    assert [len(served.payload) for served in got[0].partitions] == [200]
    assert event == FetchServed(1_000, NodeId(2), ((TP0, Offset(5), 200),))


def test_the_answers_limit_is_shared_and_only_the_first_batch_may_break_it() -> None:
    """The first partition with bytes gets at least one batch, the others the rest."""
    got, event = _fetch(Calls(), _result(TP0, 0, 4), _result(TP1, 0, 4), _result(TP2, 0, 4), max_bytes=550)

    assert [len(served.payload) for served in got[0].partitions] == [400, 100, 0]
    assert event.ends == ((TP0, 4, 400), (TP1, 1, 100), (TP2, 0, 0))


def test_a_batch_above_the_limit_is_still_given_first() -> None:
    """KIP-74: a fetch always makes progress."""
    got, _ = _fetch(Calls(), _result(TP0, 0, 4), _result(TP1, 0, 4), max_bytes=50)

    assert [len(served.payload) for served in got[0].partitions] == [100, 0]


def test_a_slow_reader_is_answered_without_records() -> None:
    """When a stream's backlog is full, nothing is read for it and nothing counts as sent."""
    got, event = _fetch(Calls(), _result(TP0, 3, 9), room=0)

    assert [served.payload for served in got[0].partitions] == [b""]
    assert event.ends == ((TP0, 3, 0),)


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


TP = TopicPartition("id", 0)


class Token:
    """A commit whose sync waits until it is released."""

    def __init__(self, leo: int, *, has_work: bool = True, error: Exception | None = None) -> None:
        self.leo_at_issue = Offset(leo)
        self.has_work = has_work
        self.begun, self.let_go = threading.Event(), threading.Event()
        self._error = error

    def sync(self) -> None:
        self.begun.set()
        self.let_go.wait(10)
        if self._error is not None:
            raise self._error


def _logs(*tokens: Token) -> Mock:
    """Logs that return these tokens."""
    return Mock(issue_flush=Mock(side_effect=tokens))


def _flusher(logs: Any, now: list[int] | None = None) -> tuple[Flusher, list[LogFlushed], list[BaseException]]:
    events: list[LogFlushed] = []
    errors: list[BaseException] = []
    threads = OwnThreads("fsync", 1)
    flusher = Flusher(logs, events.append, errors.append, lambda: (now or [1_000])[0], threads=threads)
    return flusher, events, errors


async def test_the_event_comes_after_the_sync_and_names_the_leo_at_issue() -> None:
    """A commit covers what was appended when it was issued (M55)."""
    token = Token(7)
    logs = _logs(token)
    flusher, events, _ = _flusher(logs)
    flusher.flush(TP)
    await asyncio.sleep(0.01)
    before = list(events)
    token.let_go.set()
    await asyncio.wait_for(flusher.until_idle(), 5)
    flusher.close()

    assert before == []
    assert events == [LogFlushed(1_000, TP, Offset(7))]


async def test_a_log_with_nothing_to_sync_is_durable_at_once() -> None:
    """No thread is used when there is no work."""
    flusher, events, _ = _flusher(_logs(Token(7, has_work=False)))

    assert flusher.flush(TP) == LogFlushed(1_000, TP, Offset(7))
    assert (events, flusher.commits, flusher.syncs) == ([], 1, 0)
    flusher.close()


async def test_a_commit_of_a_log_that_is_gone_says_nothing_of_the_one_after_it() -> None:
    """A partition that left this node and came back has a new log, whose commits do not wait for the old one's."""
    durable, tokens, log = DurablePoint(Offset(0)), [], Mock(leo=9)
    log.issue_flush = lambda tp: tokens.append(Token(log.leo)) or tokens[-1]
    flusher, events, _ = _flusher(log)
    flusher.flush(TP)
    log.leo = 7
    assert durable.maybe_issue(Offset(7))
    flusher.flush(TP)
    log.leo = 8
    for token in tokens:
        token.let_go.set()
    await asyncio.wait_for(flusher.until_idle(), 5)
    flusher.close()

    assert [durable.complete(event.issued_leo) for event in events] == [True]
    assert durable.maybe_issue(Offset(8))


async def test_a_failed_sync_raises_no_event() -> None:
    """The failure is reported to the function that ends the process; nothing was made durable."""
    token = Token(7, error=OSError("EIO"))
    token.let_go.set()
    logs = _logs(token)
    flusher, events, errors = _flusher(logs)
    flusher.flush(TP)
    await asyncio.wait_for(flusher.until_idle(), 5)
    flusher.close()

    assert [str(error) for error in errors] == ["EIO"]
    assert events == []


async def test_a_sync_that_waits_when_the_flusher_is_closed_is_not_begun() -> None:
    """The thread ends after the sync that it is at; the log of the other one is closed by then."""
    before = set(threading.enumerate())
    first, second = Token(7), Token(9)
    flusher, events, errors = _flusher(_logs(first, second))
    flusher.flush(TP)
    flusher.flush(TP1)
    (thread,) = set(threading.enumerate()) - before
    await asyncio.to_thread(first.begun.wait, 5)
    flusher.close()
    for token in (second, first):
        token.let_go.set()
    await asyncio.to_thread(thread.join, 5)
    await asyncio.sleep(0)

    assert not thread.is_alive()
    assert ([event.tp for event in events], errors) == ([TP], [])


@pytest.mark.parametrize(
    ("looks", "longest_ms", "ages"),
    [([4_000], 2_000, [3_000]), ([1_200, 16_200, 16_500, 17_000], 500, [200, 700, 1_000, 1_500])],
    ids=["looked at in time", "after SIGSTOP for 15 s"],
)
async def test_the_age_of_the_longest_sync_is_known(looks: list[int], longest_ms: int, ages: list[int]) -> None:
    """A hanging fsync is detected by its age; the time of a pause between two looks is not counted (M59)."""
    token = Token(7)
    flusher, _, _ = _flusher(_logs(token), [1_000])
    flusher.flush(TP)
    found = [flusher.oldest_ms(at, longest_ms) for at in looks]
    token.let_go.set()
    await asyncio.wait_for(flusher.until_idle(), 5)
    flusher.close()

    assert found == ages
    assert flusher.oldest_ms(looks[-1] + 1_000, longest_ms) == 0


SAVES = {want.SaveEpochs, want.SaveHighWatermarks, want.SaveReconciledEpochs, want.SaveMetadata}
VISIBLE = sorted(set(get_args(want.Effect)) - WITHOUT_SYNC, key=lambda kind: kind.__name__)


class NotedLogs:
    """Notes what is done, in order."""

    def __init__(self) -> None:
        self.saves_wait = False
        self.done: list[str] = []

    def save(self, effect: Any) -> None:
        """Anything that is saved."""
        self.saves_wait = True
        self.done.append("save")

    def see(self, effect: Any) -> None:
        """Anything that others see."""
        self.done.append("seen")

    def sync_saves(self) -> None:
        """The one sync."""
        if self.saves_wait:
            self.done.append("sync")
        self.saves_wait = False

    def table(self) -> dict[type[object], Any]:
        """Performers of every effect."""
        kinds = get_args(want.Effect)
        return behind_saves({kind: self.save if kind in SAVES else self.see for kind in kinds}, self)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", VISIBLE)
def test_the_first_visible_effect_is_behind_one_sync(kind: type[object]) -> None:
    """However many saves wait; the next visible effect needs no other sync."""
    logs = NotedLogs()
    table = logs.table()
    for each in (want.SaveEpochs, want.Emit, want.OpenLog, want.SaveMetadata, kind, kind):
        table[each](None)

    assert logs.done == ["save", "seen", "seen", "save", "sync", "seen", "seen"]


def test_all_that_is_sent_or_answered_is_visible() -> None:
    """A new effect needs a decision; these are what peers, clients and the log's readers meet."""
    names = {kind.__name__ for kind in VISIBLE}

    assert {name for name in map(_name, get_args(want.Effect)) if name.startswith(("Send", "Answer"))} <= names
    assert {"Append", "AppendReplicated", "Flush", "Halt"} <= names
    assert names.isdisjoint(map(_name, SAVES))


def _name(kind: type[object]) -> str:
    return kind.__name__


def test_a_step_ends_with_the_sync_of_what_it_saved() -> None:
    """File effects count from the moment they are asked for (ADR 1), so no save waits for the next step."""
    logs = NotedLogs()
    core = ScriptedCore({Ticked: lambda _: [want.SaveMetadata(None)]})  # type: ignore[arg-type]  # nobody looks at it
    driver = driver_with(core, {})
    driver.attach(logs.table(), logs.sync_saves)
    driver.step(Ticked(1))

    assert logs.done == ["save", "sync"]
