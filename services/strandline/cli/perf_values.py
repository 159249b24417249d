"""What the values of `strandline perf` are: random bytes of one size, cheap to hand over.

Invariant: no compressed batch of a load has a value twice, nor a part of one, so that a codec finds nothing to save.
"""

from __future__ import annotations

import os

_NOISE_BYTES = 1 << 20
"""Several times the largest batch of a producer with its usual settings."""
_MOST_VALUES = 1 << 16
"""More of the smallest than one batch holds: each takes some bytes besides its own."""


def noise_values(size_bytes: int, *, are_compressed: bool) -> list[bytes]:
    """Values of ``size_bytes`` to be sent in turn: one where nobody looks for what repeats, because others would have
    to be read from memory that the processor does not have at hand."""
    count = min(_MOST_VALUES, -(-_NOISE_BYTES // size_bytes)) if are_compressed else 1
    noise = os.urandom(count * size_bytes)
    return [noise[at : at + size_bytes] for at in range(0, len(noise), size_bytes)]
