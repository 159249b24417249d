"""Whether a cluster is reported as healthy, and what is printed when it is not."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any, cast

import pytest
from rich.console import Console
from tests.cli.cluster_images import held, image, node, partition, view

from strandline.cli.ask import cluster
from strandline.cli.ask.cluster import SeenCluster, document, replica_lags, screen, status_rows
from strandline.cli.ask.health import judge
from strandline.cli.ask.node import node_rows
from strandline.client import DescribedCluster, DescribedController, DescribedLeader
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import Durability, Rules


def seen(shown: DescribedCluster, *views: DescribedLeader) -> SeenCluster:
    """A cluster in the state that a command read."""
    return SeenCluster(image=shown, health=judge(shown), views=list(views))


def printed(shown: DescribedCluster, *, everything: bool = False) -> str:
    """The screen as text."""
    console = Console(width=200, file=StringIO(), record=True)
    console.print(screen(seen(shown), everything=everything))
    return console.export_text()


def test_all_in_sync_is_healthy() -> None:
    """A leader everywhere, every replica in the ISR, every node unfenced: nothing is reported."""
    health = judge(image(partition(0), partition(1)))

    assert health.healthy
    assert health.available


def test_a_missing_leader_comes_first() -> None:
    """A partition without a leader comes first, with the remedy."""
    health = judge(image(partition(0, leader=None, isr=(3,)), partition(1)))

    assert not health.available
    assert health.problems[0] == "no leader: orders-0 (start a node of their ISR or ELR)"


def test_an_election_that_lacks_a_log_names_its_node() -> None:
    """A living member waits to be compared (M65): the sentence names the awaited node, and the cost of not waiting."""
    nodes = (node(1, fenced=True), node(2), node(3, fenced=True))
    health = judge(image(partition(0, leader=None, isr=(2,), elr=(3,)), nodes=nodes))

    assert health.problems[1] == (
        "logs must be compared before one may lead: orders-0 lacks node 3 "
        "(start those nodes; `strandline topic elect --unclean` continues without them and may lose records)"
    )


def test_a_replica_that_refuses_to_cut_is_named() -> None:
    """A follower that keeps committed records its leader lacks is reported on the first screen (M69)."""
    why = "truncating to 4 would cut committed records below the HW 9"
    health = judge(image(partition(0, isr=(1, 2))), [held(0, 3, why), held(0, 2, "")])

    assert health.problems[0] == (
        f"stopped replicating: orders-0 on node 3: {why} (`strandline log verify` compares the replicas)"
    )


def test_under_min_isr_and_under_replicated_are_apart() -> None:
    """One in-sync replica of three is both; two of three with min ISR 2 is only under-replicated."""
    health = judge(image(partition(0, isr=(1,)), partition(1, isr=(1, 2))))

    assert health.problems == (
        "fewer in-sync replicas than min.insync.replicas: orders-0 (acks=all is refused meanwhile)",
        "under-replicated: orders-0, orders-1 (a replica is down or catching up)",
    )


def test_many_partitions_are_counted() -> None:
    """A sentence names four partitions and counts the others."""
    health = judge(image(*(partition(index, leader=None) for index in range(6))))

    assert "orders-3 and 2 more" in health.problems[0]


def test_a_fenced_node_is_named() -> None:
    """A registered node without heartbeats makes the cluster unhealthy even if it holds nothing."""
    health = judge(image(partition(0), nodes=(node(1), node(2), node(3, fenced=True))))

    assert health.problems[0].startswith("fenced: node 3")


def test_a_node_that_refuses_writes_is_named() -> None:
    """A nearly full disk makes the cluster unhealthy although every replica is in sync, and `node list` shows it."""
    shown = image(partition(0), nodes=(node(1), node(2, disk_nearly_full=True), node(3)))

    assert judge(shown).problems[0].startswith("disk nearly full, writes refused: node 2 (free space")
    assert [row["state"] for row in node_rows(shown)] == ["serving", "disk nearly full", "serving"]


def test_a_log_whose_retention_waits_is_named() -> None:
    """The screen says which log waits until when, and what to lower; the cluster is healthy all the same."""
    waits = replace(view(0, 120, 118, {2: 120, 3: 120}), retention_waits_until_ms=4_102_444_800_000)
    console = Console(width=200, file=StringIO(), record=True)
    console.print(screen(seen(image(partition(0)), waits)))
    text = console.export_text()

    assert f"{waits.topic}-0 waits until 2100-01-01T00:00:00Z, the time of a record; lower " in text
    assert text.startswith("healthy")


def test_own_topics_come_before_internal_ones() -> None:
    """With a node down, the first rows and the first names in a sentence are of topics that users made."""
    shown = image(partition(0, isr=(1,)))
    own = shown.topics[0]
    internal = replace(own, name="__group_state")
    shown = replace(shown, topics=(internal, own))

    assert [row["topic"] for row in status_rows(seen(shown), everything=True)] == [own.name, "__group_state"]
    assert judge(shown).problems[0].split(": ")[1].startswith(f"{own.name}-0, __group_state-0")


class NobodyDecides:
    """An admin whose controllers have no store; its nodes know the cluster."""

    metadata_age_ms = 9_000

    def __init__(self, known: DescribedCluster) -> None:
        self._known = known

    async def metadata(self, *, linearizable: bool = False) -> DescribedCluster:
        """What nodes know; a controller that must confirm refuses."""
        if linearizable:
            raise Refused(ErrorCode.NOT_CONTROLLER, "no decisions for 6 s")
        return self._known

    async def describe_partitions(self) -> list[DescribedLeader]:
        """No leader was asked for more."""
        return []

    async def authorizations(self) -> set[str]:
        """There is no TLS."""
        return {""}

    async def describe_controllers(self) -> tuple[DescribedController, ...]:
        """The store knows them, and does not answer."""
        raise Refused(ErrorCode.NOT_CONTROLLER, "no decisions for 7 s")


async def test_status_shows_what_nodes_know_while_nothing_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence comes first and once, the state and its age below it, and the cluster is not healthy."""
    monkeypatch.setattr("strandline.cli.ask.health.hanging_now", _none)
    found = await cluster._look(cast("Any", NobodyDecides(image(partition(0)))))

    assert found.health.problems == ("no decisions for 6 s",)
    assert (found.metadata_age_ms, found.image.topics[0].partitions[0].leader) == (9_000, 1)


