"""What reading through a group costs per record, beside reading without one, counted in calls of Python functions."""

from __future__ import annotations

import pytest
from counted_calls import CountedCalls
from tests.client.fake_cluster import TOPIC, fake_cluster, write

from strandline.client import Consumer

RECORDS, COUNTED = 60, 40


async def _calls_per_record(way: str) -> float:
    """Of records that are given one by one, all from what was fetched before."""
    async with fake_cluster() as cluster:
        cluster.groups.has_topic = True
        write(cluster, *(b"%d" % number for number in range(RECORDS)))
        async with Consumer(cluster.bootstrap, group=None if way == "alone" else "g") as consumer:
            await (consumer.subscribe(TOPIC) if way == "subscribed" else consumer.assign(TOPIC))
            for _ in range(RECORDS - COUNTED - 1):
                await anext(consumer)
            with CountedCalls() as calls:
                for _ in range(COUNTED):
                    await anext(consumer)
    return len(calls) / COUNTED


@pytest.mark.parametrize(("way", "more"), [("assigned", 1), ("subscribed", 3)])
async def test_a_record_of_a_group_costs_a_few_calls_more(way: str, more: int) -> None:
    """Beyond a consumer without a group: what is in hand is noted, and of a member the lease is looked at. It was 5
    and 14 calls more when each record was a step of its own."""
    alone = await _calls_per_record("alone")

    assert await _calls_per_record(way) <= alone + more
