"""`strandline rebalance`, `reassign`, `node drain|undrain|replace`, `topic alter --replication-factor`: plans first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from tests.cli.cluster_images import connected_to, image, node, partition
from typer.testing import CliRunner

from strandline import client, units
from strandline.cli.app import app
from strandline.cli.ask import drain, planning, reassign, throttle
from strandline.client.administer.admin_answers import DrainedNode, OngoingReassignment, Reassigned
from strandline.core.errors import ErrorCode, Refusal, Refused

MIB = 1 << 20


class MemoryAdmin:
    """A cluster that takes every reassignment it is not to refuse, and notes what was asked of it, in order."""

    def __init__(self, shown: client.DescribedCluster) -> None:
        self.image = shown
        self.asked: list[Any] = []
        self.requests: list[tuple[int, int | None, bool]] = []
        """Of each request for moves how many, at which rate, and whether it was only a check."""
        self.refused: dict[tuple[str, int], Refusal] = {}
        self.ongoing: list[list[OngoingReassignment]] = []
        self.sizes = {(part.partition, held): MIB for topic in shown.topics for part in topic.partitions
                      for held in part.replicas}  # fmt: skip
        self.sessions = 0
        self.written = 0.0
        self.at_a_time = 5

    async def metadata(self) -> client.DescribedCluster:
        return self.image

    async def describe_replicas(self, topics: Iterable[str] = ()) -> list[client.DescribedReplica]:
        return [client.DescribedReplica(held, "orders", index, size, None, None)
                for (index, held), size in self.sizes.items()]  # fmt: skip

    async def alter_partition_reassignments(
        self,
        targets: Mapping[tuple[str, int], Sequence[int] | None],
        *,
        planned_from: Mapping[tuple[str, int], Sequence[int]] | None = None,
        throttle_bytes_per_s: int | None = None,
        validate_only: bool = False,
        force: bool = False,
    ) -> list[Reassigned]:
        self.requests.append((len(targets), throttle_bytes_per_s, validate_only))
        if not validate_only:
            self.asked.append((targets, planned_from))
        return [Reassigned(*name, None, self.refused.get(name)) for name in targets]

    async def list_partition_reassignments(self) -> list[OngoingReassignment]:
        return self.ongoing.pop(0) if self.ongoing else []

    async def moves_per_node(self) -> int:
        return self.at_a_time

    async def drain_node(self, node_id: int, *, draining: bool = True) -> DrainedNode:
        self.asked.append(("drain" if draining else "undrain", node_id))
        return DrainedNode(0, 0)

    async def shutdown_node(self, node_id: int, *, node_epoch: int | None = None) -> list[object]:
        self.asked.append(("shutdown", node_id, node_epoch))
        return []

    async def unregister_node(self, node_id: int) -> None:
        self.sessions -= 1
        if self.sessions >= 0:
            raise Refused(ErrorCode.INVALID_REQUEST, f"node {node_id} still has a session; wait")
        self.asked.append(("unregister", node_id))

    async def elect_leaders(self) -> list[client.Election]:
        self.asked.append("elect")
        return []

    async def inflow(self, _: object, topics: Iterable[str], seconds: float = 0) -> dict[tuple[str, int], float]:
        """What clients write, in place of two looks at the ends of logs."""
        assert set(topics) == {"orders"}
        return {("orders", index): self.written for index in range(8)}

    async def create_topic(self, name: str, **given: Any) -> client.CreatedTopic:
        self.asked.append((name, given["assignments"]))
        return client.CreatedTopic(name, "id", len(given["assignments"]), 2)


def uneven() -> client.DescribedCluster:
    """Node 4 is new and holds nothing."""
    return image(*(partition(each) for each in range(8)), nodes=tuple(node(each) for each in (1, 2, 3, 4)))


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> MemoryAdmin:
    """The commands get this administrator, and wait for nothing."""
    memory = MemoryAdmin(uneven())
    connected_to(memory, monkeypatch)
    monkeypatch.setattr(drain, "_EVERY_S", 0.001)
    monkeypatch.setattr(throttle, "_LOOK_S", 0.001)
    for module in (planning, reassign):
        monkeypatch.setattr(module, "inflow", memory.inflow)
    return memory


def run(*words: str) -> Result:
    """The command at an address that is not asked."""
    return CliRunner().invoke(app, [*words, "--bootstrap", "127.0.0.1:1"])


def moves_of(ran: Result) -> dict[int, list[int]]:
    """By partition where its replicas go."""
    return {move["partition"]: move["after"] for move in json.loads(ran.stdout)["moves"]}


def ongoing(index: int, state: Any = "running", **given: Any) -> OngoingReassignment:
    """A move from 1,2,3 to 1,2,4."""
    base: dict[str, Any] = {
        "replicas": (1, 2, 4, 3),
        "adding": (4,),
        "removing": (3,),
        "target": (1, 2, 4),
        "waiting_for": {},
        "since_ms": 5,
    }
    return OngoingReassignment(topic="orders", partition=index, state=state, **(base | given))


def test_a_rebalance_shows_its_plan_and_changes_nothing(admin: MemoryAdmin) -> None:
    """Without --yes: moves with reasons, what each node holds before and after, sends and receives; nothing asked."""
    ran = run("rebalance", "-o", "json")
    shown = json.loads(ran.stdout)
    (grown,) = [row for row in shown["nodes"] if row["node"] == 4]
    copied = sum(4 in move["after"] for move in shown["moves"])

    assert ran.exit_code == 0
    assert "dry run" in ran.stderr
    assert (shown["submitted"], admin.asked) == (False, [])
    assert all(move["reasons"] for move in shown["moves"])
    assert grown["replicas_after"] == copied == grown["receives_bytes"] // MIB
    assert sum(row["sends_bytes"] for row in shown["nodes"]) == copied * MIB
    assert sum(row["replicas_after"] for row in shown["nodes"]) == sum(row["replicas_before"] for row in shown["nodes"])


def test_a_table_shows_the_moves_and_the_nodes(admin: MemoryAdmin) -> None:
    """People see the same in two tables, with sizes in their units."""
    ran = run("rebalance")
    grown = next(line.split() for line in ran.stdout.splitlines() if line.split()[:1] == ["4"])

    assert ran.exit_code == 0
    assert "node 4 0" in ran.stdout
    assert grown[:4] == ["4", "-", "0", "6"]
    assert "6.0 MiB" in " ".join(grown)


def test_yes_submits_what_was_planned_from_what(admin: MemoryAdmin) -> None:
    """With --yes the targets go to the controller together with the replicas that they were planned from."""
    ran = run("rebalance", "--yes", "-o", "json")
    ((targets, planned_from),) = admin.asked

    assert ran.exit_code == 0
    assert {index: list(after) for (_, index), after in targets.items()} == moves_of(ran)
    assert planned_from == dict.fromkeys(targets, (1, 2, 3))


def test_leaders_are_rebalanced_by_order_alone(admin: MemoryAdmin) -> None:
    """`rebalance leaders` copies nothing, and has the preferred replicas elected."""
    ran = run("rebalance", "leaders", "--yes", "-o", "json")

    assert ran.exit_code == 0
    assert all(sorted(after) == [1, 2, 3] for after in moves_of(ran).values())
    assert admin.asked[-1] == "elect"


def test_nothing_is_submitted_if_the_controller_refuses_any_of_it(admin: MemoryAdmin) -> None:
    """One refusal of the check ends the command with 2; it names the partition."""
    for index in range(8):
        admin.refused["orders", index] = Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no")
    ran = run("rebalance", "--yes")

    assert (ran.exit_code, admin.asked) == (planning.EXIT_REFUSED_PLAN, [])
    assert "nothing was changed: orders-" in ran.stderr


def test_what_runs_already_is_planned_from_its_target(admin: MemoryAdmin) -> None:
    """A partition that moves is planned from where it will be, whether its move runs or is queued."""
    running = partition(0, replicas=(1, 2, 4, 3), removing=(3,), adding=(4,))
    queued = partition(1, queued_target=(2, 4, 1))
    admin.image = image(running, queued, nodes=tuple(node(each) for each in (1, 2, 3, 4, 5)))
    shown = json.loads(run("node", "replace", "4", "5", "-o", "json").stdout)

    assert [move["before"] for move in shown["moves"]] == [[1, 2, 4], [2, 4, 1]]
    assert [move["after"] for move in shown["moves"]] == [[1, 2, 5], [2, 5, 1]]


def test_a_drain_sets_the_node_aside_and_submits_its_moves(admin: MemoryAdmin) -> None:
    """Only partitions of the node move; it is set aside before they are submitted."""
    ran = run("node", "drain", "3", "--yes", "-o", "json")

    assert ran.exit_code == 0
    assert admin.asked[0] == ("drain", 3)
    assert set(map(tuple, moves_of(ran).values())) == {(1, 2, 4)}


def test_a_drained_node_is_removed_once_it_is_empty_and_stopped(admin: MemoryAdmin) -> None:
    """--remove waits for the last move, then for the end of the session, and only then removes the node."""
    admin.ongoing = [[ongoing(0)], [ongoing(0)], []]
    admin.sessions = 2
    ran = run("node", "drain", "3", "--remove", "--yes")

    assert ran.exit_code == 0, ran.output
    assert admin.asked[2:] == [("shutdown", 3, 13), ("unregister", 3)]
    assert admin.ongoing == []


def test_a_drain_with_removal_prints_json_alone_on_stdout(admin: MemoryAdmin) -> None:
    """With -o json stdout is one document, and how far it is goes to stderr."""
    admin.ongoing = [[ongoing(0)], [ongoing(0)], []]
    ran = run("node", "drain", "3", "--remove", "--yes", "-o", "json")

    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["moves"]
    assert "removed node 3" in ran.stderr


def test_a_drain_that_cannot_end_is_refused_with_2_before_anything(admin: MemoryAdmin) -> None:
    """Three nodes for three replicas: the refusal names the partitions, and the node is not set aside."""
    admin.image = image(partition(0), partition(1))
    ran = run("node", "drain", "3", "--yes")

    assert (ran.exit_code, admin.asked) == (2, [])
    assert "orders-0, orders-1: 3 replicas need as many nodes, and 2 can hold them (1, 2)" in ran.stderr


def test_the_only_copy_on_a_dead_node_is_named(admin: MemoryAdmin) -> None:
    """A node that is away cannot give what no other node has."""
    alone = partition(0, leader=None, isr=(3,), replicas=(3,))
    admin.image = image(alone, nodes=(node(1), node(2), node(3, fenced=True)))
    ran = run("node", "drain", "3", "--yes")

    assert (ran.exit_code, admin.asked) == (2, [])
    assert "orders-0: only copy on node 3, which is away" in ran.stderr


@pytest.mark.parametrize(
    "words", [("node", "drain", "9"), ("node", "replace", "9", "4"), ("node", "replace", "1", "9")]
)
def test_an_unknown_node_is_refused(admin: MemoryAdmin, words: Sequence[str]) -> None:
    """The refusal names the node and where to look."""
    ran = run(*words, "--yes")

    assert (ran.exit_code, admin.asked) == (2, [])
    assert "node 9 is not registered" in ran.stderr


@pytest.mark.parametrize("yes", [True, False])
def test_undrain_names_and_cancels_the_moves_away_from_the_node(admin: MemoryAdmin, yes: bool) -> None:
    """Moves that take replicas from the node are named, and end with --yes; one that only adds elsewhere goes on."""
    admin.ongoing = [[ongoing(0), ongoing(1, replicas=(1, 2, 3, 4), removing=(), target=(1, 2, 3, 4))]]
    ran = run("node", "undrain", "3", *(["--yes"] if yes else []))

    assert ran.exit_code == 0
    assert ran.stdout.splitlines()[0] == "orders-0: running, to 1,2,4"
    assert ("would be cancelled" in ran.stdout) is not yes
    assert admin.asked == ([("undrain", 3), ({("orders", 0): None}, None)] if yes else [])


def test_undrain_of_an_unknown_node_is_refused(admin: MemoryAdmin) -> None:
    """The dry run, too, says that there is no such node."""
    ran = run("node", "undrain", "9")

    assert ran.exit_code == 1
    assert "node 9 is not registered" in ran.stderr


def test_a_replacement_takes_every_place_of_the_old_node(admin: MemoryAdmin) -> None:
    """The order stays, and nothing else moves."""
    ran = run("node", "replace", "2", "4", "-o", "json")

    assert ran.exit_code == 0
    assert set(map(tuple, moves_of(ran).values())) == {(1, 4, 3)}


def test_a_replication_factor_is_a_plan(admin: MemoryAdmin) -> None:
    """`topic alter --replication-factor` moves partitions of that topic; together with other changes it is refused."""
    ran = run("topic", "alter", "orders", "--replication-factor", "4", "-o", "json")

    assert set(map(tuple, moves_of(ran).values())) == {(1, 2, 3, 4)}
    assert run("topic", "alter", "orders", "-r", "2", "--partitions", "9").exit_code == 2
    assert run("topic", "alter", "birds", "-r", "2").exit_code == 1
    assert run("topic", "alter", "orders", "-r", "5", "--yes").exit_code == 2
    assert admin.asked == []


@pytest.mark.parametrize(("text", "code"), [("1:2,2:3", 0), ("1:2,", 2), ("1,2:x", 2), ("", 2)])
def test_a_topic_is_created_where_it_is_told_to_be(admin: MemoryAdmin, text: str, code: int) -> None:
    """`--assignment` names the nodes of each partition; what is not of that form is refused, as are two numbers."""
    ran = run("topic", "create", "birds", "--assignment", text)

    assert ran.exit_code == code
    assert admin.asked == ([("birds", {0: [1, 2], 1: [2, 3]})] if code == 0 else [])
    assert run("topic", "create", "birds", "--assignment", "1:2", "--partitions", "2").exit_code == 2


def test_a_saved_plan_is_read_back_and_is_kafkas_form(admin: MemoryAdmin, tmp_path: Path) -> None:
    """--save writes version 1 of kafka-reassign-partitions; submitted, the file gives the moves that were shown."""
    path = tmp_path / "plan.json"
    planned = moves_of(run("rebalance", "--save", str(path), "-o", "json"))
    entry = json.loads(path.read_text())["partitions"][0]
    ran = run("reassign", "--plan", str(path), "--yes", "-o", "json")

    assert (entry["topic"], len(entry["replicas"]), entry["log_dirs"]) == ("orders", 3, ["any"] * 3)
    assert ran.exit_code == 0, ran.output
    assert moves_of(ran) == planned
    assert len(admin.asked) == 1


def test_a_plan_for_an_older_state_is_refused_with_what_changed(admin: MemoryAdmin, tmp_path: Path) -> None:
    """A partition that has other replicas by now, and one that is gone, are named; nothing is submitted."""
    path = tmp_path / "plan.json"
    run("node", "replace", "2", "4", "--save", str(path))
    first = replace(uneven().topics[0].partitions[0], replicas=(1, 3, 4))
    admin.image = image(first, *uneven().topics[0].partitions[1:7], nodes=admin.image.nodes)
    ran = run("reassign", "--plan", str(path), "--yes")

    assert (ran.exit_code, admin.asked) == (2, [])
    assert "orders-0: planned when its replicas were 1,2,3, and now they are 1,3,4" in ran.stderr
    assert "orders-7: there is no such partition" in ran.stderr


def test_kafkas_own_file_is_taken(admin: MemoryAdmin, tmp_path: Path) -> None:
    """Without our field nothing is compared; what is there already is no move."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"version": 1, "partitions": [
        {"topic": "orders", "partition": 0, "replicas": [4, 1], "log_dirs": ["any", "any"]},
        {"topic": "orders", "partition": 1, "replicas": [1, 2, 3]},
    ]}))  # fmt: skip

    assert moves_of(run("reassign", "--plan", str(path), "-o", "json")) == {0: [4, 1]}


