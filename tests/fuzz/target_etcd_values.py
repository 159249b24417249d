"""Target 11: a value that a controller kept in etcd is read as it was written, or is refused as damaged.

Invariant: a log value is the one that was written, or damaged; what has no checksum of its own (the head, who holds the
key, the format) is a value of the right type or damaged; a transaction or snapshot in parts is whole or not there. No
other exception than `DamagedDocument` leaves a reader: any other ends the process of a controller.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from draws import Draws
from target_store import states

from strandline.core.messages import Endpoint
from strandline.core.reigns.events import Head
from strandline.metadata import etcd_layout
from strandline.metadata.documents import DamagedDocument, pack, state_of, unpack, whole
from strandline.metadata.store import Mark, Marked, mark_value, read_mark

REIGN_ID = "0123456789abcdef" * 2
_PART_BYTES = 200
_TEXTS = (
    "[" * 100_000,
    '{"a":' * 100_000,
    "9" * 5_000,
    "Infinity",
    "NaN",
    "null",
    "-1",
    "1e999",
    '"\\ud800"',
    "\n",
    " ",
)


def check(data: bytes) -> None:
    """The oracle."""
    draws = Draws(data)
    draws.choice((_check_log_value, _check_parts, _check_packed, _check_plain_value))(draws)


def _check_log_value(draws: Draws) -> None:
    piece = draws.choice(_pieces())
    value = _damaged(draws, piece.value)
    offset = piece.offset if not draws.one_in(8) else draws.integer(0, 100)
    try:
        found = etcd_layout.read_log_value(value, offset=offset, revision=1)
    except DamagedDocument:
        return
    # The head of the store names the value's digest, which covers the line in front as well.
    assert offset == piece.offset
    assert found.body == piece.value.partition(b"\n")[2]


def _check_parts(draws: Draws) -> None:
    piece = draws.choice([piece for piece in _pieces() if piece.parts])
    body = etcd_layout.read_log_value(piece.value, offset=piece.offset, revision=1).body
    parts = list(piece.parts)
    at = draws.integer(0, len(parts) - 1)
    kind = draws.integer(0, 3)
    if kind == 0:
        parts[at] = _damaged(draws, parts[at])
    elif kind == 1:
        del parts[at]
    elif kind == 2:
        parts.insert(at, parts[at])
    else:
        parts.reverse()
    assert etcd_layout.joined(parts, body) == (
        b"".join(piece.parts) if b"".join(parts) == b"".join(piece.parts) else None
    )


def _check_packed(draws: Draws) -> None:
    """What a checksum let through all the same, as one that was made of damaged content would."""
    packed = pack(whole(draws.choice(states())))
    try:
        transaction = unpack(_damaged(draws, packed))
    except DamagedDocument:
        return
    assert state_of(transaction) in states(), "a state that was never stored"


def _check_plain_value(draws: Draws) -> None:
    value, read, kind = draws.choice(_plain_values())
    damaged = _damaged(draws, value)
    try:
        found = read(damaged)
    except DamagedDocument:
        return
    assert type(found) is kind
    if isinstance(found, Head) and value.count(b" ") == damaged.count(b" "):
        # One that was cut to the form of an earlier release has no checksum any more.
        assert damaged == value, "a head that was never stored"


def _damaged(draws: Draws, value: bytes) -> bytes:
    content = bytearray(value)
    for _ in range(draws.integer(0, 3)):
        at = draws.integer(0, max(len(content) - 1, 0))
        kind = draws.integer(0, 4)
        if kind == 0 and content:
            content[at] ^= 1 << draws.integer(0, 7)
        elif kind == 1:
            del content[at:]
        elif kind == 2:
            content[at : at + draws.integer(0, 9)] = draws.choice(_TEXTS).encode(errors="surrogatepass")
        elif kind == 3:
            content[at:at] = draws.taken(draws.integer(0, 9))
        else:
            content += content[at:]
    return bytes(content)


@cache
def _pieces() -> tuple[Any, ...]:
    transactions = [whole(state) for state in states()[1:]]
    return tuple(
        piece
        for part_bytes in (_PART_BYTES, 1 << 20)
        for batch in etcd_layout.batches(REIGN_ID, transactions, part_bytes=part_bytes)
        for piece in batch.pieces
    )


@cache
def _plain_values() -> tuple[tuple[bytes, Callable[[bytes], Any], type], ...]:
    head = Head(REIGN_ID, 7, "ab" * 16)
    snapshot, _ = etcd_layout.snapshot_of(head, b"packed")
    presence = etcd_layout.Presence("c1", "c1-1", Endpoint("host", 1), Endpoint("host", 2), 7)
    mark = mark_value(Mark(Marked.PENDING, "m", "etcd:e:1/x"))
    return (
        (etcd_layout.head_value(head), lambda value: etcd_layout.read_head(value, 1), Head),
        (snapshot, etcd_layout.read_snapshot, type(etcd_layout.read_snapshot(snapshot))),
        (etcd_layout.presence_value(presence), etcd_layout.read_presence, etcd_layout.Presence),
        (mark.encode(), read_mark, Mark),
    )
