"""Produces of a broken or hostile producer, and the exact answer: code, outcome, and a helpful message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import grpc
import pytest
from raw_records import batch, error_info, patched, produce, produce_request
from running_cluster import CALL_S, Probe

from strandline.records.batch import CONTROL_BIT, MAX_BATCH_BYTES, TRANSACTIONAL_BIT
from strandline.records.codec import NewRecord, encode_batch
from strandline.v1 import error_pb2
from strandline.v1 import leader_service_pb2 as pb

SOUND = batch(b"sound")
_MAGIC_AT, _CRC_AT, _ATTRIBUTES_AT, _DELTA_AT, _MAX_TIMESTAMP_AT, _PRODUCER_AT, _COUNT_AT = 16, 17, 21, 23, 35, 43, 57
_TWO_MIB = 2 << 20


def too_large() -> bytes:
    """A valid batch, one byte above the limit or a little more."""
    return encode_batch([NewRecord(None, bytes(MAX_BATCH_BYTES), 0)], max_bytes=_TWO_MIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bad:
    """One bad batch and the answer to it; the message contains ``words``: the field, the rule, the remedy."""

    records: Callable[[], bytes]
    code: error_pb2.ErrorCode.ValueType
    words: tuple[str, ...]
    partition: int = 0


BATCHES = {
    "wrong CRC": Bad(
        records=lambda: patched(SOUND, _CRC_AT, ">I", 0x12345678, with_crc=False),
        code=error_pb2.ERROR_CODE_CORRUPT_MESSAGE,
        words=("crc 0x12345678", "CRC-32C", "encode and send it again"),
    ),
    "flipped bit": Bad(
        records=lambda: SOUND[:-1] + bytes([SOUND[-1] ^ 1]),
        code=error_pb2.ERROR_CODE_CORRUPT_MESSAGE,
        words=("crc", "encode and send it again"),
    ),
    "magic 1": Bad(
        records=lambda: patched(SOUND, _MAGIC_AT, ">b", 1),
        code=error_pb2.ERROR_CODE_CORRUPT_MESSAGE,
        words=("magic 1", "must be 2", "record batch v2"),
    ),
    "negative count": Bad(
        records=lambda: patched(SOUND, _COUNT_AT, ">i", -1),
        code=error_pb2.ERROR_CODE_INVALID_RECORD,
        words=("record count -1", "must be positive", "count the records"),
    ),
    "count and offsets disagree": Bad(
        records=lambda: patched(SOUND, _DELTA_AT, ">i", 5),
        code=error_pb2.ERROR_CODE_INVALID_RECORD,
        words=("last offset delta 5", "must be record count 1 - 1"),
    ),
    "above the limit": Bad(
        records=too_large,
        code=error_pb2.ERROR_CODE_MESSAGE_TOO_LARGE,
        words=("batch size", f"limit of {MAX_BATCH_BYTES} bytes", "send smaller batches"),
    ),
    "control bit": Bad(
        records=lambda: patched(SOUND, _ATTRIBUTES_AT, ">h", CONTROL_BIT),
        code=error_pb2.ERROR_CODE_INVALID_RECORD,
        words=("control bit is set", "clients must not"),
    ),
    "transactional bit": Bad(
        records=lambda: patched(SOUND, _ATTRIBUTES_AT, ">h", TRANSACTIONAL_BIT),
        code=error_pb2.ERROR_CODE_INVALID_RECORD,
        words=("transactional bit is set", "clear it"),
    ),
    "unknown codec": Bad(
        records=lambda: patched(SOUND, _ATTRIBUTES_AT, ">h", 7),
        code=error_pb2.ERROR_CODE_INVALID_RECORD,
        words=("compression codec 7", "use 0 none"),
    ),
    "timestamp below -1": Bad(
        records=lambda: patched(SOUND, _MAX_TIMESTAMP_AT, ">q", -5),
        code=error_pb2.ERROR_CODE_INVALID_TIMESTAMP,
        words=("timestamps", "must be -1"),
    ),
    "producer id without a sequence": Bad(
        records=lambda: patched(SOUND, _PRODUCER_AT, ">q", 7),
        code=error_pb2.ERROR_CODE_INVALID_RECORD,
        words=("producer id 7", "must all be set"),
    ),
    "sequence out of order": Bad(
        records=lambda: batch(b"late", producer=(999_999, 0), sequence=3),
        code=error_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER,
        words=("base_sequence 3", "producer 999999"),
    ),
    "cut off": Bad(
        records=lambda: SOUND[:-3],
        code=error_pb2.ERROR_CODE_CORRUPT_MESSAGE,
        words=("length prefix", "send whole batches"),
    ),
    "a few bytes": Bad(
        records=lambda: b"hello", code=error_pb2.ERROR_CODE_CORRUPT_MESSAGE, words=("length prefix needs 12 bytes",)
    ),
    "nothing": Bad(records=lambda: b"", code=error_pb2.ERROR_CODE_INVALID_RECORD, words=("no batch", "send one")),
    "two batches": Bad(
        records=lambda: SOUND + SOUND,
        code=error_pb2.ERROR_CODE_INVALID_RECORD,
        words=("more than one batch", "send one per partition"),
    ),
    "partition out of range": Bad(
        records=lambda: SOUND,
        partition=7,
        code=error_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        words=("has no partition 7", "DescribeTopics"),
    ),
    "negative partition": Bad(
        records=lambda: SOUND,
        partition=-1,
        code=error_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        words=("has no partition -1",),
    ),
}


@pytest.fixture(scope="module")
def bad_batches_topic() -> str:
    """One topic for all bad batches: none of them is ever in it."""
    return "bad-batches"


async def existing(probe: Probe, topic: str) -> int:
    """The topic's leader; creates the topic if needed."""
    if topic not in {known.name for known in (await probe.metadata()).topics}:
        await probe.create_topic(topic)
    return await probe.leader(topic)


