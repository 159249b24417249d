"""Decides what of a request is looked at before the core sees it: its shape, and each batch's header and CRC.

Invariant: the core is only given batches that are whole and whose CRC holds; records are never parsed here,
except those that a caller sent or wants as messages, and those beside the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.messages import ServedPartition
from strandline.core.types import Offset, TopicPartition
from strandline.leader.expanding import Expanding, is_compressed
from strandline.records.batch import UNPACKED_RECORDS, check_one_batch, split_batches
from strandline.rpc.convert_fetch import FetchAsked, FetchMessage, read_fetch
from strandline.rpc.convert_produce import ProduceAsked, ProduceMessage, read_produce
from strandline.rpc.convert_records import StoredRecord, read_records
from strandline.rpc.decoded import Decoded, Decoder
from strandline.runtime.aside import giving_way
from strandline.runtime.clock import wall_ms
from strandline.runtime.host import Host
from strandline.v1 import record_pb2

_DISK_FULL = Refusal(
    ErrorCode.POLICY_VIOLATION,
    "the node's disk is nearly full; free space or lower retention",
    Outcome.NOT_APPENDED,
)


def encode_records(messages: Sequence[record_pb2.SimpleRecord]) -> bytes:
    """One uncompressed batch of records that came as messages.

    Raises:
        Refused: MESSAGE_TOO_LARGE, INVALID_TIMESTAMP.
    """
    # Imported here and below: the codec is large, and the hot path never needs it.
    from strandline.records.codec import NewRecord, encode_batch

    return encode_batch(NewRecord(*record) for record in read_records(messages, wall_ms()))


def decode_records(
    payloads: Sequence[tuple[TopicPartition, bytes]], starts: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, Decoded]:
    """Records of fetched batches as messages, of each partition from its start on. It may run in any thread."""
    from strandline.records.codec import iterate_batch

    def iterate(batch: memoryview, *, max_expanded_bytes: int) -> Iterator[StoredRecord]:
        return giving_way(iterate_batch(batch, max_expanded_bytes=max_expanded_bytes))

    return Decoder(split_batches, iterate, UNPACKED_RECORDS).decode(payloads, starts)


class _ToEncode(Exception):
    """A message carries records that are no batch yet."""


def _encode_later(messages: Sequence[record_pb2.SimpleRecord]) -> bytes:
    raise _ToEncode


class Reading:
    """Takes requests apart for the core."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._expanding = Expanding(host)

    async def produce(self, message: ProduceMessage) -> ProduceAsked:
        """A produce message; near the end of the disk every part of it is marked refused.

        Only a message with a compressed batch, or with records that are no batch yet, may wait here.

        Raises:
            Refused: the message as a whole.
        """
        topics = self._host.topics
        try:
            asked = read_produce(message, topics, check_one_batch, _encode_later)
        except _ToEncode:
            work = partial(read_produce, message, topics, check_one_batch, encode_records)
            asked = await self._host.unpacking.run(work)
        if self._host.disk_nearly_full(self._host.driver.clock()):
            return asked._replace(parts=tuple(part._replace(invalid=_DISK_FULL) for part in asked.parts))
        for part in asked.parts:
            if is_compressed(part):
                return await self._expanding.checked(message, asked)
        return asked

    def fetch(self, message: FetchMessage) -> FetchAsked:
        """A fetch message.

        Raises:
            Refused: the message as a whole.
        """
        return read_fetch(message, self._host.topics)

    async def decoded(
        self, asked: FetchAsked, served: Sequence[ServedPartition]
    ) -> Mapping[TopicPartition, Decoded] | None:
        """The records that were read, as messages; None unless the caller asked for that.

        Raises:
            Refused: THROTTLING_QUOTA_EXCEEDED, too many callers wait for theirs.
        """
        if asked.starts is None:
            return None
        payloads = [(part.result.tp, part.payload) for part in served]
        return await self._host.unpacking.run(partial(decode_records, payloads, asked.starts))
