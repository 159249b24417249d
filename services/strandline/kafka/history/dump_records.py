"""What stands in one line of `kafka-dump-log --cluster-metadata-decoder` behind a record's offset and sizes.

Invariant: what is read is what the record's bytes would have become.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from strandline.kafka.history.record_table import CONTROL_RECORDS, RECORDS, RecordKind
from strandline.kafka.history.records import is_known
from strandline.kafka.history.wire import Message, Unreadable, layout_of, uuid_text

_BASE64 = frozenset(
    {"topic_id", "incarnation_id", "directories", "log_dirs", "cordoned_log_dirs", "voter_directory_id"}
)
_BY_NAME = {kind.name.lower(): number for number, kind in RECORDS.items()}
_CONTROL_BY_NAME = {kind.name.lower(): number for number, kind in CONTROL_RECORDS.items()}
_RENAMED = {"id": "broker_id", "epoch": "broker_epoch"}
"""Two kinds of records name these fields otherwise than the others."""

Content = tuple[str | None, Message, int, int]
"""Kind, fields, number, version."""


def content_of(text: str) -> Content | None:
    """What a record holds; None for what the tool prints of no metadata log.

    Raises:
        Unreadable: the record is of a version that is not read, or the tool could not read it.
        ValueError, TypeError, KeyError, AttributeError, RecursionError: it is no JSON of a record.
    """
    for expression, read in _CONTENTS:
        if found := expression.fullmatch(text):
            return read(found)
    return None


def _data(found: re.Match[str]) -> Content:
    said = json.loads(found["json"])
    name, version = str(said["type"]).removesuffix("_RECORD").replace("_", "").lower(), int(said["version"])
    number = _BY_NAME.get(name, -1)
    return (*_fields(RECORDS.get(number), said["data"], version), number, version)


def _control(found: re.Match[str]) -> Content:
    said = json.loads(found["json"])
    number, version = _CONTROL_BY_NAME.get(found["name"].lower(), -1), int(said.get("version", 0))
    return (*_fields(CONTROL_RECORDS.get(number), said, version), number, version)


def _nameless(found: re.Match[str]) -> Content:
    number = int(found["number"])
    kind = CONTROL_RECORDS.get(number)
    return None if kind is None else kind.name, {}, number, 0


def _failed(found: re.Match[str]) -> Content:
    raise Unreadable(
        f"Kafka's tool could not read the record ({found['why'].strip()}); print the log with the tool of the release "
        "that wrote it"
    )


_CONTENTS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Content]], ...] = (
    (re.compile(r"payload: (?P<json>\{.*\})", re.DOTALL), _data),
    (re.compile(r"(?P<name>\w+):? (?P<json>\{.*\})"), _control),
    (re.compile(r"controlType: \w+\((?P<number>-?\d{1,5})\)"), _nameless),
    (re.compile(r"payload: Error at (?:offset )?\d+, skipping\.(?P<why>.*)"), _failed),
)
"""What stands behind the offset and the sizes of a record, by the releases: `LeaderChange: {}` since 4.1,
`SnapshotHeader {}` always, `controlType:` for the kinds that a release does not print."""


def _fields(kind: RecordKind | None, data: dict[str, Any], version: int) -> tuple[str | None, Message]:
    if kind is None or not is_known(kind, version):
        return None, {}
    if kind.fields is None:
        return kind.name, {}
    layout = layout_of(kind.fields, version)
    names = {field.name for field in kind.fields}
    message = dict(layout.defaults)
    for key, value in data.items():
        name = _our_name(key)
        name = name if name in names else _RENAMED.get(name, name)
        if name in names:
            message[name] = _ours(name, value)
    missing = [name for name, _ in layout.plain if name not in message]
    if missing:
        raise Unreadable(f"{kind.name} version {version} lacks {', '.join(missing)}")
    return kind.name, message


def _ours(name: str, value: Any) -> Any:
    """A value in our names; Kafka prints a UUID as 22 characters of base64, and here it is hex."""
    if isinstance(value, list):
        return tuple(_ours(name, each) for each in value)
    if isinstance(value, dict):
        return {(own := _our_name(key)): _ours(own, each) for key, each in value.items()}
    return uuid_text(value) if name in _BASE64 and value is not None else value


def _our_name(key: str) -> str:
    return re.sub(r"(?=[A-Z])", "_", key).lower()
