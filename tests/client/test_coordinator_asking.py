"""How long the coordinator of a key is asked again, and what its caller hears in the end."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.client.groups import coordinator
from strandline.client.groups.coordinator import Coordinator, CoordinatorKind
from strandline.core.errors import ErrorCode, Outcome, Refused

LEFT_MS = 500


class EqualPauses:
    """A back-off whose pauses have one length."""

    def __init__(self, pause_ms: int) -> None:
        self.pause_ms = pause_ms

    def next_s(self) -> float:
        return self.pause_ms / 1000


def _asked(monkeypatch: pytest.MonkeyPatch, pause_ms: int, *refusals: Refused) -> tuple[Any, list[float]]:
    """A coordinator that gives these refusals and then an answer, with so much time left; and its pauses."""
    unused: Any = None
    made: Any = Coordinator(unused, CoordinatorKind("group", "t", unused, unused), "g")
    said, paused = list(refusals), list[float]()

    async def ask_once(*_: Any, **__: Any) -> str:
        if said:
            raise said.pop(0)
        return "answer"

    async def sleep(pause_s: float) -> None:
        paused.append(pause_s)

    made.ask_once = ask_once
    monkeypatch.setattr(coordinator, "countdown", lambda _: lambda: LEFT_MS)
    monkeypatch.setattr(coordinator, "Backoff", lambda: EqualPauses(pause_ms))
    monkeypatch.setattr(coordinator, "sleep", sleep)
    return made, paused


@pytest.mark.parametrize("pause_ms", [LEFT_MS, LEFT_MS + 1])
async def test_a_pause_that_would_take_all_that_is_left_is_not_begun(
    monkeypatch: pytest.MonkeyPatch, pause_ms: int
) -> None:
    """The caller hears at once why there is no answer, for no attempt could follow the pause in time."""
    moving = Refused(ErrorCode.NOT_COORDINATOR, "it moved", Outcome.NOT_APPENDED)
    made, paused = _asked(monkeypatch, pause_ms, moving)
    with pytest.raises(Refused, match="it moved"):
        await made.ask(None, None, None, deadline_ms=LEFT_MS)

    assert paused == []


async def test_what_passes_by_is_asked_again_while_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that moves or loads is no error to the caller, and the answer says that an attempt may have
    counted."""
    lost = Refused(ErrorCode.REQUEST_TIMED_OUT, "no answer", Outcome.MAY_APPEAR)
    loading = Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading", Outcome.NOT_APPENDED)
    made, paused = _asked(monkeypatch, LEFT_MS - 1, lost, loading)
    answered = await made.ask(None, None, None, deadline_ms=LEFT_MS)

    assert answered == ("answer", True)
    assert len(paused) == 2


async def test_one_attempt_that_may_have_counted_makes_the_end_uncertain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later definite refusal says nothing of an earlier attempt whose answer was lost."""
    lost = Refused(ErrorCode.REQUEST_TIMED_OUT, "no answer", Outcome.MAY_APPEAR)
    refused = Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no", Outcome.NOT_APPENDED)
    made, _ = _asked(monkeypatch, 1, lost, refused)
    with pytest.raises(Refused) as ended:
        await made.ask(None, None, None, deadline_ms=LEFT_MS)

    assert ended.value.refusal.outcome is Outcome.MAY_APPEAR