ENTRY = {"topic": "orders", "partition": 0, "replicas": [1]}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "must be"),
        (json.dumps({"version": 2, "partitions": [ENTRY]}), "must be"),
        (json.dumps({"version": 1, "partitions": [ENTRY | {"replicas": []}]}), "partitions[0]"),
        (json.dumps({"version": 1, "partitions": [ENTRY | {"replicas": [1, 1]}]}), "partitions[0]"),
        (json.dumps({"version": 1, "partitions": [ENTRY | {"log_dirs": ["/data"]}]}), "partitions[0]"),
        (json.dumps({"version": 1, "partitions": [ENTRY, ENTRY]}), "named twice"),
    ],
)
def test_a_file_of_another_form_is_refused(admin: MemoryAdmin, tmp_path: Path, document: str, said: str) -> None:
    """The refusal says which entry is wrong, and nothing is submitted."""
    path = tmp_path / "plan.json"
    path.write_text(document)
    ran = run("reassign", "--plan", str(path), "--yes")

    assert (ran.exit_code, admin.asked) == (2, [])
    assert said in " ".join(ran.stderr.replace("│", " ").split())


def test_the_status_says_how_much_is_copied(admin: MemoryAdmin) -> None:
    """Bytes of the new replica against those of the others, and what is waited for; exit code 1 while any is left."""
    admin.sizes[0, 4] = MIB // 4
    admin.ongoing = [
        [ongoing(0, waiting_for={4: "copies the log"}), ongoing(1, "queued", replicas=(1, 2, 3), adding=())]
    ]
    ran = run("reassign", "status", "-o", "json")
    first, second = json.loads(ran.stdout)

    assert ran.exit_code == 1
    assert (first["copied_bytes"], first["total_bytes"]) == (MIB // 4, MIB)
    assert first["waiting_for"] == {"4": "copies the log"}
    assert (second["state"], second["adding"], second["copied_bytes"]) == ("queued", [4], 0)


def test_the_status_of_an_idle_cluster_is_0(admin: MemoryAdmin) -> None:
    """Nothing is under way."""
    assert run("reassign", "status").exit_code == 0


def test_the_screen_shows_bar_rate_and_time_left() -> None:
    """What ended before counts as copied; half of the bytes at 1 MiB/s: the rest takes as long as it should."""
    row = {"state": "running", "copied_bytes": 2 * MIB, "total_bytes": 7 * MIB}
    line = str(reassign.screen([row], MIB, finished_bytes=3 * MIB).renderables[0])  # type: ignore[union-attr]

    assert line.split("   ") == [
        "██████████░░░░░░░░░░ 50 %", "1 running, 0 queued", "5.0 MiB of 10.0 MiB", "1.0 MiB/s", "5 s left"
    ]  # fmt: skip


def test_a_cancel_names_what_it_would_take_back_first(admin: MemoryAdmin) -> None:
    """Every move, or those that are named, and only with --yes; one that is refused makes it 2."""
    admin.ongoing = [[ongoing(0), ongoing(1)]]
    dry = run("reassign", "cancel")

    assert (dry.exit_code, admin.asked) == (0, [])
    assert "2 moves would be cancelled" in dry.stdout

    admin.refused["orders", 1] = Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing runs")
    ran = run("reassign", "cancel", "orders-0", "orders-1", "--yes")

    assert ran.exit_code == 2
    assert "1 move cancelled" in ran.stdout
    assert "orders-1: NO_REASSIGNMENT_IN_PROGRESS: nothing runs" in ran.stderr


# ---- throttle


COPYING = [
    ("rebalance",),
    ("node", "drain", "3"),
    ("node", "replace", "2", "4"),
    ("topic", "alter", "orders", "--replication-factor", "4"),
]


@pytest.mark.parametrize("words", COPYING)
def test_a_throttle_goes_with_every_plan(admin: MemoryAdmin, words: Sequence[str]) -> None:
    """The rate is part of each submission, and the plan says how long the node with most bytes to copy takes."""
    ran = run(*words, "--throttle", "1MiB/s", "--yes", "-o", "json")
    shown = json.loads(ran.stdout)
    most = max(max(row["receives_bytes"], row["sends_bytes"]) for row in shown["nodes"])

    assert {rate for _, rate, _ in admin.requests} == {MIB}
    assert (shown["throttle_bytes_per_s"], shown["least_seconds"]) == (MIB, most / MIB)
    assert "at 1.0 MiB/s the copies take at least" in run(*words, "--throttle", "1MiB").stdout


@pytest.mark.parametrize("words", COPYING)
@pytest.mark.parametrize("forced", [True, False])
def test_a_throttle_below_what_clients_write_has_to_be_forced(
    admin: MemoryAdmin, words: Sequence[str], forced: bool
) -> None:
    """It is refused before anything moves, with what clients write and the rate; --force submits it."""
    admin.written = MIB / 2
    ran = run(*words, "--throttle", "512KiB", "--yes", *(["--force"] if forced else []))

    assert (ran.exit_code, bool(admin.asked)) == ((0, True) if forced else (2, False))
    if not forced:
        assert "clients write " in ran.stderr
        assert "the throttle is 512 KiB/s" in ran.stderr


@pytest.mark.parametrize(("at_a_time", "exit_code"), [(1, 0), (2, 2)])
def test_a_plan_counts_what_the_controller_runs(admin: MemoryAdmin, at_a_time: int, exit_code: int) -> None:
    """A rate that one copy at a time keeps is refused where the controller runs two onto a node."""
    admin.written, admin.at_a_time = MIB / 2, at_a_time

    assert run("rebalance", "--throttle", "768KiB", "--yes").exit_code == exit_code


def test_copies_that_run_count_all() -> None:
    """A controller that lets eight copies run onto a node outruns its rate with all of them, not with five."""
    copies = [throttle.MovedCopy(("orders", index), 1, (2,)) for index in range(8)]
    written = {("orders", index): 10.0 for index in range(8)}

    assert set(throttle.never_ending(copies, written, 80)) == {1, 2}
    assert throttle.never_ending(copies, written, 80, 5) == {}


def test_only_as_many_copies_count_as_run_at_a_time() -> None:
    """Eight copies onto a node never run at once, so it is the five of them with most inflow that the rate must beat;
    a sender counts each copy."""
    copies = [throttle.MovedCopy(("orders", index), 1, (2,)) for index in range(8)]
    copies.append(throttle.MovedCopy(("birds", 0), 3, (4, 5)))
    written = {("orders", index): float(index) for index in range(8)} | {("birds", 0): 10.0}
    at_25, at_26 = (throttle.never_ending(copies, written, rate, 5) for rate in (25, 26))

    assert (sorted(at_25), sorted(at_26)) == ([1, 2], [])
    assert "25 B/s into what node 2 receives at a time" in at_25[2]
    assert sorted(throttle.never_ending(copies, written, 20, 5)) == [1, 2, 3]


def test_what_clients_write_is_measured_by_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """New records of the longest log, times the bytes of a record, by the time between; deletions count for nothing."""
    looks = [[(1, 0, 100, 0), (2, 0, 80, 0)], [(1, 0, 150, 100), (2, 0, 150, 100)]]

    class Looking:
        async def describe_replicas(self, topics: Iterable[str]) -> list[client.DescribedReplica]:
            assert topics == ["orders"]
            return [client.DescribedReplica(node_id, "orders", index, 10 * (leo - start),
                                            SimpleNamespace(leo=leo, log_start_offset=start), None)  # type: ignore[arg-type]
                    for node_id, index, leo, start in looks.pop(0)]  # fmt: skip

    clock = iter((5.0, 7.0))
    monkeypatch.setattr(throttle, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    written = asyncio.run(throttle.inflow(Looking(), ["orders", "orders"], seconds=0))  # type: ignore[arg-type]

    assert written == {("orders", 0): 50 * 10 / 2}


@pytest.mark.parametrize("text", ["20", "MB", "-1MB", "0B", "1 XB", "1e3MB"])
def test_what_is_no_rate_is_refused(admin: MemoryAdmin, text: str) -> None:
    """A rate has a number and a unit, and is above 0."""
    ran = run("rebalance", f"--throttle={text}", "--yes")

    assert (ran.exit_code, admin.asked) == (2, [])


@pytest.mark.parametrize(
    ("text", "size"), [("512B", 512), ("20MB", 20_000_000), ("1.5 GiB", 3 << 29), ("8kB", 8_000), ("1KiB", 1_024)]
)
def test_a_size_is_read(text: str, size: int) -> None:
    """Units of 1,000, and with an i of 1,024."""
    assert units.read_size(text) == size


def test_a_large_plan_is_sent_in_parts(admin: MemoryAdmin) -> None:
    """The controller gets some moves at a time; all are checked before the first is submitted."""
    most = planning.PER_REQUEST
    admin.image = image(*(partition(each) for each in range(2 * most + 9)), nodes=tuple(map(node, (1, 2, 3, 4))))
    ran = run("node", "replace", "2", "4", "--yes", "-o", "json")

    assert ran.exit_code == 0
    assert [(count, check) for count, _, check in admin.requests] == [
        (most, True), (most, True), (9, True), (most, False), (most, False), (9, False)
    ]  # fmt: skip
    assert all(set(targets) == set(planned_from) for targets, planned_from in admin.asked)


def test_the_throttle_of_what_is_under_way_is_changed(admin: MemoryAdmin) -> None:
    """`reassign throttle` sends the same targets at another rate, or none, and refuses one that is too low."""
    admin.written = 2.0 * MIB
    admin.ongoing = [[ongoing(0), ongoing(1, "queued")] for _ in range(4)]
    dry, low = run("reassign", "throttle", "5MiB"), run("reassign", "throttle", "4MiB", "--yes")
    before = list(admin.asked)
    done, lifted = run("reassign", "throttle", "5MiB", "--yes"), run("reassign", "throttle", "none", "--yes")

    assert [each.exit_code for each in (dry, low, done, lifted)] == [0, 2, 0, 0]
    assert "2 moves would be changed" in dry.stdout
    assert before == []
    assert [targets for targets, _ in admin.asked] == [{("orders", index): (1, 2, 4) for index in (0, 1)}] * 2
    assert [rate for _, rate, check in admin.requests if not check] == [5 * MIB, None]


def test_the_status_names_the_throttle_and_what_it_keeps_from_ending(admin: MemoryAdmin) -> None:
    """Each move has its rate; one that clients outrun is said never to end at it."""
    admin.written = 2.0 * MIB
    moves = [ongoing(0, throttle_bytes_per_s=MIB), ongoing(1, throttle_bytes_per_s=3 * MIB), ongoing(2)]
    admin.ongoing = [moves, moves]
    rows = json.loads(run("reassign", "status", "-o", "json").stdout)
    admin.ongoing = [moves, moves]
    table = run("reassign", "status").stdout

    assert [(row["throttle_bytes_per_s"], row["never_at_this_rate"]) for row in rows] == [
        (MIB, True), (3 * MIB, False), (None, False)
    ]  # fmt: skip
    assert "never at this rate: clients write 2.0 MiB/s into what node 4 receives" in " ".join(table.split())


def test_watching_in_json_is_a_line_for_each_change(admin: MemoryAdmin) -> None:
    """Equal moves are printed once, whatever their age; the last line is empty, and the exit code 0."""
    admin.ongoing = [[ongoing(0, since_ms=5)], [ongoing(0, since_ms=9)], [ongoing(0, waiting_for={4: "lags"})], []]
    ran = run("reassign", "status", "--watch", "--interval", "200ms", "-o", "json")
    lines = [json.loads(line) for line in ran.stdout.splitlines()]

    assert ran.exit_code == 0
    assert [len(rows) for rows in lines] == [1, 1, 0]
    assert lines[1][0]["waiting_for"] == {"4": "lags"}
    assert run("reassign", "status", "--watch", "-o", "csv").exit_code == 2
