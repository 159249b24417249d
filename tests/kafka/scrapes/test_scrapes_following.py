"""Scrapes between the decisions of a metadata log: whose samples they are, within which bounds, and what voids them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strandline.core.types import LeaderEpoch, NodeId, PartitionEpoch, TopicPartition
from strandline.export.destination import LocalDirectory
from strandline.export.reading import find_files, read_rows
from strandline.export.verify import Completeness, verify
from strandline_kafka.metadata.state import Broker, ClusterState, Partition
from strandline_kafka.scrapes.following import Following
from strandline_kafka.scrapes.series import Mapping, Reader, Scrapes

TP = TopicPartition("11111111-2222-3333-4444-555555555555", 0)
NODES = tuple(map(NodeId, (1, 2, 3)))
ALWAYS = (0, 1 << 62)
Row = dict[str, Any]


def scraped(ends: dict[int, dict[int, int]]) -> Scrapes:
    """Ends of t-0 by broker and second."""
    reader = Reader(Mapping())
    for node, several in ends.items():
        for at_s, end in several.items():
            reader.take_text(
                "x", [f'kafka_log_log_logendoffset{{broker="{node}",topic="t",partition="0"}} {end} {at_s}.{node}']
            )
    return reader.found()


def state(leader: int | None = 1, epoch: int = 0, isr: tuple[int, ...] = (1, 2, 3), down: int = 0) -> ClusterState:
    found = ClusterState(topics={TP.topic_id: "t"}, ids={"t": TP.topic_id})
    members = tuple(map(NodeId, isr))
    held = Partition(
        TP, NODES, members, (), (), (), (), None if leader is None else NodeId(leader), LeaderEpoch(epoch),
        PartitionEpoch(epoch), False,
    )  # fmt: skip
    found.put(held)
    for node in NODES:
        found.brokers[node] = Broker(
            broker_id=node, broker_epoch=1, rack=None, fenced=node == down, shutting_down=False
        )
    return found


def rows_of(out: Path, kind: str = "REPLICA_SAMPLE") -> list[Row]:
    place = LocalDirectory(out)
    found = [row for file in find_files(place, "c") for row in read_rows(file.path, place.get(f"c/v1/{file.path}"))]
    return sorted((r for r in found if r["event_type"] == kind), key=lambda r: (r["ts_wall_us"], r["seq"]))


def followed(
    out: Path, scrapes: Scrapes, *states: tuple[float, ClusterState], window: tuple[int, int] = ALWAYS
) -> Following:
    """Pass all states, each up to its time in seconds; a state of another epoch begins where the one before ends."""
    following = Following(scrapes, LocalDirectory(out), "c", window)
    began_s, epoch = 0.0, -1
    for until_s, held in states:
        partition = held.partitions[TP]
        if partition.leader_epoch != epoch:
            following.elected(partition, round(began_s * 1000))
            epoch = int(partition.leader_epoch)
        following.pass_until(round(until_s * 1000), held)
        began_s = until_s
    following.end(round(states[-1][0] * 1000), states[-1][1])
    return following


STEADY = {node: {at: at * 10 for at in range(100, 200, 10)} for node in (1, 2, 3)}
"""Ten records a second, everybody level; a period of 10 s."""


def test_a_follower_is_within_two_periods_of_its_leader(tmp_path: Path) -> None:
    """The lower end is that of a scrape a period before, the upper one that of a period after, at most the leader's."""
    following = followed(tmp_path, scraped(STEADY), (300, state()))
    of_2 = {row["ts_wall_us"] // 1_000_000: row for row in rows_of(tmp_path) if row["replica_id"] == 2}
    # Node 2 is scraped 0.1 s behind node 1, so that of its scrapes that at 130.2 is the last before 140.1 - 10.
    assert (of_2[140]["leader_leo"], of_2[140]["leo"]) == (1400, 1200)
    assert (of_2[140]["ext"]["lag_low"], of_2[140]["ext"]["lag_high"]) == ("0", "200")
    assert "leo" not in of_2[100] and "lag_high" not in of_2[100]["ext"]
    assert following.bounds.looks == 2 * 8 and following.bounds.widest == 200


def test_a_follower_that_stands_still_is_known_exactly(tmp_path: Path) -> None:
    """Where the log of a follower is equal before and after, its lag is one number."""
    ends = STEADY | {3: dict.fromkeys(STEADY[3], 1000)}
    followed(tmp_path, scraped(ends), (300, state(isr=(1, 2))))
    of_3 = next(row for row in rows_of(tmp_path) if row["replica_id"] == 3 and row["leader_leo"] == 1500)
    assert (of_3["leo"], of_3["ext"]["lag_low"], of_3["ext"]["lag_high"]) == (1000, "500", "500")
    assert (of_3["in_isr"], of_3["expected_state"]) == (False, "catching_up")


def test_what_no_scrape_says_is_null(tmp_path: Path) -> None:
    """There is no high watermark, no byte, no time of a fetch; the leader's own row has its end."""
    followed(tmp_path, scraped(STEADY), (300, state()))
    own = next(row for row in rows_of(tmp_path) if row["replica_id"] == 1)
    assert (own["node_id"], own["leo"], own["leader_leo"]) == (1, 1000, 1000)
    nothing = {
        "hw", "acked_offset", "log_start", "durable_leo", "leo_bytes", "hw_bytes", "last_fetch_us",
        "last_caught_up_us", "in_maximal_isr",
    }  # fmt: skip
    assert not nothing & own.keys()
    assert own["ext"] == {"clock": "wall", "observer": "prometheus"}


def test_a_change_of_leader_voids_what_touches_it(tmp_path: Path) -> None:
    """A scrape whose answer may be of either leader makes no sample, and is a gap; nothing is carried over a cut."""
    ends = STEADY | {2: {at: 5 * at for at in STEADY[2]}}
    done = followed(tmp_path, scraped(ends), (145, state()), (300, state(leader=2, epoch=1, isr=(2, 3))))
    leaders = [(r["ts_wall_us"] // 1_000_000, r["node_id"], r["leader_epoch"]) for r in rows_of(tmp_path)]
    assert sorted({*leaders}) == [
        *((at, 1, 0) for at in (100, 110, 120, 130)), *((at, 2, 1) for at in (150, 160, 170, 180, 190)),
    ]  # fmt: skip
    assert done.voided == {"its leader epoch began or ended meanwhile": 1}
    first = next(row for row in rows_of(tmp_path) if row["replica_id"] == 3 and row["leader_epoch"] == 1)
    assert "leo" not in first
    (gap,) = rows_of(tmp_path, "EXPORT_GAP")
    assert (gap["node_id"], gap["dropped_by_type"]) == (1, {"REPLICA_SAMPLE": 3})


def test_a_topic_that_is_made_again_bounds_no_sample_of_the_first(tmp_path: Path) -> None:
    """What is scraped under a name behind the deletion of its topic is of another log."""
    ends = {node: {at: end if at < 145 else 3 for at, end in several.items()} for node, several in STEADY.items()}
    following = Following(scraped(ends), LocalDirectory(tmp_path), "c", ALWAYS)
    held = state()
    following.elected(held.partitions[TP], 0)
    following.pass_until(145_000, held)
    following.deleted(held.partitions[TP], 145_000)
    following.end(300_000, ClusterState())
    assert following.voided == {"its leader epoch began or ended meanwhile": 1}
    assert max(row["ts_wall_us"] // 1_000_000 for row in rows_of(tmp_path)) == 130
    (of_2,) = (r for r in rows_of(tmp_path) if r["replica_id"] == 2 and r["leader_leo"] == 1300)
    assert (of_2["ext"]["lag_low"], of_2["ext"]["lag_high"]) == ("0", "200")


def test_scrapes_that_failed_are_a_gap(tmp_path: Path) -> None:
    """A leader that was not scraped twice misses two looks at three replicas."""
    ends = STEADY | {1: {at: end for at, end in STEADY[1].items() if at not in (140, 150)}}
    done = followed(tmp_path, scraped(ends), (300, state()))
    assert done.voided == {"its leader was not scraped": 2}
    (gap,) = rows_of(tmp_path, "EXPORT_GAP")
    assert (gap["node_id"], gap["dropped_by_type"]) == (1, {"REPLICA_SAMPLE": 6})
    found = verify(LocalDirectory(tmp_path), "c")
    assert {one.node_id: one.completeness for one in found.incarnations} == {1: Completeness.GAPS_REPORTED}


def test_without_a_leader_there_is_no_sample(tmp_path: Path) -> None:
    """Scrapes of a partition that nobody leads say nothing that a sample could be of."""
    followed(tmp_path, scraped(STEADY), (300, state(leader=None)))
    assert rows_of(tmp_path) == []


def test_a_broker_that_is_down_is_expected_to_be(tmp_path: Path) -> None:
    """What is expected of a replica is by the registration of its broker at that moment."""
    followed(tmp_path, scraped(STEADY), (300, state(isr=(1, 2), down=3)))
    assert {row["expected_state"] for row in rows_of(tmp_path) if row["replica_id"] == 3} == {"down"}


def test_logs_where_the_metadata_log_has_none_are_named(tmp_path: Path) -> None:
    """A broker that has a log of a partition which is placed elsewhere has the wrong number."""
    done = followed(tmp_path, scraped(STEADY | {9: STEADY[2]}), (300, state()))
    assert done.misplaced == {("t", 0, 9)}
    assert done.said()["misplaced"] == 1


@pytest.mark.parametrize(("from_s", "to_s", "looks"), [(0, 120, 2), (130, 151, 3), (300, 400, 0)])
def test_a_window_has_the_scrapes_within_it(tmp_path: Path, from_s: int, to_s: int, looks: int) -> None:
    """Scrapes outside the window bound those within, and are no samples."""
    window = (from_s * 1_000_000, to_s * 1_000_000)
    followed(tmp_path, scraped(STEADY), (300, state()), window=window)
    assert len({row["sample_id"] for row in rows_of(tmp_path)}) == looks
