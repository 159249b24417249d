"""`strandline topic`: what `describe --replicas` and `elect` show, and how `delete-records` asks and answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cli.cluster_images import connected_to, image, partition, view
from typer.testing import CliRunner

from strandline import client
from strandline.cli.app import app
from strandline.cli.ask.partitions import replica_rows
from strandline.cli.ask.topic_change import deleted_row
from strandline.client.offsets import FoundOffset
from strandline.core.types import LeaderEpoch, Offset


def held(node_id: int, leo: int, hw: int, *, state: str = "fetching", reason: str = "") -> client.DescribedReplica:
    """A node's report of its own replica."""
    own = client.ReplicaState(
        leo=leo,
        durable_leo=leo,
        high_watermark=hw,
        log_start_offset=3,
        fetch_state=state,
        reason=reason,
        leader=1,
        leader_epoch=4,
        epochs=(),
    )
    return client.DescribedReplica(node_id, "orders", 0, 1_000, own, None)


def test_each_replica_is_a_row_with_its_own_word_and_its_leaders() -> None:
    """LEO, HW and state are the replica's own, the lag is its leader's; a silent node and an unknown lag stay empty."""
    shown = image(partition(0, isr=(1, 2), observers=(9,)))
    led = [view(0, 120, 118, {2: 120, 3: 100, 9: None})]
    found = list(
        replica_rows(
            shown.topics, led, [held(1, 120, 118, state="leading"), held(3, 100, 90, state="failed", reason="damaged")],
            lambda part: part.topic == "orders" and part.partition == 0,
        )
    )  # fmt: skip

    assert [(row["node"], row["role"], row["leo"], row["high_watermark"], row["lag_records"]) for row in found] == [
        (1, "leader", 120, 118, 0),
        (2, "in sync", None, None, 0),
        (3, "out of sync", 100, 90, 20),
        (9, "observer", None, None, None),
    ]
    assert [row["state"] for row in found] == ["leading", "no answer", "failed: damaged", "no answer"]


def test_without_the_leaders_answer_no_lag_is_known() -> None:
    """A leader that does not answer leaves the lag empty, its own included."""
    (row, *_) = replica_rows(image(partition(0)).topics, [], [], lambda _: True)

    assert (row["role"], row["lag_records"]) == ("leader", None)


@pytest.mark.parametrize("words", [["--unclean", "--yes"], ["-p", "0"]])
def test_an_unclean_election_names_its_topic(words: list[str]) -> None:
    """An election that may lose records, or is for single partitions, must be confirmed by the topic's name."""
    ran = CliRunner().invoke(app, ["topic", "elect", "--bootstrap", "127.0.0.1:1", *words])

    assert ran.exit_code == 2
    assert "need a TOPIC" in ran.stderr


def test_an_unclean_election_asks_first() -> None:
    """Without a yes no request is sent to the cluster."""
    ran = CliRunner().invoke(app, ["topic", "elect", "orders", "--unclean", "--bootstrap", "127.0.0.1:1"], input="n\n")

    assert ran.exit_code == 1
    assert "acknowledged records of orders may be lost" in ran.stderr
    assert "no answer" not in ran.stderr


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [(None, 0), (client.ErrorCode.ELECTION_NOT_NEEDED, 0), (client.ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 1)],
)
def test_the_exit_code_says_whether_the_wanted_leaders_lead(
    monkeypatch: pytest.MonkeyPatch, code: client.ErrorCode | None, exit_code: int
) -> None:
    """One partition without the leader that was wanted makes it 1, and its row says why; that an election is not needed
    is no failure."""

    class MemoryAdmin:
        async def elect_leaders(self, wanted: list[tuple[str, int]], *, unclean: bool) -> list[client.Election]:
            refusal = None if code is None else client.Refusal(code, "why")
            return [client.Election("orders", 0, 1, 5, None), client.Election("orders", 1, 1, 5, refusal)]

    connected_to(MemoryAdmin(), monkeypatch)
    ran = CliRunner().invoke(app, ["topic", "elect", "--bootstrap", "127.0.0.1:1", "-o", "json"])

    assert ran.exit_code == exit_code
    assert [row["elected"] for row in json.loads(ran.stdout)] == [True, code is None]
    assert ("why" in ran.stdout) == (code is not None)


