"""38: a part of another reign believed."""

from __future__ import annotations

from collections.abc import Sequence

from mutants.mutant import Mutant, Real, Swap

from strandline.metadata.etcd_layout import LogValue
from strandline_sim.control.stored_values import KEYS, StoredValues


def _of_any_reign(real: Real, stored: StoredValues, taken: LogValue) -> tuple[bytes, ...]:
    """The parts of the first reign that left any for this offset."""
    own = real(stored, taken)
    offset = b"/%016x/" % taken.head.offset
    found = [(key, each.value) for key, each in stored.range(*KEYS.all_parts) if offset in key]
    first = tuple(value for key, value in found if key.partition(offset)[0] == found[0][0].partition(offset)[0])
    if first != own:
        real.differs()
    return first


def _unchecked(real: Real, taken: LogValue, parts: Sequence[bytes]) -> bytes | None:
    """Whatever the parts are."""
    packed = b"".join(parts[: taken.parts]) if taken.parts else taken.body
    if packed != real(taken, parts):
        real.differs()
    return packed


MUTANTS = (
    Mutant(
        number="38",
        name="part of another reign believed",
        broken="Parts are looked for by their offset, and their checksum is not compared.",
        source="C8",
        profiles=("controllers", "store-trouble"),
        swaps=(
            Swap(StoredValues, "parts", _of_any_reign, pure=False),
            Swap(LogValue, "packed", _unchecked, pure=False),
        ),
    ),
)