async def _none(*given: object) -> tuple[()]:
    return ()


def test_status_joins_controller_and_leader() -> None:
    """A row has the committed state and the leader's offsets; a silent leader leaves them empty."""
    shown = seen(image(partition(0, isr=(1, 2)), partition(1)), view(0, 120, 118, {2: 120, 3: 100}))
    rows = status_rows(shown, everything=True)

    assert (rows[0]["leo"], rows[0]["high_watermark"], rows[0]["lag_text"]) == (120, 118, "3: 20")
    assert rows[0]["isr_text"] == "1,2 (not 3)"
    assert (rows[1]["leo"], rows[1]["lag_text"]) == (None, None)


def test_a_replica_that_never_fetched_has_no_lag() -> None:
    """A remote LEO that is unknown in this leader epoch is not shown as a number."""
    assert replica_lags(view(0, 120, 118, {2: None, 3: 130})) == {2: None, 3: 0}


def test_the_document_is_for_programs() -> None:
    """The json form has numbers and lists, and none of the table's texts."""
    found = document(seen(image(partition(0))), everything=True)

    assert found["healthy"] is True
    assert found["summary"]["partitions"] == 1
    assert "lag_text" not in found["partitions"][0]
    assert found["partitions"][0]["isr"] == [1, 2, 3]


def test_a_cluster_that_may_lose_records_says_so() -> None:
    """Under page-cache the first lines of the screen and a field of the document are the warning."""
    shown = replace(
        image(partition(0)), durability="page-cache", loss_warning=Rules(durability=Durability.PAGE_CACHE).loss_warning
    )

    assert "WARNING  durability=page-cache" in printed(shown)
    assert "power loss" in document(seen(shown))["warning"]
    assert document(seen(image(partition(0))))["warning"] is None


def test_the_screen_shows_what_is_wrong_and_all_of_it_on_request() -> None:
    """Whole partitions and serving nodes are counted, wrong ones shown; --all shows each, in both forms."""
    shown = image(partition(0, isr=(1, 2)), partition(1), nodes=(node(1), node(2), node(3, fenced=True)))
    short, whole = printed(shown), printed(shown, everything=True)
    indexes = [[row["partition"] for row in document(seen(shown), everything=all_)["partitions"]] for all_ in (0, 1)]

    assert "nodes       2 serving, 1 fenced (3)" in short
    assert "partitions  2 of 1 topic, 1 of them with every replica in sync" in short
    assert "nodes       2 serving (1, 2), 1 fenced (3)" in whole
    assert [text.count("orders ") for text in (short, whole)] == [1, 2]
    assert indexes == [[0], [0, 1]]


def test_the_screen_does_not_grow_with_the_cluster() -> None:
    """Of very many wrong partitions the screen shows some, counts the others, and names --all."""
    text = printed(image(*(partition(index, isr=(1, 2)) for index in range(500))))

    assert len(text.splitlines()) < 40
    assert "and 480 more; --all shows every partition" in text


def test_node_rows_count_what_a_node_holds() -> None:
    """A node's row says how many partitions it leads, holds, and is in sync for."""
    rows = node_rows(image(partition(0), partition(1, leader=2, isr=(1, 2))))

    assert [(row["leads"], row["replicas"], row["in_isr"]) for row in rows] == [(1, 2, 2), (1, 2, 2), (0, 2, 1)]


MOVING = partition(0, replicas=(4, 5, 6, 1, 2, 3), adding=(4, 5, 6), removing=(1, 2, 3), original=(1, 2, 3))
"""Runs a move to three new nodes, of which none is in the ISR yet."""


def test_replicas_that_a_move_adds_are_not_missing() -> None:
    """A partition is whole while its original replicas are in sync, and short when one of these is out."""
    short = replace(MOVING, isr=(1, 2), partition=1)

    assert judge(image(MOVING)).healthy
    assert judge(image(MOVING, short)).problems == ("under-replicated: orders-1 (a replica is down or catching up)",)


def test_the_screen_says_how_many_moves_there_are() -> None:
    """Running and queued ones are counted apart, for people and programs; without any there is no line."""
    waiting = partition(1, queued_target=(1, 2, 4))
    counts = document(seen(image(MOVING, waiting)))["summary"]

    assert "moves       1 running, 1 queued (strandline reassign status)" in printed(image(MOVING, waiting))
    assert (counts["moves_running"], counts["moves_queued"]) == (1, 1)
    assert "moves" not in printed(image(partition(0)))


def test_the_isr_of_a_moving_partition_names_who_is_missing_and_who_is_added() -> None:
    """Node 3 is missed; 4 has joined, 5 and 6 are still being added."""
    (row,) = status_rows(seen(image(replace(MOVING, isr=(4, 1, 2)))), everything=True)

    assert row["isr_text"] == "4,1,2 (not 3) (adding 5,6)"
