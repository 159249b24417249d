"""Assigns producer ids and epochs to idempotent producers: the controller (M61), and nodes from its blocks (C65).

Invariant: no producer id is ever assigned twice, even across restarts of the controller: a block of ids is
reserved durably before its first id is assigned, and the rest of a block is not used after a restart. A node's block is
reserved for its node epoch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from strandline.core.control.alter_partition import check_node_epoch
from strandline.core.control.draft import Draft
from strandline.core.control.messages import AllocateProducerIds, InitProducerId, ProducerIdGiven, ProducerIdsAllocated
from strandline.core.control.state import PRODUCER_ID_BLOCK
from strandline.core.errors import ErrorCode, Refusal

MAX_PRODUCER_EPOCH = 2**15 - 2
"""Kafka's epochs are int16; the last one is kept back, as Kafka does."""


class ProducerIds:
    """The block of this reign."""

    def __init__(self) -> None:
        self._next = 0
        self._end = 0

    def give(self, draft: Draft, request: InitProducerId) -> ProducerIdGiven:
        """A new id at epoch 0, or the known id at its next epoch."""
        if request.producer_id is None:
            return ProducerIdGiven(producer_id=self._take(draft), producer_epoch=0)
        if request.producer_epoch is None or request.producer_epoch < 0:
            refusal = Refusal(ErrorCode.INVALID_REQUEST, "producer_id without its producer_epoch; give both or neither")
            return ProducerIdGiven(refusal=refusal)
        if not 0 <= request.producer_id < draft.header.next_producer_id:
            unknown = f"producer id {request.producer_id} was never given here; ask for a new one"
            return ProducerIdGiven(refusal=Refusal(ErrorCode.UNKNOWN_PRODUCER_ID, unknown))
        if request.producer_epoch >= MAX_PRODUCER_EPOCH:
            return ProducerIdGiven(producer_id=self._take(draft), producer_epoch=0)
        return ProducerIdGiven(producer_id=request.producer_id, producer_epoch=request.producer_epoch + 1)

    def allocate(self, draft: Draft, request: AllocateProducerIds) -> ProducerIdsAllocated:
        """A block for one node, reserved by the same transaction (C65)."""
        refusal = check_node_epoch(draft, request.node_id, request.node_epoch)
        if refusal is not None:
            return ProducerIdsAllocated(refusal=refusal)
        return ProducerIdsAllocated(start=_reserve(draft), length=PRODUCER_ID_BLOCK)

    def _take(self, draft: Draft) -> int:
        # By the block, because a transaction for every id would make each new producer wait for the store.
        if self._next == self._end:
            self._next = _reserve(draft)
            self._end = self._next + PRODUCER_ID_BLOCK
        self._next += 1
        return self._next - 1


def _reserve(draft: Draft) -> int:
    start = draft.header.next_producer_id
    draft.header = replace(draft.header, next_producer_id=start + PRODUCER_ID_BLOCK)
    return start


# ---- blocks
# Decides which producer id a node assigns next, and when it needs another block of ids (KIP-730).
#
# Invariant: an id is assigned once, and only from a block that was reserved for this node epoch; unused ids end with
# the process.


class ProducerIdSupply(Protocol):
    """The producer ids of one process, for callers that look at the next id before they know whether they need it."""

    def next_id(self) -> int | None:
        """The next id, which stays the next one until it is taken; None while none is left."""
        ...

    def take(self, producer_id: int) -> None:
        """The next id, which `next_id` returned, is in use from here on."""
        ...


class ProducerIdBlocks:
    """The block in use and the next one, of one registered process."""

    def __init__(self) -> None:
        self._current = range(0)
        self._next: range | None = None
        self._half = 0

    @property
    def wants_more(self) -> bool:
        """Whether to request another block: once half of the current one is used."""
        return self._next is None and len(self._current) <= self._half

    def add(self, start: int, length: int) -> None:
        """A block was reserved for this process."""
        self._next = range(start, start + length)
        if not self._current:
            self._turn()

    def give(self, request: InitProducerId) -> ProducerIdGiven | None:
        """A new id at epoch 0, or the known id at its next epoch; None while no id is left."""
        producer_id, epoch = request.producer_id, request.producer_epoch
        if producer_id is not None:
            if epoch is None or epoch < 0 or producer_id < 0:
                message = "producer_id without its producer_epoch, or below 0; give both or neither"
                return ProducerIdGiven(refusal=Refusal(ErrorCode.INVALID_REQUEST, message))
            if epoch < MAX_PRODUCER_EPOCH:
                return ProducerIdGiven(producer_id=producer_id, producer_epoch=epoch + 1)
        given = self.next_id()
        if given is None:
            return None
        self.take(given)
        return ProducerIdGiven(producer_id=given, producer_epoch=0)

    def next_id(self) -> int | None:
        """The next id (`ProducerIdSupply`)."""
        return self._current[0] if self._current else None

    def take(self, producer_id: int) -> None:
        """The next id is in use (`ProducerIdSupply`)."""
        assert producer_id == self._current[0], f"producer id {producer_id} is not the next one"
        self._current = self._current[1:]
        if not self._current:
            self._turn()

    def _turn(self) -> None:
        if self._next is not None:
            self._current, self._next = self._next, None
            self._half = len(self._current) // 2
