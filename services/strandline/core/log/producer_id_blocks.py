"""Decides which producer id a node assigns next, and when it needs another block of ids (C65, KIP-730).

Invariant: an id is assigned once, and only from a block that was reserved for this node epoch; unused ids end with the
process.
"""

from __future__ import annotations

from typing import Protocol

from strandline.core.control.messages import InitProducerId, ProducerIdGiven
from strandline.core.control.producer_ids import MAX_PRODUCER_EPOCH
from strandline.core.errors import ErrorCode, Refusal


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
