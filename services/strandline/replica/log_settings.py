"""Decides how a topic's settings shape its logs.

Invariant: a setting this release does not know changes nothing; the controller refuses wrong ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from strandline.storage.log import LogSettings

_FIELDS = {
    "segment.bytes": "segment_bytes",
    "segment.ms": "segment_ms",
    "index.interval.bytes": "index_interval_bytes",
    "retention.bytes": "retention_bytes",
    "retention.ms": "retention_ms",
}
_UNLIMITED = frozenset({"retention_bytes", "retention_ms"})
"""Fields in which Kafka's -1 means no limit."""


def log_settings(configs: Mapping[str, str], defaults: LogSettings) -> LogSettings:
    """``defaults`` with what the topic says."""
    found: dict[str, int | None] = {}
    for name, field in _FIELDS.items():
        if name in configs:
            value = int(configs[name])
            found[field] = None if value < 0 and field in _UNLIMITED else value
    return replace(defaults, **found)  # type: ignore[arg-type]  # the fields' names and types are in _FIELDS
