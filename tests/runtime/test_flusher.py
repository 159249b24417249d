"""Group commit: the event comes after the sync, one commit per log, and a failed sync ends everything."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from strandline.core.log.events import LogFlushed
from strandline.core.types import Offset, TopicPartition
from strandline.runtime.log_performers import Flusher

TP = TopicPartition("id", 0)


class Token:
    """A commit whose sync waits until it is released."""

    def __init__(self, leo: int, *, has_work: bool = True, error: Exception | None = None) -> None:
        self.leo_at_issue = Offset(leo)
        self.has_work = has_work
        self.let_go = threading.Event()
        self._error = error

    def sync(self) -> None:
        self.let_go.wait(10)
        if self._error is not None:
            raise self._error


class Logs:
    """Returns the tokens it was given."""

    def __init__(self, *tokens: Token) -> None:
        self._tokens = list(tokens)

    def issue_flush(self, tp: TopicPartition) -> Token:
        return self._tokens.pop(0)


def _flusher(logs: Any, now: list[int] | None = None) -> tuple[Flusher, list[LogFlushed], list[BaseException]]:
    events: list[LogFlushed] = []
    errors: list[BaseException] = []
    flusher = Flusher(logs, events.append, errors.append, lambda: (now or [1_000])[0])
    return flusher, events, errors


async def test_the_event_comes_after_the_sync_and_names_the_leo_at_issue() -> None:
    """A commit covers what was appended when it was issued (M55)."""
    token = Token(7)
    logs = Logs(token)
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
    flusher, events, _ = _flusher(Logs(Token(7, has_work=False)))

    assert flusher.flush(TP) == LogFlushed(1_000, TP, Offset(7))
    assert (events, flusher.commits, flusher.syncs) == ([], 1, 0)
    flusher.close()


async def test_a_second_commit_of_a_log_waits_for_the_first() -> None:
    """Never two syncs of one log at once; the second covers what was appended since."""
    first, second = Token(7), Token(9)
    first.let_go.set()
    second.let_go.set()
    flusher, events, _ = _flusher(Logs(first, second))
    flusher.flush(TP)
    flusher.flush(TP)
    await asyncio.wait_for(flusher.until_idle(), 5)
    flusher.close()

    assert [event.issued_leo for event in events] == [7, 9]


async def test_a_failed_sync_raises_no_event() -> None:
    """The failure is reported to the function that ends the process; nothing was made durable."""
    token = Token(7, error=OSError("EIO"))
    token.let_go.set()
    logs = Logs(token)
    flusher, events, errors = _flusher(logs)
    flusher.flush(TP)
    await asyncio.wait_for(flusher.until_idle(), 5)
    flusher.close()

    assert [str(error) for error in errors] == ["EIO"]
    assert events == []


async def test_the_age_of_the_longest_sync_is_known() -> None:
    """A hanging fsync is detected by its age (M59)."""
    now = [1_000]
    token = Token(7)
    flusher, _, _ = _flusher(Logs(token), now)
    flusher.flush(TP)
    now[0] = 4_000
    age = flusher.oldest_ms(4_000, 2_000)
    token.let_go.set()
    await asyncio.wait_for(flusher.until_idle(), 5)
    flusher.close()

    assert age == 3_000
    assert flusher.oldest_ms(5_000, 2_000) == 0


async def test_a_pause_of_the_process_is_no_age_of_a_sync() -> None:
    """After SIGSTOP for 15 s the node does not take its disk for dead: time between checks is not counted (M59)."""
    now = [1_000]
    token = Token(7)
    flusher, _, _ = _flusher(Logs(token), now)
    flusher.flush(TP)
    ages = [flusher.oldest_ms(at, 500) for at in (1_200, 16_200, 16_500, 17_000)]
    token.let_go.set()
    await asyncio.wait_for(flusher.until_idle(), 5)
    flusher.close()

    assert ages == [200, 700, 1_000, 1_500]
