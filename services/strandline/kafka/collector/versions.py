"""Which of Kafka's requests are spoken, in which version each, and what a broker that lacks one is refused with.

One version of each, which every release since 3.3 has: an answer that differs by version could not be checked by the
releases at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

OLDEST_RELEASE = "3.3"


class Api(NamedTuple):
    """One kind of request: Kafka's name and key, the version that is spoken, and the headers of its messages."""

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
# Its answer has the oldest header in every version: a client reads it before it knows what the broker speaks.
API_VERSIONS = Api("ApiVersions", 18, 3, flexible_response=False)
SASL_HANDSHAKE = Api("SaslHandshake", 17, 1, flexible_request=False, flexible_response=False)
SASL_AUTHENTICATE = Api("SaslAuthenticate", 36, 2)

_ASKED = (METADATA, LIST_OFFSETS, DESCRIBE_CONFIGS, DESCRIBE_TOPIC_PARTITIONS, DESCRIBE_QUORUM)

Offered = Mapping[int, tuple[int, int]]
"""Lowest and highest version that a broker offers, by key."""


def speaks(offered: Offered, api: Api) -> bool:
    """Whether a broker takes a request in the version that is spoken."""
    lowest, highest = offered.get(api.key, (0, -1))
    return lowest <= api.version <= highest


def lacking(offered: Offered) -> str | None:
    """What a broker lacks that cannot be done without, as a sentence; None: nothing."""
    for api in _ASKED:
        if not api.is_optional and not speaks(offered, api):
            found = offered.get(api.key)
            has = "does not offer it" if found is None else f"offers {found[0]} to {found[1]}"
            return (
                f"version {api.version} of {api.name} is needed and the broker {has}; "
                f"Apache Kafka {OLDEST_RELEASE} and later have it"
            )
    return None
