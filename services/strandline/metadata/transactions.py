"""Transactions as bytes, and the whole state as one transaction, for a store that keeps transactions.

Invariant: every field of `Transaction` is written, even a future one, and reading gives an equal value; a line of an
unknown kind is refused, because ignoring it would lose a part of the state.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, get_args, get_type_hints

from strandline.core.control.state import ClusterState, Transaction, record_of
from strandline.metadata import documents
from strandline.metadata.documents import DamagedDocument

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
    known = _fields()
    read: dict[str, list[Any]] = {name: [] for name in known}
    for line in lines:
        name, _, text = line.partition(" ")
        if name not in known:
            raise DamagedDocument(f"a transaction holds '{name[:40]}', which this release does not know")
        read[name].append(documents.read(text, known[name].kind))
    if len(read["header"]) != 1:
        raise DamagedDocument("a transaction has no header, or more than one")
    given: dict[str, Any] = {
        name: read[name][0] if field.is_one else tuple(read[name]) for name, field in known.items()
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
    for name, field in _fields().items():
        value = getattr(transaction, name)
        for one in (value,) if field.is_one else value:
            yield f"{name} {documents.write(one)}"


@cache
def _fields() -> dict[str, _Field]:
    hints = get_type_hints(Transaction)
    found = {}
    for field in dataclasses.fields(Transaction):
        hint = hints[field.name]
        is_one = dataclasses.is_dataclass(hint)
        found[field.name] = _Field(hint if is_one else get_args(hint)[0], is_one)
    return found
