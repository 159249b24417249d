"""Which messages arrive, in which order, and what the sender of a request gets for the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strandline_sim.world.clock import Timeline
from strandline_sim.world.network import Network, Stream


class Somebody:
    """A party that keeps what it receives."""

    def __init__(self, party_id: int, network: Network) -> None:
        self.party_id, self.alive = party_id, True
        self.heard: list[Any] = []
        network.parties[party_id] = self

    def hand(self, action: Callable[..., None], *given: Any) -> None:
        """Run it at once."""
        if self.alive:
            action(*given)


def pair(*, lost_per_mille: int = 0) -> tuple[Timeline, Network, Somebody, Somebody]:
    """Two parties on a network with delays of 1 to 20 ms."""
    timeline = Timeline()
    network = Network(timeline, 1, delay_us=(1_000, 20_000), lost_per_mille=lost_per_mille, sticky=False)
    return timeline, network, Somebody(1, network), Somebody(2, network)


def connected(network: Network, one: Somebody, other: Somebody) -> Stream:
    """A stream from one to the other; both keep what they receive, and "end"."""
    stream = network.open_stream(
        one,
        other.party_id,
        on_up=lambda _, message: other.heard.append(message),
        on_down=lambda _, message: one.heard.append(message),
        on_end_at_opener=lambda _: one.heard.append("end"),
        on_end_at_server=lambda _: other.heard.append("end"),
    )
    assert stream is not None
    return stream


def test_a_stream_keeps_its_order_over_a_cut() -> None:
    """Messages sent before, during and after a short cut all arrive in the order of sending."""
    timeline, network, one, other = pair()
    stream = connected(network, one, other)
    link = [(1, 2)]
    for number in range(30):
        if number == 10:
            network.cut(link)
        if number == 20:
            network.heal(link)
        network.send_up(stream, number)
        timeline.run_until(timeline.now_us + 2_000)
    timeline.run_until(1_000_000)

    assert other.heard == list(range(30))


def test_a_stream_over_a_link_that_stays_cut_ends_at_both_sides() -> None:
    """The silence is detected, and no held message arrives afterwards."""
    timeline, network, one, other = pair()
    stream = connected(network, one, other)
    network.cut([(1, 2)])
    network.send_up(stream, "held")
    timeline.run_until(2_000_000)
    network.heal([(1, 2)])
    timeline.run_until(3_000_000)

    assert (one.heard, other.heard) == (["end"], ["end"])


def test_every_call_ends_once() -> None:
    """With losses, copies and late requests, a sender gets one answer or one None, never both and never nothing."""
    timeline, network, one, other = pair(lost_per_mille=300)
    asked = 200
    for number in range(asked):

        def done(answer: Any, number: int = number) -> None:
            one.heard.append((number, answer))

        network.call(
            one,
            2,
            lambda call: network.reply(call, "yes"),
            done,
            deadline_us=30_000,
            copies=True,
            extra_us=number % 40 * 1_000,
        )
    timeline.run_until(5_000_000)

    assert sorted(number for number, _ in one.heard) == list(range(asked))
    assert {answer for _, answer in one.heard} == {"yes", None}
    assert other.alive


def test_a_call_to_a_dead_incarnation_does_not_reach_its_successor() -> None:
    """A connection belongs to the process that accepted it."""
    timeline, network, one, other = pair()
    served: list[int] = []
    network.call(one, 2, lambda call: served.append(call.target), one.heard.append, deadline_us=100_000)
    other.alive = False
    Somebody(2, network)
    timeline.run_until(200_000)

    assert (served, one.heard) == ([], [None])
