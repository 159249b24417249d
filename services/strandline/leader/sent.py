"""Decides how far an answer's bytes reach: the exclusive end offset of the last batch in them.

Invariant: it is read from the bytes that leave, so what a follower is believed to hold is never more than
what it was sent (M70).
"""

from __future__ import annotations

import struct

from strandline.core.types import Offset
from strandline.records.batch import LENGTH_PREFIX_BYTES, parse_header

_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8


def end_of_batches(payload: bytes) -> Offset:
    """The next offset after whole batches; ``payload`` holds at least one."""
    position, last, size = 0, 0, len(payload)
    while position < size:
        last = position
        position += int(_LENGTH.unpack_from(payload, position + _LENGTH_AT)[0]) + LENGTH_PREFIX_BYTES
    return parse_header(payload, last).next_offset
