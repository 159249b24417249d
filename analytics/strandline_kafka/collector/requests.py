"""Encodes the requests, by Kafka's schemas of the versions in `versions`.

Invariant: nothing here changes anything at a broker: Metadata never creates a topic, and offsets are asked for as a
consumer (replica -1) or as Kafka's debugging replica (-2), never as a follower, whose questions would count as fetches.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

# ---- versions
# The requests of Kafka that are used, with their versions, and the refusal of a broker that lacks one.
#
# Each has one version, which every release since 3.3 has: answers that differ by version could not be checked with the
# available releases.

OLDEST_RELEASE = "3.3"


class Api(NamedTuple):
    """One kind of request: Kafka's name and key, the version used, and the headers of its messages."""

    name: str
    key: int
    version: int
    is_optional: bool = False
    flexible_request: bool = True
    flexible_response: bool = True


METADATA = Api("Metadata", 3, 12)
LIST_OFFSETS = Api("ListOffsets", 2, 6)
DESCRIBE_CONFIGS = Api("DescribeConfigs", 32, 4, is_optional=True)
DESCRIBE_TOPIC_PARTITIONS = Api("DescribeTopicPartitions", 75, 0, is_optional=True)
DESCRIBE_QUORUM = Api("DescribeQuorum", 55, 0, is_optional=True)
# Its answer has the oldest header in every version: a client reads it before it knows the versions of the broker.
API_VERSIONS = Api("ApiVersions", 18, 3, flexible_response=False)
SASL_HANDSHAKE = Api("SaslHandshake", 17, 1, flexible_request=False, flexible_response=False)
SASL_AUTHENTICATE = Api("SaslAuthenticate", 36, 2)

_ASKED = (METADATA, LIST_OFFSETS, DESCRIBE_CONFIGS, DESCRIBE_TOPIC_PARTITIONS, DESCRIBE_QUORUM)

Offered = Mapping[int, tuple[int, int]]
"""Lowest and highest version that a broker offers, by key."""


def speaks(offered: Offered, api: Api) -> bool:
    """Whether a broker takes a request in the version used."""
    lowest, highest = offered.get(api.key, (0, -1))
    return lowest <= api.version <= highest


def lacking(offered: Offered) -> str | None:
    """The required requests that a broker lacks, as a sentence; None if it lacks none."""
    for api in _ASKED:
        if not api.is_optional and not speaks(offered, api):
            found = offered.get(api.key)
            has = "does not offer it" if found is None else f"offers {found[0]} to {found[1]}"
            return (
                f"version {api.version} of {api.name} is needed and the broker {has}; "
                f"Apache Kafka {OLDEST_RELEASE} and later have it"
            )
    return None


CLIENT = "strandline-collect"
AS_CONSUMER = -1
"""When asked for the latest offset, the leader answers its high watermark, any other broker an error."""
AS_DEBUGGER = -2
"""When asked for the latest offset, each broker answers the end of its own log, leader or not (A27)."""
LATEST, EARLIEST = -1, -2
"""Kafka's values in place of a time."""
_NO_TAGS = b"\x00"
_NULL = b"\x00"
_ANY_EPOCH = -1
_ZERO_ID = bytes(16)
_TOPIC = 2
"""A resource of DescribeConfigs."""
METADATA_TOPIC = "__cluster_metadata"
MIN_ISR = "min.insync.replicas"
MOST_DESCRIBED = 2_000
"""Partitions in one answer of DescribeTopicPartitions, which is also Kafka's limit."""


def framed(api: Api, correlation: int, body: bytes) -> bytes:
    """A request with its header and its length in front."""
    name = CLIENT.encode()
    header = struct.pack(">hhih", api.key, api.version, correlation, len(name)) + name
    message = header + (_NO_TAGS if api.flexible_request else b"") + body
    return struct.pack(">i", len(message)) + message


def api_versions(version: str) -> bytes:
    """ApiVersions: this program by its name and version, which a broker shows (KIP-511)."""
    return _text(CLIENT) + _text(version) + _NO_TAGS


def metadata(topics: Sequence[str] | None) -> bytes:
    """Metadata of these topics, or of all."""
    named = None if topics is None else [_ZERO_ID + _text(name) + _NO_TAGS for name in topics]
    return (_NULL if named is None else _array(named)) + b"\x00\x00" + _NO_TAGS


def list_offsets(replica: int, time: int, partitions: Mapping[str, Iterable[int]]) -> bytes:
    """ListOffsets of partitions by the names of their topics."""
    topics = [
        _text(topic) + _array(struct.pack(">iiq", index, _ANY_EPOCH, time) + _NO_TAGS for index in indexes) + _NO_TAGS
        for topic, indexes in partitions.items()
    ]
    return struct.pack(">ib", replica, 0) + _array(topics) + _NO_TAGS


def describe_min_isr(topics: Iterable[str]) -> bytes:
    """DescribeConfigs of topics, one setting of each."""
    keys = _array([_text(MIN_ISR)])
    resources = [struct.pack(">b", _TOPIC) + _text(topic) + keys + _NO_TAGS for topic in topics]
    return _array(resources) + b"\x00\x00" + _NO_TAGS


def describe_topic_partitions(topics: Iterable[str], cursor: tuple[str, int] | None) -> bytes:
    """DescribeTopicPartitions from the cursor of the previous answer on."""
    at = (
        struct.pack(">b", -1) if cursor is None else b"\x01" + _text(cursor[0]) + struct.pack(">i", cursor[1]) + b"\x00"
    )
    named = _array(_text(topic) + _NO_TAGS for topic in topics)
    return named + struct.pack(">i", MOST_DESCRIBED) + at + _NO_TAGS


def describe_quorum() -> bytes:
    """DescribeQuorum of the metadata log."""
    partition = struct.pack(">i", 0) + _NO_TAGS
    return _array([_text(METADATA_TOPIC) + _array([partition]) + _NO_TAGS]) + _NO_TAGS


def sasl_handshake(mechanism: str) -> bytes:
    """SaslHandshake: the mechanism to use."""
    return struct.pack(">h", len(mechanism)) + mechanism.encode()


def sasl_authenticate(token: bytes) -> bytes:
    """SaslAuthenticate: one message of the mechanism."""
    return _uvarint(len(token) + 1) + token + _NO_TAGS


def _uvarint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _text(text: str) -> bytes:
    content = text.encode()
    return _uvarint(len(content) + 1) + content


def _array(elements: Iterable[bytes]) -> bytes:
    several = list(elements)
    return _uvarint(len(several) + 1) + b"".join(several)
