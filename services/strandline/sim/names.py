"""Which object represents a value or a place in the history of a run: always the same one.

Invariant: equal values, and equal places, of one run are one object, so a record that five consumers read is built and
compared once.
"""

from __future__ import annotations

from strandline.sim.history import Place, Value

VALUE_BITS = 24
"""A value is client << VALUE_BITS | sequence of the record in this client."""


class Names:
    """All values and places of one run."""

    __slots__ = ("_places", "_values")

    def __init__(self) -> None:
        self._values: dict[int, list[Value]] = {}
        self._places: dict[int, list[Place]] = {}

    def values(self, code: int, count: int) -> list[Value]:
        """What the records of a batch hold, which a log keeps as one number."""
        found = self._values.get(code)
        if found is None or len(found) < count:
            client, first = f"p{code >> VALUE_BITS}", code & ((1 << VALUE_BITS) - 1)
            found = self._values[code] = [Value(client, first + index) for index in range(count)]
        return found

    def place(self, partition: int, offset: int) -> Place:
        """Where a record lies."""
        found = self._places.get(partition)
        if found is None:
            found = self._places[partition] = []
        while len(found) <= offset:
            found.append(Place(partition, len(found)))
        return found[offset]
