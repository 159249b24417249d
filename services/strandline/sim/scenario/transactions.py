"""Which transactions the producers of a scenario have begun: epochs, sequences, and what is consented to.

A producer that asked the scenario's coordinator for its identity is that one's, which decides about its transactions.
To any other producer consent is given while it has begun one, and not else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.types import TRANSACTIONAL_BIT, ProducerStamp

NOT_BEGUN = Refusal(ErrorCode.INVALID_TXN_STATE, "the transaction was not begun", Outcome.NOT_APPENDED)
_NO_COORDINATOR = "scenario"
"""The transactional id of every producer that no coordinator knows."""


@dataclass(slots=True)
class Producers:
    """All producers, by their names."""

    _ids: dict[str, int] = field(default_factory=dict)
    _transactional_ids: dict[int, str] = field(default_factory=dict)
    """Of each producer id that the coordinator gave."""
    next_sequence: dict[str, int] = field(default_factory=dict)
    """Of each producer the sequence of its next record, in its newest epoch."""
    epochs: dict[str, int] = field(default_factory=dict)
    """Of each producer that began a transaction its newest epoch."""
    begun: set[int] = field(default_factory=set)
    """The ids of those that have a transaction open."""
    held_back: dict[int, list[Callable[[], None]]] = field(default_factory=dict)
    """Of each producer to whose next partition the coordinator's consent is late: what lets it arrive."""

    def id_of(self, name: str) -> int:
        """The id behind a producer's name."""
        return self._ids.setdefault(name, len(self._ids) + 1)

    def identify(self, name: str, producer_id: int, epoch: int, transactional_id: str) -> None:
        """The coordinator gave a process this identity; what it sends from now on begins at sequence 0."""
        self._ids[name], self.epochs[name], self.next_sequence[name] = producer_id, epoch, 0
        self._transactional_ids[producer_id] = transactional_id

    def is_identified(self, producer_id: int) -> bool:
        """Whether the coordinator gave this producer id."""
        return producer_id in self._transactional_ids

    def transactional_id_of(self, producer_id: int) -> str:
        """The transactional id that a producer id belongs to."""
        return self._transactional_ids.get(producer_id, _NO_COORDINATOR)

    def stamp(self, name: str, sequence: int, epoch: int | None = None) -> ProducerStamp:
        """What a producer writes into a batch, in its newest epoch unless another is given."""
        return ProducerStamp(self.id_of(name), self.epochs.get(name, 0) if epoch is None else epoch, sequence)

    def attributes(self, name: str) -> int:
        """Those of a producer's batches: once it has begun a transaction, all of them are of transactions."""
        return TRANSACTIONAL_BIT if name in self.epochs else 0

    def begin(self, name: str, *, is_late: bool) -> None:
        """A producer begins a transaction; ``is_late``: consents wait until they are let go."""
        self.epochs.setdefault(name, 0)
        self.begun.add(self.id_of(name))
        if is_late:
            self.held_back.setdefault(self.id_of(name), [])

    def let_go(self, name: str) -> list[Callable[[], None]]:
        """What lets the consents arrive that were held back, in the order in which they were given."""
        return self.held_back.pop(self.id_of(name), [])

    def end(self, name: str, epoch: int) -> None:
        """Its coordinator has decided; the next transaction is of this epoch, and begins at sequence 0."""
        self.begun.discard(self.id_of(name))
        if epoch > self.epochs.get(name, -1):
            self.epochs[name], self.next_sequence[name] = epoch, 0

    def verdict(self, producer_id: int) -> Refusal | None:
        """What is said of a partition that a producer without a coordinator writes to first."""
        return None if producer_id in self.begun else NOT_BEGUN