@pytest.mark.parametrize("bad", BATCHES.values(), ids=BATCHES.keys())
async def test_a_bad_batch_is_refused_and_not_written(probe: Probe, bad_batches_topic: str, bad: Bad) -> None:
    """A bad batch is rejected with its own code, definitely, with field, rule and remedy; nothing is written."""
    leader = await existing(probe, bad_batches_topic)
    answer = await produce(probe, leader, bad_batches_topic, bad.records(), partition=bad.partition)
    after = await probe.described(bad_batches_topic, leader)

    assert error_pb2.ErrorCode.Name(answer.error_code) == error_pb2.ErrorCode.Name(bad.code), answer.error_message
    assert answer.outcome == pb.PRODUCE_OUTCOME_NOT_APPENDED
    assert not answer.HasField("base_offset")
    assert [word for word in bad.words if word not in answer.error_message] == [], answer.error_message
    assert after.log_end_offset == 0


async def test_a_good_batch_beside_a_bad_one_is_written(probe: Probe, topic: str) -> None:
    """Errors are per partition: one rejected batch does not keep another from being written."""
    await probe.create_topic(topic, assignment=[1, 2, 3])
    other = f"{topic}-2"
    await probe.create_topic(other, assignment=[1, 2, 3])
    request = produce_request(topic, SOUND)
    request.topic_data.extend(produce_request(other, SOUND[:-1]).topic_data)
    answer = await probe.leader_service(1).Produce(request, timeout=CALL_S)
    codes = {entry.name: entry.partition_responses[0].error_code for entry in answer.responses}

    assert codes == {topic: 0, other: error_pb2.ERROR_CODE_CORRUPT_MESSAGE}


@pytest.mark.parametrize("name", ["no-such-topic", "../../x", "", "x" * 300])
async def test_an_unknown_topic_is_named(probe: Probe, name: str) -> None:
    """A produce to a topic that does not exist is rejected, definitely, and names the topic."""
    answer = await produce(probe, 1, name, SOUND)
    expected = error_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION if name else error_pb2.ERROR_CODE_INVALID_REQUEST

    assert answer.error_code == expected
    assert answer.outcome == pb.PRODUCE_OUTCOME_NOT_APPENDED
    assert name in answer.error_message
    assert len(answer.error_message) < 500


