"""The settings that a topic may have, the form of their values, and their defaults.

Invariant: what is stored was checked: a value that a node reads from a topic's settings is of the right kind
and in range, so nodes never have to refuse it. Names and meanings are Kafka's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import ConfigSource, TopicConfig

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
RECOVERY_TIMEOUT = "unclean.recovery.timeout.ms"

TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""A whitelist, because a topic's name becomes part of a path."""

MAX_DECOMPRESSED_BYTES = "max.decompressed.bytes"
TIMESTAMP_BEFORE_MAX = "message.timestamp.before.max.ms"
TIMESTAMP_AFTER_MAX = "message.timestamp.after.max.ms"

MAX_BATCH_BYTES = 1_048_588
MOST_DECOMPRESSED_BYTES = 64 << 20
"""The most that a batch may decompress to unless its topic sets less; all our clients can read that much."""
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
DEFAULT_BEFORE_MAX_MS = INT64_MAX
DEFAULT_AFTER_MAX_MS = 3_600_000
"""Kafka's defaults since 4.0 (KIP-1030): any time in the past, and up to an hour ahead."""

Check = Callable[[str], str]
"""Returns the rule that a value breaks, or an empty string."""


def _whole(low: int, high: int) -> Check:
    def check(value: str) -> str:
        # int() would also take underscores, blanks and digits of other scripts.
        if not re.fullmatch(r"-?[0-9]{1,20}", value) or not low <= int(value) <= high:
            return f"must be a whole number from {low} to {high}"
        return ""

    return check


def _one_of(*values: str) -> Check:
    return lambda value: "" if value in values else f"must be {' or '.join(values)}"


CHECKS: Mapping[str, Check] = {
    MIN_ISR: _whole(1, INT32_MAX),
    UNCLEAN: _one_of("true", "false"),
    RECOVERY_TIMEOUT: _whole(-1, INT64_MAX),
    "retention.ms": _whole(-1, INT64_MAX),
    "retention.bytes": _whole(-1, INT64_MAX),
    "segment.bytes": _whole(1 << 14, 1 << 30),
    "segment.ms": _whole(1_000, INT64_MAX),
    TIMESTAMP_BEFORE_MAX: _whole(0, INT64_MAX),
    TIMESTAMP_AFTER_MAX: _whole(0, INT64_MAX),
    "max.message.bytes": _whole(1_024, MAX_BATCH_BYTES),
    MAX_DECOMPRESSED_BYTES: _whole(MAX_BATCH_BYTES, MOST_DECOMPRESSED_BYTES),
    "cleanup.policy": _one_of("delete"),
}
"""Every setting a topic may have. -1 means without limit, as in Kafka."""

SEGMENT_BYTES = "segment.bytes"
_WEEK_MS = 7 * 86_400_000
_DEFAULTS: Mapping[str, str] = {
    UNCLEAN: "false",
    "retention.ms": str(_WEEK_MS),
    "retention.bytes": "-1",
    SEGMENT_BYTES: str(1 << 30),
    "segment.ms": str(_WEEK_MS),
    TIMESTAMP_BEFORE_MAX: str(DEFAULT_BEFORE_MAX_MS),
    TIMESTAMP_AFTER_MAX: str(DEFAULT_AFTER_MAX_MS),
    "max.message.bytes": str(MAX_BATCH_BYTES),
    MAX_DECOMPRESSED_BYTES: str(MOST_DECOMPRESSED_BYTES),
    "cleanup.policy": "delete",
}
"""Defaults that depend on nothing else; `storage.log.LogSettings` has the same numbers."""


def check_name(name: str) -> Refusal | None:
    """Refuse an invalid topic name."""
    if TOPIC_NAME.fullmatch(name) and name not in (".", ".."):
        return None
    shown = name if len(name) <= 60 else f"{name[:60]}..."
    return Refusal(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"name '{shown}' ({len(name)} characters) is not a topic name; use 1 to 249 of [a-zA-Z0-9._-], not '.' or '..'",
    )


def check_configs(configs: Iterable[tuple[str, str]]) -> Refusal | None:
    """Refuse the first setting that is unknown or has an impossible value."""
    for name, value in configs:
        check = CHECKS.get(name)
        if check is None:
            known = ", ".join(sorted(CHECKS))
            return Refusal(ErrorCode.INVALID_CONFIG, f"'{name}' is not a setting of a topic; known are {known}")
        broken = check(value)
        if broken:
            return Refusal(ErrorCode.INVALID_CONFIG, f"{name}={value[:60]}: the value {broken}")
    return None


def effective_min_isr(configs: Iterable[tuple[str, str]], replication_factor: int) -> int:
    """min(min.insync.replicas, RF); not given it is 2 from RF 3 on, else 1 (M47)."""
    given = dict(configs).get(MIN_ISR)
    wanted = int(given) if given is not None else 2 if replication_factor >= 3 else 1
    # With more than there are replicas, every write with acks=all would be refused (M46).
    return min(wanted, replication_factor)


def in_force(
    configs: Iterable[tuple[str, str]], replication_factor: int, recovery_timeout_ms: int | None
) -> tuple[TopicConfig, ...]:
    """Every setting of a topic, by name; ``recovery_timeout_ms`` is the controller's, None for ever."""
    defaults = {
        **_DEFAULTS,
        MIN_ISR: str(effective_min_isr((), replication_factor)),
        RECOVERY_TIMEOUT: str(-1 if recovery_timeout_ms is None else recovery_timeout_ms),
    }
    given = dict(configs)
    return tuple(_in_force(name, given.get(name), defaults[name]) for name in sorted(CHECKS))


def _in_force(name: str, given: str | None, default: str) -> TopicConfig:
    if given is not None:
        return TopicConfig(name, given, ConfigSource.TOPIC, default)
    if name == SEGMENT_BYTES:
        return TopicConfig(name, None, ConfigSource.NODE, default)
    return TopicConfig(name, default, ConfigSource.DEFAULT, default)


def check_names(names: Iterable[str]) -> Refusal | None:
    """Refuse names of unknown settings."""
    unknown = [name for name in names if name not in CHECKS]
    return Refusal(ErrorCode.INVALID_CONFIG, f"{unknown} are not settings of a topic") if unknown else None


def allows_unclean(configs: Iterable[tuple[str, str]]) -> bool:
    """Whether the topic prefers availability over its records (M48)."""
    return dict(configs).get(UNCLEAN) == "true"


def recovery_timeout_ms(configs: Iterable[tuple[str, str]], default_ms: int | None) -> int | None:
    """How long a partition waits for reports of its replicas' logs before an unclean election; None: for ever (M65).

    KIP-966 has the setting and five minutes as its default; here losing records is never the default.
    """
    given = dict(configs).get(RECOVERY_TIMEOUT)
    if given is None:
        return default_ms
    return None if int(given) < 0 else int(given)
