"""Measures MB/s, latencies, CPU and memory of every party in a closed loop: every shape, every round, interleaved."""

from __future__ import annotations

from collections.abc import Iterator

from bench import Bench, Row


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
