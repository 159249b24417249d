"""Whether a batch's times are near enough to now (KIP-937, KIP-1030)."""

from __future__ import annotations

import pytest

from strandline.core.errors import ErrorCode, Outcome
from strandline.core.serving.produce_checks import timestamp_refusal
from strandline.core.types import BatchHeader, Offset

NOW_MS = 1_795_000_000_000
HOUR_MS = 3_600_000


def header(first_ms: int, newest_ms: int) -> BatchHeader:
    """A batch of these times."""
    return BatchHeader(Offset(0), None, 1, 100, newest_ms, base_timestamp_ms=first_ms)


@pytest.mark.parametrize(
    ("first_ms", "newest_ms", "configs", "said"),
    [
        pytest.param(NOW_MS, NOW_MS + HOUR_MS, {}, None, id="an hour ahead, by default"),
        pytest.param(NOW_MS, NOW_MS + HOUR_MS + 1, {}, "after.max.ms is 3600000", id="one ms more"),
        pytest.param(NOW_MS * 1_000, NOW_MS * 1_000, {}, "after.max.ms is 3600000", id="microseconds"),
        pytest.param(2**63 - 1, 2**63 - 1, {}, "after.max.ms is 3600000", id="the largest"),
        pytest.param(-1, -1, {}, None, id="no time"),
        pytest.param(0, 0, {}, None, id="1970, by default"),
        pytest.param(-1, -1, {"message.timestamp.before.max.ms": "0"}, None, id="no time is not old"),
        pytest.param(
            NOW_MS - 5,
            NOW_MS,
            {"message.timestamp.before.max.ms": "4"},
            "before.max.ms is 4",
            id="too old for the topic",
        ),
        pytest.param(
            NOW_MS - 4, NOW_MS, {"message.timestamp.before.max.ms": "4"}, None, id="as old as the topic allows"
        ),
        pytest.param(NOW_MS, NOW_MS + 5, {"message.timestamp.after.max.ms": "4"}, "after.max.ms is 4", id="less ahead"),
        pytest.param(
            NOW_MS * 1_000, NOW_MS * 1_000, {"message.timestamp.after.max.ms": str(2**63 - 1)}, None, id="any"
        ),
    ],
)
def test_times_outside_what_the_topic_takes_are_refused(
    first_ms: int, newest_ms: int, configs: dict[str, str], said: str | None
) -> None:
    """The newest time may lie so far ahead, the first one so far back; the refusal names time, limit and setting."""
    refusal = timestamp_refusal(header(first_ms, newest_ms), configs, NOW_MS)

    if said is None:
        assert refusal is None
        return
    assert refusal is not None
    assert (refusal.code, refusal.outcome) == (ErrorCode.INVALID_TIMESTAMP, Outcome.NOT_APPENDED)
    assert f"the topic's message.timestamp.{said}; send milliseconds since 1970" in refusal.message
