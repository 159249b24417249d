"""What is asked of the cluster before anything is read: the topic's id, and the extent of each partition.

Invariant: an extent ends at the HW that the partition's leader reports to clients, so nothing uncommitted is planned.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.client import EARLIEST, LATEST, Admin, ClusterUnreachable
from strandline.rpc.tls_files import TlsWrong
from strandline_analytics.topic.errors import TopicReadFailed
from strandline_analytics.topic.loop import wait
from strandline_analytics.topic.options import TopicOptions
from strandline_analytics.topic.ranges import Extent


@dataclass(frozen=True, slots=True)
class TopicExtent:
    """A topic as it is now."""

    topic_id: str
    partitions: dict[int, Extent]


def ask(options: TopicOptions) -> TopicExtent:
    """What there is to be read now.

    Raises:
        TopicReadFailed: nobody answers at the bootstrap address, or there is no such topic.
        Refused: a partition has no leader for as long as the client waits.
    """
    try:
        return wait(_ask(options))
    except ClusterUnreachable as error:
        raise unreachable(options, error) from error
    except TlsWrong as error:
        raise TopicReadFailed("tlsCert", str(error), "give tlsCert, tlsKey and tlsCa of a client") from error
    except ValueError as error:
        raise TopicReadFailed("bootstrap", str(error), "give host:port of the controller") from error


def unreachable(options: TopicOptions, error: Exception) -> TopicReadFailed:
    """The error when no controller answers."""
    return TopicReadFailed(
        "bootstrap",
        f"{options.bootstrap}: {error}",
        "give the address that `strandline up` prints, reachable from Spark's workers as well",
    )


async def _ask(options: TopicOptions) -> TopicExtent:
    async with Admin(options.bootstrap, **options.tls) as admin:
        topics = {topic.name: topic for topic in (await admin.metadata()).topics}
        if options.topic not in topics:
            there = ", ".join(sorted(topics)) or "none"
            raise TopicReadFailed(
                "topic", f"no topic is named {options.topic!r}", f"the cluster has: {there}; or create it first"
            )
        # Ends first: what is written meanwhile belongs to the next read, and a start never lies behind its end.
        ends = await admin.list_offsets(options.topic, timestamp_ms=LATEST)
        starts = await admin.list_offsets(options.topic, ends, timestamp_ms=EARLIEST)
    extents = {partition: Extent(starts[partition].offset or 0, end.offset or 0) for partition, end in ends.items()}
    return TopicExtent(topics[options.topic].topic_id, extents)
