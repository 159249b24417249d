"""Decides whether a compressed batch may be stored: no consumer could read one that expands too far, or too little.

Invariant: a batch is stored only if it expands to no more than its topic's ``max.decompressed.bytes``, and to no less
than the records that its header counts need; what its frames declare and its own size decide that where they can, and
only a batch that may lie beyond is expanded, beside the event loop.
"""

from __future__ import annotations

from functools import partial

from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.messages import ProducePartition
from strandline.core.topic_configs import MAX_DECOMPRESSED_BYTES, MOST_DECOMPRESSED_BYTES
from strandline.records.batch import HEADER_BYTES, codec_of, count_refusal, records_bytes_at_least
from strandline.rpc.convert_produce import ProduceAsked, ProduceMessage
from strandline.runtime.host import Host


def is_compressed(part: ProducePartition) -> bool:
    """Whether a batch was found whole and its records are compressed."""
    return part.invalid is None and codec_of(part.header) != 0


async def refuse_badly_compressed(host: Host, message: ProduceMessage, asked: ProduceAsked) -> ProduceAsked:
    """``asked`` with a refusal for each batch that expands too far, or holds fewer records than it counts.

    Raises:
        Refused: THROTTLING_QUOTA_EXCEEDED, too many batches wait to be expanded.
    """
    refused = {}
    for index, part in enumerate(asked.parts):
        if is_compressed(part):
            refusal = await _refusal(host, part)
            if refusal is not None:
                refused[index] = part._replace(invalid=refusal)
    if not refused:
        return asked
    parts = tuple(refused.get(index, part) for index, part in enumerate(asked.parts))
    return asked._replace(parts=parts, size_bytes=max(asked.size_bytes, int(message.ByteSize())))


async def _refusal(host: Host, part: ProducePartition) -> Refusal | None:
    # Imported here: the codecs are large, and batches without compression never need them.
    from strandline.records.compression import expanded_bytes
    from strandline.records.expansion import expansion_of

    assert isinstance(part.payload, memoryview), "a batch that was read from a message is a view of its bytes"
    codec, body = codec_of(part.header), part.payload[HEADER_BYTES:]
    limit = int(host.topics.configs_of(part.tp.topic_id).get(MAX_DECOMPRESSED_BYTES, MOST_DECOMPRESSED_BYTES))
    least, most = expansion_of(codec, body)
    if least > limit:
        return _too_large(f"records expand to {least} bytes, above the topic's", limit)
    # What a batch expands to is seldom less than it has, so honest ones are hardly ever expanded for their count.
    is_plausible = records_bytes_at_least(part.header.record_count) <= len(body)
    if most is not None and most <= limit and is_plausible:
        return None
    try:
        size = await host.expanding.run(partial(expanded_bytes, codec, body, limit))
    except Refused as error:
        if error.refusal.code is ErrorCode.MESSAGE_TOO_LARGE:
            return _too_large("records expand to more than the topic's", limit)
        if error.refusal.code is ErrorCode.CORRUPT_MESSAGE:
            return Refusal(ErrorCode.INVALID_RECORD, error.refusal.message, Outcome.NOT_APPENDED)
        raise
    return count_refusal(part.header, size)


def _too_large(what: str, limit: int) -> Refusal:
    message = f"{what} {MAX_DECOMPRESSED_BYTES}={limit}; send smaller batches"
    return Refusal(ErrorCode.MESSAGE_TOO_LARGE, message, Outcome.NOT_APPENDED)
