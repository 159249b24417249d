"""Decides what of a request is looked at before the core sees it: its shape, and each batch's header and CRC.

Invariant: the core is only given batches that are whole and whose CRC holds; records are never parsed here,
except those that a caller sent or wants as messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.types import BatchHeader, Offset
from strandline.records.batch import batch_size_bytes, check_batch, split_batches
from strandline.rpc.convert_fetch import FetchAsked, FetchMessage, read_fetch
from strandline.rpc.convert_produce import ProduceAsked, ProduceMessage, read_produce
from strandline.rpc.convert_records import decoder, read_records
from strandline.runtime.clock import wall_ms
from strandline.runtime.host import Host
from strandline.v1 import record_pb2

_DISK_FULL = Refusal(
    ErrorCode.POLICY_VIOLATION,
    "the node's disk is nearly full; free space or lower retention",
    Outcome.NOT_APPENDED,
)

Decode = Callable[[bytes, Offset], Sequence[record_pb2.SimpleRecord]]


def check_one_batch(payload: bytes) -> BatchHeader:
    """The header of a payload that is exactly one valid batch.

    Raises:
        Refused: as `records.batch.check_batch`; INVALID_RECORD for none or more than one.
    """
    view = memoryview(payload)
    if not payload:
        raise Refused(ErrorCode.INVALID_RECORD, "records hold no batch; send one", Outcome.NOT_APPENDED)
    if batch_size_bytes(view, 0) != len(view):
        raise Refused(
            ErrorCode.INVALID_RECORD, "records hold more than one batch; send one per partition", Outcome.NOT_APPENDED
        )
    return check_batch(view).to_core()


def encode_records(messages: Sequence[record_pb2.SimpleRecord]) -> bytes:
    """One uncompressed batch of records that came as messages.

    Raises:
        Refused: MESSAGE_TOO_LARGE, INVALID_TIMESTAMP.
    """
    # Imported here and below: the codec is large, and the hot path never needs it.
    from strandline.records.codec import NewRecord, encode_batch

    return encode_batch(NewRecord(*record) for record in read_records(messages, wall_ms()))


def decode_records(payload: bytes, start: Offset) -> Sequence[record_pb2.SimpleRecord]:
    """Records of fetched batches from an offset on, as messages.

    Raises:
        Refused: CORRUPT_MESSAGE.
    """
    from strandline.records.codec import decode_batch

    return decoder(split_batches, decode_batch)(payload, start)


class Reading:
    """Takes requests apart for the core."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.decode: Decode = decode_records

    def produce(self, message: ProduceMessage) -> ProduceAsked:
        """A produce message; near the end of the disk every part of it is marked refused.

        Raises:
            Refused: the message as a whole.
        """
        asked = read_produce(message, self._host.topics, check_one_batch, encode_records)
        if self._host.disk_nearly_full(self._host.driver.clock()):
            return asked._replace(parts=tuple(part._replace(invalid=_DISK_FULL) for part in asked.parts))
        return asked

    def fetch(self, message: FetchMessage) -> FetchAsked:
        """A fetch message.

        Raises:
            Refused: the message as a whole.
        """
        return read_fetch(message, self._host.topics)
