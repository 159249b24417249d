"""Decides whether a batch's times are near enough to now (Kafka: LogValidator; KIP-937).

Invariant: no batch is appended whose newest time lies further ahead than its topic allows: retention by time goes by
that time, so a producer that sends microseconds for milliseconds would keep a segment, and all behind it, for ever.
Judged by the header, whose first and newest times its producer wrote; the times between them are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.topic_configs import (
    DEFAULT_AFTER_MAX_MS,
    DEFAULT_BEFORE_MAX_MS,
    TIMESTAMP_AFTER_MAX,
    TIMESTAMP_BEFORE_MAX,
)
from strandline.core.types import BatchHeader


def timestamp_refusal(header: BatchHeader, configs: Mapping[str, str], wall_ms: int) -> Refusal | None:
    """Why a producer's batch is refused for its times; None if it is not. -1 is no time.

    Args:
        configs: the topic's own settings.
        wall_ms: now, ms since 1970.
    """
    ahead_ms, behind_ms = header.max_timestamp_ms - wall_ms, wall_ms - header.base_timestamp_ms
    after_ms = int(configs.get(TIMESTAMP_AFTER_MAX, DEFAULT_AFTER_MAX_MS))
    if ahead_ms > after_ms:
        newest = f"the newest time, {header.max_timestamp_ms} ms, is {ahead_ms} ms ahead"
        return _refusal(newest, TIMESTAMP_AFTER_MAX, after_ms)
    before_ms = int(configs.get(TIMESTAMP_BEFORE_MAX, DEFAULT_BEFORE_MAX_MS))
    if header.base_timestamp_ms >= 0 and behind_ms > before_ms:
        first = f"the first time, {header.base_timestamp_ms} ms, is {behind_ms} ms old"
        return _refusal(first, TIMESTAMP_BEFORE_MAX, before_ms)
    return None


def _refusal(what: str, setting: str, limit_ms: int) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_TIMESTAMP,
        f"{what}, and the topic's {setting} is {limit_ms}; send milliseconds since 1970, or change the setting",
        Outcome.NOT_APPENDED,
    )
