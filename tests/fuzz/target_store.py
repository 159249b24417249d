"""Target 3, second half: the controller's store opens with what was committed, or refuses to open.

Invariant: a document is a value of the right type or damaged; a store with any damage in its main file is the last
state or `StoreFailed`; damage in its write-ahead log may lose the latest commits, never change one; opening it twice
gives the same.
"""

from __future__ import annotations

import asyncio
import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from draws import Draws

from strandline.core.control.state import ClusterHeader, ClusterState, NodeRecord, TopicRecord, Transaction, record_of
from strandline.core.messages import Endpoint, NodeImage, PartitionImage
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, TopicPartition
from strandline.metadata import documents
from strandline.metadata.sqlite import FILE_NAME, SqliteStore
from strandline.metadata.store import StoreFailed

TOPICS = tuple(f"{number:08}-0000-4000-8000-000000000000" for number in range(4))
WAL_NAME = f"{FILE_NAME}-wal"
CLOSED_AFTER = 3
"""Commits that lie in the main file when the store is damaged; the others lie in its write-ahead log."""


def check(data: bytes) -> None:
    """The oracle."""
    draws = Draws(data)
    (_check_document if draws.one_in(2) else _check_store)(draws)


_ATOMS: tuple[Any, ...] = (None, True, -1, 0, 2**63, 10**400, "", "1", "fsync", [], {}, [None], {"a": 1}, 1.5, [[]])
_TEXTS = ("Infinity", "NaN", "[" * 100_000, '{"a":' * 100_000, "9" * 5_000, "null", "[]", '"\\ud800"')


def _check_document(draws: Draws) -> None:
    value = draws.choice(_documents())
    text = _changed(draws, msgspec.to_builtins(value))
    try:
        found = documents.read(text if draws.one_in(4) else documents.sealed(text), type(value))
    except documents.DamagedDocument:
        return
    assert type(found) is type(value)
    assert documents.read(documents.write(found), type(value)) == found


def _changed(draws: Draws, document: dict[str, Any]) -> str:
    """A valid document with fields replaced, bytes of its text replaced, or another text altogether."""
    kind = draws.integer(0, 3)
    if kind == 0:
        return draws.rest().decode(errors="replace")
    for _ in range(draws.integer(0, 3)):
        document[draws.choice(sorted(document))] = draws.choice(_ATOMS)
    if document and draws.one_in(4):
        del document[draws.choice(sorted(document))]
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    if kind == 1:
        at = draws.integer(0, len(text))
        text = text[:at] + draws.choice(_TEXTS) + text[at + draws.integer(0, 3) :]
    return text


@cache
def _documents() -> tuple[Any, ...]:
    state = states()[-1]
    topic = next(iter(state.topics.values()))
    record = record_of(topic)
    return (state.header, next(iter(state.nodes.values())), record, topic.partitions[0])


def _check_store(draws: Draws) -> None:
    files = {name: bytearray(content) for name, content in images().items()}
    name = draws.choice((FILE_NAME, WAL_NAME))
    for _ in range(draws.integer(0, 3)):
        _damage(draws, files[name])
    with TemporaryDirectory() as directory:
        for each, content in files.items():
            (Path(directory) / each).write_bytes(content)
        first = asyncio.run(opened(Path(directory)))
        second = asyncio.run(opened(Path(directory)))
    assert first == second, "opening it twice gives another state"
    if not isinstance(first, str):
        allowed = states()[CLOSED_AFTER:] if name == WAL_NAME else states()[-1:]
        assert first in allowed, f"a state that was never committed: {first}"


def _damage(draws: Draws, content: bytearray) -> None:
    if not content:
        return
    kind, at, size = draws.integer(0, 3), draws.integer(0, len(content) - 1), draws.integer(1, 600)
    if kind == 0:
        content[at] ^= 1 << (size % 8)
    elif kind == 1:
        content[at : at + size] = bytes(len(content[at : at + size]))
    elif kind == 2:
        del content[at:]
    else:
        content[at : at + size] = content[max(at - size, 0) : at]


async def opened(directory: Path) -> ClusterState | str | None:
    """The state that a controller finds; a string for a refusal to open, with any message."""
    store = SqliteStore(directory)
    try:
        return await store.open()
    except StoreFailed:
        return "refused"
    finally:
        await store.close()


@cache
def images() -> dict[str, bytes]:
    """The files of a store that is partly in the write-ahead log, as a crash leaves them."""
    return asyncio.run(_images())


async def _images() -> dict[str, bytes]:
    with TemporaryDirectory() as directory:
        for part in (_transactions()[:CLOSED_AFTER], _transactions()[CLOSED_AFTER:]):
            store = SqliteStore(Path(directory))
            await store.open()
            for transaction in part:
                await store.commit([transaction])
            found = {name: (Path(directory) / name).read_bytes() for name in (FILE_NAME, WAL_NAME)}
            await store.close()
    return found


@cache
def states() -> tuple[ClusterState, ...]:
    """The states after each commit, the empty one first."""
    found = [ClusterState(header=_header(0))]
    for transaction in _transactions():
        found.append(found[-1].apply(transaction))
    return tuple(found)


def _header(offset: int) -> ClusterHeader:
    return ClusterHeader(cluster_id="11111111-2222-3333-4444-555555555555", controller_epoch=1, metadata_offset=offset)


@cache
def _transactions() -> tuple[Transaction, ...]:
    nodes = tuple(_node(number) for number in (1, 2, 3))
    first = Transaction(header=_header(1), nodes=nodes)
    made = [
        Transaction(
            header=_header(2 + number),
            topics=(TopicRecord(name=f"topic-{number}", topic_id=topic_id, configs=(("retention.ms", "-1"),)),),
            partitions=tuple(_partition(topic_id, index, 0) for index in range(6)),
        )
        for number, topic_id in enumerate(TOPICS)
    ]
    moved = Transaction(header=_header(9), partitions=tuple(_partition(TOPICS[0], index, 1) for index in range(6)))
    return (first, *made, moved, Transaction(header=_header(10), deleted_topic_ids=(TOPICS[1],)))


def _node(number: int) -> NodeRecord:
    endpoint = Endpoint("127.0.0.1", 9_000 + number)
    image = NodeImage(
        node_id=NodeId(number), node_epoch=NodeEpoch(number), client_endpoint=endpoint, internal_endpoint=endpoint
    )
    return NodeRecord(image=image, incarnation_id=f"incarnation-{number}", directory_id=f"directory-{number}")


def _partition(topic_id: str, index: int, version: int) -> PartitionImage:
    return PartitionImage(
        tp=TopicPartition(topic_id, index),
        replicas=(NodeId(1), NodeId(2), NodeId(3)),
        isr=(NodeId(1), NodeId(2)),
        leader=NodeId(1),
        leader_epoch=LeaderEpoch(version),
        partition_epoch=PartitionEpoch(version),
        min_isr=2,
        last_unclean_leader_epoch=None,
    )
