"""`strandline analytics stream` ends between two micro-batches on request."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, cast

import pytest

from strandline_analytics.commands import stream
from strandline_analytics.commands.stream import _await


class Query:
    """A streaming query that does at each poll what the test says."""

    def __init__(self, look: Callable[[Query, int], None]) -> None:
        self._look = look
        self.looks = 0
        self.status = {"isTriggerActive": True}
        self.lastProgress: dict[str, Any] | None = None
        self.ends = False

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 - as Spark names it
        """Poll once."""
        self.looks += 1
        assert self.looks < 20, "it never ended"
        self._look(self, self.looks)
        return self.ends


def interrupt() -> None:
    """What Ctrl-C does."""
    os.kill(os.getpid(), signal.SIGINT)


def awaited(look: Callable[[Query, int], None]) -> Query:
    """A query that was waited for."""
    query = Query(look)
    before = signal.getsignal(signal.SIGINT)
    _await(cast(Any, query))
    assert signal.getsignal(signal.SIGINT) is before
    return query


def test_an_interrupt_waits_for_the_end_of_the_micro_batch(capsys: pytest.CaptureFixture[str]) -> None:
    """Stopped at the second poll; the batch ends at the fifth."""

    def look(query: Query, number: int) -> None:
        if number == 2:
            interrupt()
        query.status["isTriggerActive"] = number < 5

    assert awaited(look).looks == 5
    assert capsys.readouterr().err.count("stopping after this micro-batch") == 1


def test_a_stream_that_never_rests_ends_when_the_next_batch_has_begun() -> None:
    """Batches follow each other without a pause: the number of the last one that ended shows it."""

    def look(query: Query, number: int) -> None:
        if number == 1:
            interrupt()
        query.lastProgress = {"batchId": number // 4}

    assert awaited(look).looks == 4


def test_a_second_interrupt_ends_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second signal ends it without waiting."""
    monkeypatch.setattr(stream, "_SAME_S", 0.0)

    def look(query: Query, number: int) -> None:
        interrupt()

    with pytest.raises(KeyboardInterrupt):
        awaited(look)


def test_an_interrupt_that_is_reported_twice_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """`timeout` signals the process and its group; the micro-batch is still waited for."""
    monkeypatch.setattr(stream, "_SAME_S", 600.0)

    def look(query: Query, number: int) -> None:
        interrupt()
        query.status["isTriggerActive"] = number < 3

    assert awaited(look).looks == 3


def test_without_an_interrupt_it_ends_with_its_input() -> None:
    """Without an interrupt the stream reads the current input and ends."""

    def look(query: Query, number: int) -> None:
        query.ends = number == 3

    assert awaited(look).looks == 3
