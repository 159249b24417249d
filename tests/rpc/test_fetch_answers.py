"""Answers that are encoded around their records are the messages that protobuf would make of the same values."""

from __future__ import annotations

from fixed_topics import FixedTopics
from hypothesis import given
from hypothesis import strategies as st

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import FetchResult, LeaderHint, ServedPartition
from strandline.core.types import AbortedTransaction, EpochEnd, LeaderEpoch, NodeId, Offset, TopicPartition
from strandline.rpc.convert.errors import Unresolved
from strandline.rpc.convert.fetch import encode_fetch_answer, fetch_topics
from strandline.v1 import leader_service_pb2 as pb

OFFSETS = st.integers(0, 2**62).map(Offset)
REFUSALS = st.just(Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "ask another"))

results = st.builds(
    FetchResult,
    st.builds(TopicPartition, st.sampled_from(["a" * 36, "b" * 36]), st.integers(0, 2**31 - 1)),
    st.none() | OFFSETS,
    st.none() | OFFSETS,
    diverging=st.none() | st.builds(EpochEnd, st.integers(0, 2**31 - 1).map(LeaderEpoch), OFFSETS),
    refusal=st.none() | REFUSALS,
    leader_hint=st.none() | st.just(LeaderHint(NodeId(2), LeaderEpoch(3))),
    barrier=st.none() | st.integers(0, 2**63 - 1),
    last_stable_offset=st.none() | OFFSETS,
    aborted=st.lists(
        st.builds(AbortedTransaction, st.integers(0, 2**63 - 1), OFFSETS, OFFSETS, OFFSETS), max_size=3
    ).map(tuple),
)
payloads = st.sampled_from([0, 1, 127, 128, 16_383, 16_384, 70_000]).map(lambda size: b"r" * size)
served = st.lists(st.builds(ServedPartition, results, payloads), max_size=4)
unresolved = st.lists(
    st.builds(Unresolved, st.sampled_from(["", "t"]), st.just("c" * 36), st.integers(0, 9), REFUSALS), max_size=2
)


@given(st.integers(0, 2**63 - 1), served, unresolved)
def test_an_encoded_answer_is_the_same_message(
    correlation_id: int, parts: list[ServedPartition], vain: list[Unresolved]
) -> None:
    """Decoded, it has every field and every partition, at all lengths at which a length prefix grows."""
    topics = FixedTopics()
    found = pb.FetchStreamResponse.FromString(encode_fetch_answer(correlation_id, parts, vain, topics))

    wanted = pb.FetchStreamResponse(correlation_id=correlation_id)
    wanted.responses.extend(fetch_topics((), vain, topics))
    wanted.responses.extend(fetch_topics(parts, (), topics))
    assert found == wanted
