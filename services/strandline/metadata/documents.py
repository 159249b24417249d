"""The controller's state in a store: one JSON document per node, topic, partition and header.

Invariant: reading a written document gives an equal value. A field that this release does not know is ignored; a
document that lacks a field is refused as damaged, and nothing is guessed, unless the field was added later. Every
document begins with its checksum: SQLite has none, and one flipped bit in an epoch would send the cluster back in time
(A6).
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

import crc32c
import msgspec

from strandline.core.control.state import (
    ClusterHeader,
    ClusterState,
    NodeRecord,
    ReignRecord,
    RemovedNode,
    TopicRecord,
    Transaction,
    record_of,
)
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


# ---- transactions
# Transactions as bytes, and the whole state as one transaction, for a store that keeps transactions.
#
# Invariant: every field of `Transaction` is written, even a future one, and reading gives an equal value; a line of an
# unknown kind is refused, because ignoring it would lose a part of the state.

_LEVEL = 1
"""The level of zlib; names and addresses repeat, so higher levels gain little."""


class _Field(NamedTuple):
    kind: type[Any]
    is_one: bool


def pack(transaction: Transaction) -> bytes:
    """A transaction as bytes: compressed lines, one for each document, with the name of its field in front."""
    return zlib.compress("\n".join(_lines(transaction)).encode(), _LEVEL)


def unpack(packed: bytes) -> Transaction:
    """The transaction that `pack` was given.

    Raises:
        DamagedDocument: the bytes are not what `pack` wrote, or of a later release.
    """
    try:
        lines = zlib.decompress(packed).decode().split("\n")
    except (zlib.error, ValueError) as error:
        raise DamagedDocument(f"cannot read a transaction: {error}") from error
    known = _kinds()
    found: dict[str, list[Any]] = {name: [] for name in known}
    for line in lines:
        name, _, text = line.partition(" ")
        if name not in known:
            raise DamagedDocument(f"a transaction holds '{name[:40]}', which this release does not know")
        found[name].append(read(text, known[name].kind))
    if len(found["header"]) != 1:
        raise DamagedDocument("a transaction has no header, or more than one")
    given: dict[str, Any] = {
        name: found[name][0] if field.is_one else tuple(found[name]) for name, field in known.items()
    }
    return Transaction(**given)


def whole(state: ClusterState) -> Transaction:
    """The whole of ``state`` as one transaction; `state_of` is the inverse."""
    return Transaction(
        header=state.header,
        removed_nodes=tuple(state.removed_nodes.values()),
        nodes=tuple(state.nodes.values()),
        topics=tuple(record_of(topic) for topic in state.topics.values()),
        partitions=tuple(state.partitions()),
        deleted_topic_ids=tuple(sorted(state.deleted_topic_ids)),
        reigns=tuple(state.reigns.values()),
        acls=state.acls,
        quotas=state.quotas,
    )


def state_of(everything: Transaction) -> ClusterState:
    """The state that holds exactly the content of one transaction."""
    return ClusterState(header=everything.header).apply(everything)


def _lines(transaction: Transaction) -> Iterator[str]:
    for name, field in _kinds().items():
        value = getattr(transaction, name)
        for one in (value,) if field.is_one else value:
            yield f"{name} {write(one)}"


@cache
def _kinds() -> dict[str, _Field]:
    hints = get_type_hints(Transaction)
    found = {}
    for field in dataclasses.fields(Transaction):
        hint = hints[field.name]
        is_one = dataclasses.is_dataclass(hint)
        found[field.name] = _Field(hint if is_one else get_args(hint)[0], is_one)
    return found
