"""Ranges of keys.

Invariant: a range ends before its second key, which is the first one that is not of it.
"""

from __future__ import annotations


def behind(prefix: bytes) -> bytes:
    """The end of the range of every key that begins with ``prefix``, which does not end with the byte 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
