"""Every rejection is counted; the log gets the first of a kind, and then from time to time the number."""

from __future__ import annotations

from typing import Any

from strandline.core.errors import ErrorCode, Refusal
from strandline.runtime.refusals import TELL_EVERY_MS, Refusals

REFUSAL = Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, "one of two in sync")


class _Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def test_a_flood_is_one_line_and_then_a_count() -> None:
    """A thousand rejections within the window make one line at once and one with the rest when it is over."""
    lines: list[dict[str, Any]] = []
    clock = _Clock()
    refusals = Refusals(clock, lambda sentence, **fields: lines.append({"event": sentence, **fields}))

    for _ in range(1_000):
        refusals.note("Produce", REFUSAL, topic="tides", partition=1)
    refusals.tell_rest()
    reported_at_once = list(lines)
    clock.now_ms += TELL_EVERY_MS
    refusals.tell_rest()
    refusals.tell_rest()

    assert reported_at_once == [
        {
            "event": "refused",
            "call": "Produce",
            "error": "NOT_ENOUGH_REPLICAS",
            "reason": "one of two in sync",
            "times": 1,
            "topic": "tides",
            "partition": 1,
        }
    ]
    assert [line["times"] for line in lines] == [1, 999]
    assert refusals.by_error == {"NOT_ENOUGH_REPLICAS": 1_000}


def test_kinds_do_not_hide_each_other() -> None:
    """The same error of another call, and another error of the same call, are logged too."""
    lines: list[str] = []
    refusals = Refusals(_Clock(), lambda _, **fields: lines.append(f"{fields['call']} {fields['error']}"))

    refusals.note("Produce", REFUSAL)
    refusals.note("Fetch", REFUSAL)
    refusals.note("Produce", Refusal(ErrorCode.INVALID_REQUEST, "no topic"))

    assert lines == ["Produce NOT_ENOUGH_REPLICAS", "Fetch NOT_ENOUGH_REPLICAS", "Produce INVALID_REQUEST"]