async def test_a_node_that_does_not_lead_names_the_leader(probe: Probe, topic: str) -> None:
    """NOT_LEADER_OR_FOLLOWER has the leader, its epoch, and its address: one round trip is enough (KIP-951)."""
    await probe.create_topic(topic, assignment=[2, 1, 3])
    answer = await produce(probe, 1, topic, SOUND)
    now = await probe.partition(topic)
    address = probe.local.address(2)

    assert answer.error_code == error_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
    assert answer.outcome == pb.PRODUCE_OUTCOME_NOT_APPENDED
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, now.leader_epoch)
    assert address is not None
    assert f"{answer.current_leader.endpoint.host}:{answer.current_leader.endpoint.port}" == address.client


def acks_two(topic: str) -> pb.ProduceRequest:
    """acks is 2, which is not a valid value."""
    return produce_request(topic, SOUND, acks=2)


def negative_timeout(topic: str) -> pb.ProduceRequest:
    """The time-out is negative."""
    return produce_request(topic, SOUND, timeout_ms=-1)


def named_twice(topic: str) -> pb.ProduceRequest:
    """One partition with two batches."""
    request = produce_request(topic, SOUND)
    request.topic_data[0].partition_data.add(index=0, records=SOUND)
    return request


def nothing_named(topic: str) -> pb.ProduceRequest:
    """A request without a partition."""
    return pb.ProduceRequest()


def other_cluster(topic: str) -> pb.ProduceRequest:
    """A request for another cluster."""
    request = produce_request(topic, SOUND)
    request.cluster_id = "another-cluster"
    return request


WHOLE = [
    (acks_two, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUIRED_ACKS", ("acks 2", "0, 1 or -1")),
    (negative_timeout, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", ("timeout_ms -1", "not be negative")),
    (named_twice, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", ("partition 0", "named twice", "once")),
    (nothing_named, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", ("names no partition", "at least one")),
    (
        other_cluster,
        grpc.StatusCode.FAILED_PRECONDITION,
        "INCONSISTENT_CLUSTER_ID",
        ("cluster_id 'another-cluster'", "connect to the cluster"),
    ),
]


@pytest.mark.parametrize(
    ("build", "status", "reason", "words"), WHOLE, ids=lambda value: getattr(value, "__name__", "")
)
async def test_a_bad_produce_is_refused_as_a_whole(
    probe: Probe,
    bad_batches_topic: str,
    build: Callable[[str], pb.ProduceRequest],
    status: grpc.StatusCode,
    reason: str,
    words: tuple[str, ...],
) -> None:
    """A request that is invalid as a whole has a status, and an ErrorInfo with code, remedy and outcome."""
    leader = await existing(probe, bad_batches_topic)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await probe.leader_service(leader).Produce(build(bad_batches_topic), timeout=CALL_S)
    error = raised.value
    info = error_info(error)
    after = await probe.described(bad_batches_topic, leader)

    assert (error.code(), info.reason, info.domain) == (status, reason, "strandline")
    assert info.metadata["code"] == str(error_pb2.ErrorCode.Value(f"ERROR_CODE_{reason}"))
    assert info.metadata["outcome"] == "not_appended"
    assert info.metadata["remedy"]
    assert [word for word in words if word not in (error.details() or "")] == [], error.details()
    assert after.log_end_offset == 0


async def test_a_malformed_stream_message_does_not_end_the_stream(probe: Probe, topic: str) -> None:
    """On ProduceStream a rejected message is answered under its correlation id, and the next one is written."""
    await probe.create_topic(topic)
    stream = probe.leader_service(await probe.leader(topic)).ProduceStream(timeout=CALL_S)
    for correlation_id, request in enumerate([acks_two(topic), produce_request(topic, SOUND)], start=7):
        await stream.write(
            pb.ProduceStreamRequest(
                correlation_id=correlation_id, acks=request.acks, timeout_ms=3_000, topic_data=request.topic_data
            )
        )
    answers = {}
    for _ in range(2):
        answer = await stream.read()
        assert isinstance(answer, pb.ProduceStreamResponse)
        answers[answer.correlation_id] = answer
    stream.cancel()

    assert answers[7].error_code == error_pb2.ERROR_CODE_INVALID_REQUIRED_ACKS
    assert "acks 2" in answers[7].error_message
    assert answers[8].error_code == 0
    assert answers[8].responses[0].partition_responses[0].base_offset == 0
