"""Measures MB/s, latencies, CPU and memory of every party in a closed loop: every shape, every round, interleaved."""

from __future__ import annotations

from collections.abc import Iterator

from bench import Bench, Row
from plan import Plan

_PARTIES = 9
_PER_MEASUREMENT_S = 4.0
"""Around the measured seconds: the topic, a client process, what is to be written to the disk, memory to be used up."""
_STARTING_S = 20


def rows(bench: Bench) -> Iterator[Row]:
    """The party that is first changes from round to round."""
    parties = bench.servers.all_parties()
    for number in range(bench.plan.rounds):
        first = number % len(parties)
        for shape in bench.plan.shapes:
            for party in parties[first:] + parties[:first]:
                yield from bench.row(
                    lambda party=party, shape=shape: party.measure(shape, bench.plan.pace),
                    round=number,
                    shape=shape.name,
                    party=party.name,
                )


def expected_s(plan: Plan) -> float:
    """Seconds."""
    each_s = plan.pace.total_s + _PER_MEASUREMENT_S
    return plan.rounds * len(plan.shapes) * _PARTIES * each_s + plan.kafka_warm_s + _STARTING_S
