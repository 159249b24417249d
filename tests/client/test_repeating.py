"""What is asked of controllers again while one takes over from another (C32)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from strandline.client.errors import ClusterUnreachable, ControllersAway
from strandline.client.metadata import Cluster
from strandline.client.repeating import ask_again
from strandline.core.errors import ControllerHint, ErrorCode, Refusal, Refused

LOST = ClusterUnreachable("no answer")
AWAY = ControllersAway(["a:1"], "no connection")
STANDBY = Refused.of(Refusal(ErrorCode.NOT_CONTROLLER, "another decides", hint=ControllerHint("STANDBY")))


class Scripted:
    """Answers of controllers, one for each time they are asked; the last one for ever."""

    timeout_ms = 10_000

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[Any] = []

    async def ask_controller(self, method: Any, request: Any, *, deadline_ms: int) -> Any:
        """One round."""
        assert 0 < deadline_ms <= self.timeout_ms
        self.asked.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def _ask(cluster: Scripted, deadline_ms: int | None = None) -> Any:
    return await ask_again(cast("Cluster", cluster), lambda to: to.ListNodes, cast("Any", "r"), deadline_ms=deadline_ms)


async def test_the_same_request_goes_out_until_one_decides() -> None:
    """A lost answer, a standby that knows of nobody and a moment without connections are passed over."""
    cluster = Scripted(LOST, STANDBY, AWAY, "done")

    assert await _ask(cluster) == "done"
    assert cluster.asked == ["r"] * 4


@pytest.mark.parametrize(
    "error", [AWAY, Refused(ErrorCode.INVALID_REQUEST, "no"), Refused(ErrorCode.NOT_CONTROLLER, "store too old")]
)
async def test_what_another_controller_would_not_change_is_raised_at_once(error: Exception) -> None:
    """No controller at all, a refusal, and a controller whose store is too old: asked once."""
    cluster = Scripted(error, "done")

    with pytest.raises(type(error)):
        await _ask(cluster)
    assert len(cluster.asked) == 1


async def test_at_the_deadline_a_lost_answer_is_what_is_reported() -> None:
    """After a lost answer the work may have been done, whatever the later attempts met."""
    with pytest.raises(ClusterUnreachable) as raised:
        await _ask(Scripted(LOST, AWAY), deadline_ms=200)
    assert raised.value is LOST

    with pytest.raises(Refused) as refused:
        await _ask(Scripted(STANDBY), deadline_ms=200)
    assert refused.value is STANDBY
