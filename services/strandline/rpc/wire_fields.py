"""Encodes single fields by hand, for messages that are assembled from parts encoded earlier.

Invariant: an encoded message is its fields one after the other, in any order; so bytes of one message may be appended
to those of another of the same type, and an encoded submessage may be placed in its field.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

_LENGTH_DELIMITED = 2


@lru_cache(4_096)
def varint(number: int) -> bytes:
    """The encoding of a number of at least 0."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def tag(message: Any, field: str) -> bytes:
    """The tag of this field, which holds a submessage, text or bytes; their length comes next."""
    return varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | _LENGTH_DELIMITED)