AT = ["--bootstrap", "127.0.0.1:1"]
ARGUMENTS = ["topic", "delete-records", "tides", "-p", "0", "--before", "4", *AT]
LATE = client.DeletedRecords(0, Offset(0), client.Refusal(client.ErrorCode.REQUEST_TIMED_OUT, "not yet; ask again"))


class RecordsAdmin:
    """A cluster whose partition 0 holds offsets 1 to 9, and the deletions requested from it."""

    def __init__(self) -> None:
        self.asked: list[dict[int, int]] = []

    async def list_offsets(self, name: str, indexes: Any, *, timestamp_ms: int) -> dict[int, Any]:
        offset = {client.EARLIEST: 1, client.LATEST: 10}[timestamp_ms]
        return {index: FoundOffset(Offset(offset), None, LeaderEpoch(1)) for index in indexes}

    async def delete_records(self, name: str, before: dict[int, int]) -> dict[int, client.DeletedRecords]:
        self.asked.append(before)
        return {index: client.DeletedRecords(index, Offset(offset), None) for index, offset in before.items()}


@pytest.fixture
def deleted(monkeypatch: pytest.MonkeyPatch) -> list[dict[int, int]]:
    """The deletions requested from a cluster."""
    return connected_to(RecordsAdmin(), monkeypatch).asked


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_nothing_is_deleted_without_a_yes(deleted: list[dict[int, int]], answer: str) -> None:
    """A no, and no answer at all, show what would be deleted, end with code 1 and delete nothing."""
    ran = CliRunner().invoke(app, ARGUMENTS, input=answer)

    assert ran.exit_code == 1
    assert "partition 0 of tides: 3 records, offsets 1 to 3 (high watermark 10)" in ran.stderr
    assert "nothing was deleted" in ran.stderr
    assert deleted == []


@pytest.mark.parametrize(("more", "answer"), [([], "y\n"), (["--yes"], "")])
def test_a_yes_deletes(deleted: list[dict[int, int]], more: list[str], answer: str) -> None:
    """After a yes, or with --yes, the offset goes to the cluster and the low watermark is shown."""
    ran = CliRunner().invoke(app, [*ARGUMENTS, *more, "-o", "json"], input=answer)

    assert ran.exit_code == 0
    assert '"low_watermark": 4' in ran.stdout
    assert deleted == [{0: 4}]


def test_latest_is_the_high_watermark_that_was_shown(deleted: list[dict[int, int]]) -> None:
    """Records that arrive after the confirmation stay: the number is sent to the cluster, not the word."""
    words = ["topic", "delete-records", "tides", "-p", "0,2", "--before", "latest", "--yes", *AT]
    ran = CliRunner().invoke(app, words)

    assert ran.exit_code == 0
    assert deleted == [{0: 10, 2: 10}]


def test_an_incomplete_deletion_ends_with_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that not every replica followed in is shown with its error."""

    class LateAdmin(RecordsAdmin):
        async def delete_records(self, name: str, before: dict[int, int]) -> dict[int, client.DeletedRecords]:
            return {0: LATE}

    connected_to(LateAdmin(), monkeypatch)
    ran = CliRunner().invoke(app, [*ARGUMENTS, "--yes", "-o", "json"])

    assert ran.exit_code == 1
    assert "REQUEST_TIMED_OUT: not yet; ask again" in ran.stdout


@pytest.mark.parametrize("before", ["-1", "x", "1.5", "earliest"])
def test_a_wrong_offset_is_refused_before_anybody_is_asked(deleted: list[dict[int, int]], before: str) -> None:
    """--before takes a number of at least 0, or latest; the message says so."""
    ran = CliRunner().invoke(app, ["topic", "delete-records", "tides", "-p", "0", f"--before={before}", "--yes", *AT])

    assert ran.exit_code == 2
    assert "a number of at least 0" in ran.stderr.replace("\n", " ").replace("│", "").replace("  ", " ")
    assert deleted == []


def test_a_row_says_whether_it_is_done() -> None:
    """The outcome in a row is a word, or the complete error."""
    assert deleted_row("tides", client.DeletedRecords(1, Offset(4), None))["outcome"] == "deleted"
    assert deleted_row("tides", LATE) == {
        "topic": "tides",
        "partition": 0,
        "low_watermark": 0,
        "deleted": False,
        "outcome": "REQUEST_TIMED_OUT: not yet; ask again",
    }
