"""Decides who a finished batch is from: producer id, epoch and base sequence, written into its header.

Invariant: the CRC covers these fields and is computed anew with them; records and every other field stay.
"""

from __future__ import annotations

import struct

import crc32c

from strandline.records.batch import HEADER_BYTES, Buffer

_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT = 43
_CRC = struct.Struct(">I")
_CRC_AT = 17
_CRC_FROM = 21


def with_producer(batch: Buffer, *, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
    """A copy of one whole batch (v2) under this identity (KIP-98); its records are copied once."""
    view = memoryview(batch)
    header, records = bytearray(view[:HEADER_BYTES]), view[HEADER_BYTES:]
    _PRODUCER.pack_into(header, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    crc = crc32c.crc32c(records, crc32c.crc32c(header[_CRC_FROM:]))
    _CRC.pack_into(header, _CRC_AT, crc)
    return b"".join((header, records))
