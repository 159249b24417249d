"""What `topic describe --replicas` and `topic elect` show of the cluster's answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.cli.cluster_images import image, partition, view
from typer.testing import CliRunner

from strandline.cli import connect
from strandline.cli.app import app
from strandline.cli.ask.partitions import election_row, is_unmet, replica_rows
from strandline.client import DescribedReplica, Election, ErrorCode, Refusal, ReplicaState


def held(node_id: int, leo: int, hw: int, *, state: str = "fetching", reason: str = "") -> DescribedReplica:
    """A node's report of its own replica."""
    own = ReplicaState(
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
    return DescribedReplica(node_id, "orders", 0, 1_000, own, None)


def test_each_replica_is_a_row_with_its_own_word_and_its_leaders() -> None:
    """LEO, HW and state are the replica's own, the lag is its leader's; a silent node and an unknown lag stay empty."""
    shown = image(partition(0, isr=(1, 2), observers=(9,)))
    led = [view(0, 120, 118, {2: 120, 3: 100, 9: None})]
    found = list(
        replica_rows(
            shown, led, [held(1, 120, 118, state="leading"), held(3, 100, 90, state="failed", reason="damaged")],
            lambda topic, part: topic == "orders" and part.partition == 0,
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
    (row, *_) = replica_rows(image(partition(0)), [], [], lambda *_: True)

    assert (row["role"], row["lag_records"]) == ("leader", None)


@pytest.mark.parametrize(
    ("code", "unmet"),
    [(None, False), (ErrorCode.ELECTION_NOT_NEEDED, False), (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, True)],
)
def test_an_election_that_is_not_needed_is_no_failure(code: ErrorCode | None, unmet: bool) -> None:
    """Only a partition without the requested leader makes the exit code 1."""
    refusal = None if code is None else Refusal(code, "why")
    election = Election("orders", 0, 1, 5, refusal)

    assert is_unmet(election) is unmet
    assert election_row(election)["elected"] is (code is None)


@pytest.mark.parametrize("words", [["--unclean", "--yes"], ["-p", "0"]])
def test_an_unclean_election_names_its_topic(words: list[str]) -> None:
    """An election that may lose records, or is for single partitions, must be confirmed by the topic's name."""
    ran = CliRunner().invoke(app, ["topic", "elect", "--bootstrap", "127.0.0.1:1", *words])

    assert ran.exit_code == 2
    assert "name the TOPIC" in ran.stderr


def test_an_unclean_election_asks_first() -> None:
    """Without a yes no request is sent to the cluster."""
    ran = CliRunner().invoke(app, ["topic", "elect", "orders", "--unclean", "--bootstrap", "127.0.0.1:1"], input="n\n")

    assert ran.exit_code == 1
    assert "acknowledged records of orders may be lost" in ran.stderr
    assert "no answer" not in ran.stderr


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [(None, 0), (ErrorCode.ELECTION_NOT_NEEDED, 0), (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 1)],
)
def test_the_exit_code_says_whether_the_wanted_leaders_lead(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode | None, exit_code: int
) -> None:
    """One partition without the leader that was wanted makes it 1, and its row says why."""

    class MemoryAdmin:
        async def elect_leaders(self, wanted: list[tuple[str, int]], *, unclean: bool) -> list[Election]:
            refusal = None if code is None else Refusal(code, "why")
            return [Election("orders", 0, 1, 5, None), Election("orders", 1, 1, 5, refusal)]

    @asynccontextmanager
    async def opened(bootstrap: str) -> AsyncIterator[MemoryAdmin]:
        yield MemoryAdmin()

    monkeypatch.setattr(connect, "open_admin", opened)
    ran = CliRunner().invoke(app, ["topic", "elect", "--bootstrap", "127.0.0.1:1"])

    assert ran.exit_code == exit_code
    assert ("why" in ran.stdout) == (code is not None)
