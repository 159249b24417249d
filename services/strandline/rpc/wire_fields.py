"""Single fields of a message, encoded by hand, for messages that are put together from bytes encoded before.

Invariant: a message is encoded as its fields one after the other, in any order; so bytes of one message may be
appended to those of another of the same type, and a submessage wrapped in its field.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

_LENGTH_DELIMITED = 2


@lru_cache(4_096)
def varint(number: int) -> bytes:
    """A number of at least 0."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def tag(message: Any, field: str) -> bytes:
    """What comes before a submessage, text or bytes in this field, followed by their length."""
    return varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | _LENGTH_DELIMITED)
