"""The simulated disk, network and draws: what is kept, what arrives, and what is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strandline.core.types import BatchHeader, EpochEntry, LeaderEpoch, Offset, TopicPartition
from strandline_sim.world.clock import Timeline
from strandline_sim.world.disk import Disk, LogFile
from strandline_sim.world.draws import Draw, Purpose, mix, mix2
from strandline_sim.world.memory_logs import MemoryLogs
from strandline_sim.world.network import Network, Stream


def grown(*counts: int, epoch: int = 0, log: LogFile | None = None) -> LogFile:
    """A log with batches of this many records."""
    log = log or LogFile()
    for count in counts:
        log.append(BatchHeader(Offset(log.leo), epoch, count, 100, 0), 1, 1)
    return log


def test_power_loss_keeps_what_was_synced_and_a_prefix_of_the_rest() -> None:
    """The end after a power loss is a batch boundary, never below what was synced."""
    ends = set()
    for seed in range(60):
        log = grown(2, 3)
        log.begin_flush()
        log.end_flush()
        grown(1, 4, log=log)
        log.lose_power(Draw(seed, Purpose.DISK))
        ends.add(log.leo)

    assert ends == {5, 6, 10}


def test_a_commit_covers_what_was_written_when_it_was_issued() -> None:
    """Records appended or truncated while a commit is running are not covered by it."""
    log = grown(2, 3)
    log.begin_flush()
    grown(4, log=log)
    log.cut(2)
    log.end_flush()

    assert (log.leo, log.synced) == (2, 2)


def test_recovery_believes_batches_before_the_epoch_checkpoint() -> None:
    """Entries without a batch are removed, epochs without an entry added (M55); the tail is then durable (TR17)."""
    log = grown(2, 2)
    grown(1, epoch=3, log=log)
    log.epochs = (EpochEntry(LeaderEpoch(0), Offset(0)), EpochEntry(LeaderEpoch(5), Offset(5)))
    missed = log.recover()

    assert log.epochs == ((0, 0), (3, 4))
    assert (missed, log.synced) == (False, 5)


def test_what_was_not_synced_of_a_step_is_lost_as_a_whole() -> None:
    """The saves of a step are one frame of the journal: durable together, or not at all."""
    logs = MemoryLogs(Disk(1), lambda _: 0)
    kept, lost = TopicPartition("t", 0), TopicPartition("t", 1)
    logs.open(kept, "t")
    logs.save_epochs(kept, [EpochEntry(LeaderEpoch(1), Offset(0))])
    logs.save_reconciled_epochs({kept: LeaderEpoch(1)})
    logs.sync_saves()
    logs.open(lost, "t")
    logs.save_epochs(kept, [EpochEntry(LeaderEpoch(2), Offset(0))])
    logs.save_high_watermarks({kept: Offset(0)}, durable=True)
    logs.save_reconciled_epochs({kept: LeaderEpoch(2)})
    logs.delete(kept)
    logs.lose_saves()
    log = logs.disk.logs[kept]

    assert (log.epochs, log.reconciled, set(logs.disk.logs)) == (((1, 0),), 1, {kept})


def test_a_log_that_ends_below_its_checkpointed_high_watermark_is_missed() -> None:
    """A log that ends below its checkpointed HW makes its node register as unclean (M58)."""
    disk = Disk(1)
    log = disk.logs[TopicPartition("t", 0)] = grown(2, 2)
    log.hw_cached = log.hw_durable = 4
    log.cut(2)
    disk.recover(trusts_only_clean_stops=False)

    assert disk.is_unclean


def test_a_loss_that_was_reported_is_not_missed_again() -> None:
    """Once the controller registered the loss, the next start of the same log is clean, as with the services' disks."""
    disk = Disk(1)
    log = disk.logs[TopicPartition("t", 0)] = grown(2, 2)
    log.hw_cached = log.hw_durable = 4
    log.cut(2)
    disk.recover(trusts_only_clean_stops=False)
    disk.is_unclean = False
    disk.recover(trusts_only_clean_stops=False)

    assert not disk.is_unclean
    assert (log.hw_cached, log.hw_durable) == (2, 2)


def test_equal_hashes_mean_equal_logs() -> None:
    """Two logs with the same batches have the same hash at each end; another epoch or value changes all after it."""
    one, other = grown(1, 1, 1), grown(1, 1)
    same = one.hash_at(2) == other.hash_at(2)
    grown(1, epoch=1, log=other)

    assert same
    assert one.hash_at(3) != other.hash_at(3)
    assert one.hash_at(4) is None


def test_a_cut_within_a_batch_takes_the_whole_batch() -> None:
    """As in storage, the log ends at the boundary below the requested offset."""
    log = grown(2, 3)
    log.cut(4)

    assert (log.leo, log.synced) == (2, 0)


def test_a_log_that_lost_all_above_its_log_start_begins_again_there() -> None:
    """As in storage, deleted data never comes back, and the node reports that records are missing."""
    log = grown(2, 3)
    log.begin_flush()
    log.end_flush()
    log.log_start = 4
    log.recovery_point = 5
    log.lose_from(2)

    assert log.recover()
    assert (log.root, log.leo, log.headers) == (4, 4, [])


# Which messages arrive, in which order, and what the sender of a request gets for the others.


class Listener:
    """A party that keeps what it receives."""

    def __init__(self, party_id: int, network: Network) -> None:
        self.party_id, self.alive = party_id, True
        self.heard: list[Any] = []
        network.parties[party_id] = self

    def hand(self, action: Callable[..., None], *given: Any) -> None:
        """Run it at once."""
        if self.alive:
            action(*given)


def pair(*, lost_per_mille: int = 0) -> tuple[Timeline, Network, Listener, Listener]:
    """Two parties on a network with delays of 1 to 20 ms."""
    timeline = Timeline()
    network = Network(timeline, 1, delay_us=(1_000, 20_000), lost_per_mille=lost_per_mille, sticky=False)
    return timeline, network, Listener(1, network), Listener(2, network)


def connected(network: Network, one: Listener, other: Listener) -> Stream:
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
    Listener(2, network)
    timeline.run_until(200_000)

    assert (served, one.heard) == ([], [None])


# Draws depend on seed, purpose, key and number, and on nothing else.


def test_values_are_those_of_every_other_machine() -> None:
    """A seed in a report means the same run everywhere: these numbers never change."""
    draw = Draw(7, Purpose.NET, 3)

    assert [mix(1), mix2(1, 2)] == [6238072747940578789, 13608149317741381227]
    assert [draw.next() for _ in range(3)] == [6703874006564161244, 740099055954456542, 3980909856652977612]


def test_one_stream_of_draws_does_not_move_another() -> None:
    """More draws of one key leave all other keys unchanged."""
    alone = Draw(7, Purpose.NET, 3)
    busy, beside = Draw(7, Purpose.NET, 4), Draw(7, Purpose.NET, 3)
    for _ in range(10):
        busy.next()

    assert [alone.next() for _ in range(5)] == [beside.next() for _ in range(5)]


def test_bounds_are_kept() -> None:
    """`between` includes both ends, `below` excludes its bound, `sample` repeats nothing."""
    draw = Draw(1, Purpose.SHAPE)
    between = {draw.between(3, 5) for _ in range(200)}
    below = {draw.below(3) for _ in range(200)}
    sample = draw.sample(range(10), 10)

    assert between == {3, 4, 5}
    assert below == {0, 1, 2}
    assert sorted(sample) == list(range(10))
