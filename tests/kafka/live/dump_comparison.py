"""The decoder of metadata logs against what Kafka's own tool prints of the same file, record by record."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from strandline_kafka.metadata.log_files import open_copy, read_records
from strandline_kafka.metadata.record_table import RECORDS

_LINE = re.compile(r"\| offset: (\d+) CreateTime: (-?\d+) .* payload: (\{.*\})$")
_DEFAULTS = (None, (), 0, -1, -2, False)


def printed_records(text: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Offset, time and payload of each data record, as the tool printed them."""
    for line in text.splitlines():
        if found := _LINE.match(line):
            yield int(found[1]), int(found[2]), json.loads(found[3])


def in_our_names(value: Any) -> Any:
    """Camel case becomes ours, arrays tuples, and Kafka's UUIDs hex."""
    if isinstance(value, dict):
        return {re.sub(r"(?=[A-Z])", "_", name).lower(): in_our_names(each) for name, each in value.items()}
    if isinstance(value, list):
        return tuple(map(in_our_names, value))
    if isinstance(value, str) and re.fullmatch(r"[\w-]{22}", value):
        return str(UUID(bytes=base64.urlsafe_b64decode(value + "==")))
    return value


def compared(directory: Path, text: str) -> int:
    """Compare every record of a log; returns how many there were.

    Raises:
        AssertionError: one differs.
    """
    ours = {record.offset: record for batch in open_copy(directory).batches() for record in read_records(batch)}
    count = 0
    for offset, at_ms, payload in printed_records(text):
        record = ours[offset]
        name = payload["type"].removesuffix("_RECORD").replace("_", "").lower()
        assert (str(record.kind).lower(), record.version, record.timestamp_ms) == (name, payload["version"], at_ms)
        if RECORDS[record.number].fields is not None:
            said = {{"id": "broker_id"}.get(key, key): value for key, value in in_our_names(payload["data"]).items()}
            assert {key: record.fields[key] for key in said} == said, offset
            assert all(record.fields[key] in _DEFAULTS for key in record.fields.keys() - said.keys()), offset
        count += 1
    return count
