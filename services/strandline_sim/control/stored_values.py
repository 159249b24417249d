"""The keys and values of the simulated store, and a controller's copy of the state, built only from these (C8).

Invariant: keys, values, what a snapshot replaces and which parts are valid follow production (`metadata.etcd_layout`,
`metadata.documents`); only the transport differs. A copy is read at one revision, or follows one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from strandline.core.control.state import ClusterState
from strandline.core.reigns.events import Head, Holder
from strandline.metadata import etcd_layout
from strandline.metadata.documents import DamagedDocument, state_of, unpack
from strandline_sim.world.draws import Draw

KEYS = etcd_layout.Keys("sim")


class Limits(NamedTuple):
    """The size of one value, and the log that is kept: small, so that short runs reach what large runs do."""

    part_bytes: int
    snapshot_every: int
    tail: int
    """Log values kept before a snapshot."""
    snapshot_part_bytes: int = 400


def draw_limits(draw: Draw) -> Limits:
    """Draw the limits of one run; a transaction has 240 to 550 bytes."""
    return Limits(draw.choose((200, 330, 330, 1_000)), draw.choose((2, 4, 8)), draw.choose((0, 1, 4)))


class StoredValue(NamedTuple):
    """One value, and the revision of the transaction that put it."""

    value: bytes
    revision: int


class StoredValues:
    """Keys and their values."""

    def __init__(self, values: Iterable[tuple[bytes, StoredValue]] = ()) -> None:
        self._values = dict(values)

    def copy(self) -> StoredValues:
        """A copy of what is stored now, which later puts do not change."""
        return StoredValues(self._values.items())

    def get(self, key: bytes) -> bytes | None:
        """One value."""
        found = self._values.get(key)
        return None if found is None else found.value

    def put(self, key: bytes, value: bytes, revision: int) -> None:
        """Put one value."""
        self._values[key] = StoredValue(value, revision)

    def delete(self, ranges: Iterable[etcd_layout.Range]) -> int:
        """Delete ranges of keys; returns the number of deleted keys."""
        gone = {key: None for begin, end in ranges for key, _ in self.range(begin, end)}
        for key in gone:
            del self._values[key]
        return len(gone)

    def range(self, begin: bytes, end: bytes) -> tuple[tuple[bytes, StoredValue], ...]:
        """The keys from ``begin`` to before ``end`` with their values, in order."""
        return tuple((key, self._values[key]) for key in sorted(self._values) if begin <= key < end)

    def below(self, prefix: bytes) -> tuple[bytes, ...]:
        """The values of every key that begins with ``prefix``, in the order of their keys."""
        return tuple(self._values[key].value for key in sorted(self._values) if key.startswith(prefix))

    def parts(self, taken: etcd_layout.LogValue) -> tuple[bytes, ...]:
        """The stored parts of a transaction."""
        return self.below(KEYS.parts_of(taken.head.reign_id, taken.head.offset))


class StoreCopy:
    """One process's copy of the store: a state, and the last transaction in it."""

    def __init__(self) -> None:
        self.state: ClusterState | None = None
        self.head: Head | None = None

    @property
    def offset(self) -> int:
        """The offset of the last transaction; 0 if there is none."""
        return 0 if self.head is None else self.head.offset

    def begin(self, stored: StoredValues) -> bool:
        """Catch up with ``stored``, all at one revision; returns whether a snapshot had to replace deleted log values.

        Raises:
            DamagedDocument: it cannot be read, or has a gap.
        """
        needs_snapshot = False
        current = stored.get(KEYS.current_snapshot)
        if current is not None:
            snapshot = etcd_layout.read_snapshot(current)
            if self.head is None or snapshot.head.offset > self.offset:
                needs_snapshot = stored.get(KEYS.log(self.offset + 1)) is None
                packed = etcd_layout.joined(stored.below(KEYS.snapshot_parts(snapshot.head.offset)), snapshot.checksum)
                if packed is None:
                    raise DamagedDocument(f"the snapshot of offset {snapshot.head.offset} is not whole")
                self.state, self.head = state_of(unpack(packed)), snapshot.head
        for key, each in stored.range(KEYS.logs, KEYS.parts):
            taken = self.taken(key, each) if self.place(key) is etcd_layout.LogPlace.NEXT else None
            if (taken is None and self.place(key) is etcd_layout.LogPlace.BEYOND) or (
                taken is not None and not self.apply(taken, stored.parts(taken))
            ):
                raise DamagedDocument(f"the log has a gap behind {self.head}")
        return needs_snapshot

    def place(self, key: bytes) -> etcd_layout.LogPlace:
        """The position of a log value relative to this copy."""
        return etcd_layout.place_of(KEYS.offset_of(key), self.head)

    @staticmethod
    def taken(key: bytes, each: StoredValue) -> etcd_layout.LogValue:
        """Decode a log value. Raises `DamagedDocument`."""
        return etcd_layout.read_log_value(each.value, offset=KEYS.offset_of(key), revision=each.revision)

    def apply(self, taken: etcd_layout.LogValue, parts: Sequence[bytes]) -> bool:
        """Apply the next transaction; False if its parts are incomplete. Raises `DamagedDocument`."""
        packed = taken.packed(parts)
        if packed is None:
            return False
        transaction = unpack(packed)
        self.state = state_of(transaction) if self.state is None else self.state.apply(transaction)
        self.head = taken.head
        return True

    def settled(self, batch: etcd_layout.TransactionBatch, head: Head) -> None:
        """Take a stored batch that this process appended."""
        for transaction in batch.transactions:
            if transaction.header.metadata_offset > self.offset:
                self.state = state_of(transaction) if self.state is None else self.state.apply(transaction)
        self.head = head


# ---- fenced log
# What the metadata store compares before it writes: the rules of etcd's transactions, for every simulated store (C7).
#
# Invariant: a key's create revision is the revision of the transaction that put it while it was absent; a put over a
# key keeps it (C3). A write is made if and only if all its comparisons hold at that moment.


def may_write(key: Holder | None, token: int) -> bool:
    """Whether a part or a snapshot of a reign is put, or its log deleted: ``create_revision(active) == token``."""
    return key is not None and key.token == token


def may_append(key: Holder | None, head: Head | None, token: int, after: int) -> bool:
    """Whether a batch is put: ``create_revision(active) == token`` and ``mod_revision(head) == after``."""
    return may_write(key, token) and (0 if head is None else head.revision) == after


def key_after_taking(key: Holder | None, token: int, taker: Holder) -> Holder | None:
    """The election key after a taking by ``taker``: deleted if ``create_revision(active) == token``, else as it was.

    ``taker`` does not get the key: a put over it would keep the create revision, and both would hold one token.
    """
    return None if may_write(key, token) else key


def put_key(key: Holder | None, wanted: Holder, revision: int) -> Holder | None:
    """The election key after a campaign, ``create_revision(active) == 0``; None if it exists, and nothing is put."""
    return None if key is not None else wanted._replace(token=revision)
