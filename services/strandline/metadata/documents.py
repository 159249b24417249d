"""The controller's state in a store: one JSON document per node, topic, partition and header.

Invariant: reading a written document gives an equal value. A field that this release does not know is ignored; a
document that lacks a field is refused as damaged, and nothing is guessed, unless the field was added later. Every
document begins with its checksum: SQLite has none, and one flipped bit in an epoch would send the cluster back in time
(A6).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, get_type_hints

import crc32c
import msgspec

from strandline.core.control.state import ClusterHeader, NodeRecord, ReignRecord, RemovedNode, TopicRecord
from strandline.core.messages import NodeImage, PartitionImage
from strandline.core.permissions import Rule
from strandline.core.quotas import Quota

Stored = ClusterHeader | NodeRecord | RemovedNode | TopicRecord | PartitionImage | ReignRecord | Rule | Quota | str

_T = TypeVar("_T", bound=Stored)

Fields = dict[str, Any]
Present = Callable[[type, Fields], Fields]
"""Converts the fields of a document of an earlier schema into those of the present one, for a kind of document."""

_WRONG = (msgspec.MsgspecError, ValueError, KeyError, AttributeError, OverflowError, RecursionError)
"""What reading raises for a text that Strandline has not written."""

WRONG_JSON = (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError)
"""What parsing plain JSON raises for a text that Strandline has not written: it may be deeply nested or infinite."""

_CAME_LATER: dict[type, Fields] = {
    TopicRecord: {"created_by": "", "grown_by": []},
    NodeImage: {"disk_nearly_full": False, "draining": False},
    PartitionImage: {
        "adding": [],
        "removing": [],
        "original": [],
        "queued_target": [],
        "queue_number": 0,
        "throttle_bytes_per_s": None,
    },
}
"""Fields that documents of the present schema lack if an earlier release wrote them, with the values to use then."""

_ENCODER = msgspec.json.Encoder(order="deterministic")


class DamagedDocument(ValueError):
    """A stored document cannot be read; the message names its kind and the reason."""


def write(value: Stored) -> str:
    """A value as a document's text, the same text for equal values."""
    return sealed(_ENCODER.encode(value).decode())


def sealed(text: str) -> str:
    """The text with its CRC-32C in front, as eight hexadecimal digits and a blank."""
    return f"{crc32c.crc32c(text.encode(errors='surrogatepass')):08x} {text}"


def read(text: str, kind: type[_T], present: Present | None = None) -> _T:
    """The value of a document's text; ``present`` converts the fields of an earlier schema into the present ones.

    Raises:
        DamagedDocument: the checksum does not match, the text is not a JSON object, or a field is missing or of a wrong
            type.
    """
    try:
        if issubclass(kind, str):
            return msgspec.json.decode(_unsealed(text), type=kind)
        fields = msgspec.json.decode(_unsealed(text), type=Fields)
        if present is not None:
            fields = present(kind, fields)
        return msgspec.convert(_with_later_fields(kind, fields), kind)
    except _WRONG as error:
        raise DamagedDocument(f"cannot read {kind.__name__}: {error!r}") from error


def _unsealed(text: str) -> str:
    body = text[9:]
    if text != sealed(body):
        raise ValueError("its checksum does not match")
    return body


def _with_later_fields(kind: type, document: object) -> Fields:
    # The types have defaults for fields that a caller may leave out, but a store never leaves one out.
    if not isinstance(document, dict):
        raise ValueError(f"{kind.__name__} is not an object")
    document = {**_CAME_LATER.get(kind, {}), **document}
    for name, inner in _fields(kind):
        if name not in document:
            raise ValueError(f"{kind.__name__}.{name} is missing")
        if inner is not None:
            document[name] = _with_later_fields(inner, document[name])
    return document


@cache
def _fields(kind: type) -> tuple[tuple[str, type | None], ...]:
    hints = get_type_hints(kind)
    named = [field.name for field in dataclasses.fields(kind)]
    return tuple((name, hints[name] if dataclasses.is_dataclass(hints[name]) else None) for name in named)


# ---- first_schema
# Converts the documents of the store's first schema into those of the present one.
#
# Invariant: a store is converted as a whole in the transaction that opens it, so none has documents of both schemas.

_OF_THE_IMAGE = (
    "node_id", "node_epoch", "roles", "client_endpoint", "internal_endpoint", "rack", "fenced", "shutting_down",
)  # fmt: skip


def turned(kind: type, old: Fields) -> Fields:
    """A document of the first schema in the form of the present one.

    Raises:
        KeyError, AttributeError: a field is missing or of a wrong type.
    """
    return _TURN[kind](old) if kind in _TURN else old


def _header(old: Fields) -> Fields:
    # The earliest stores have no secret; the next start generates one.
    return {"secret": "", **old}


def _node(old: Fields) -> Fields:
    image = {name: old[name] for name in _OF_THE_IMAGE}
    return {"image": image, **{name: value for name, value in old.items() if name not in image}}


def _topic(old: Fields) -> Fields:
    return {**old, "configs": sorted(old["configs"].items())}


def _partition(old: Fields) -> Fields:
    return {"unproven": [], "tp": [old["topic_id"], old["partition"]], **old}


_TURN = {ClusterHeader: _header, NodeRecord: _node, TopicRecord: _topic, PartitionImage: _partition}
