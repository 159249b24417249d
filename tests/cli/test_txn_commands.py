"""`strandline txn ...` over an administrator that answers from memory: what is shown, changed and refused."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer
from tests.cli.cluster_images import TOPIC, connected_to, image, partition, view
from typer.testing import CliRunner, Result

from strandline import client
from strandline.cli.app import app
from strandline.cli.ask.health import hanging_now, judge
from strandline.cli.ask.txn import partition_of
from strandline.core.errors import ErrorCode, Refusal, Refused

PRODUCER = client.PartitionProducer(
    topic="tides-eu",
    partition=3,
    producer_id=7,
    producer_epoch=4,
    last_sequence=11,
    last_timestamp_ms=1_000,
    coordinator_epoch=None,
    open_since_offset=120,
)
DESCRIBED = client.DescribedTransaction(
    transactional_id="pay",
    producer_id=7,
    producer_epoch=4,
    state="Ongoing",
    timeout_ms=60_000,
    start_ms=None,
    partitions=(client.TopicPartition("tides-eu", 3),),
    coordinator=2,
)


class MemoryAdmin:
    """What a cluster with one transactional id answers, and what was changed in it."""

    def __init__(self) -> None:
        self.changed: list[tuple[Any, ...]] = []
        self.asked: list[dict[str, Any]] = []
        self.hangs = [client.HangingTransaction(PRODUCER, None, "no coordinator knows the producer id")]
        self.incomplete = False

    async def list_transactions(self, **filters: Any) -> list[client.ListedTransaction]:
        self.asked.append(filters)
        found = [
            client.ListedTransaction("pay", 7, "Ongoing", 1_000),
            client.ListedTransaction("ship", 8, "Empty", None),
        ]
        if self.incomplete:
            raise client.TransactionsIncomplete(found, {3: Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")})
        return found

    async def describe_transactions(self, ids: Any) -> list[client.DescribedTransaction]:
        return [replace(DESCRIBED, transactional_id=each) for each in ids]

    async def describe_producers(self, topic: str, partitions: Any) -> list[client.PartitionProducer]:
        assert (topic, list(partitions)) == ("tides-eu", [3])
        return [PRODUCER]

    async def open_transaction(self, topic: str, partition: int, *, start_offset: int) -> client.PartitionProducer:
        if start_offset != PRODUCER.open_since_offset:
            raise Refused(ErrorCode.INVALID_TXN_STATE, f"no open transaction began at {start_offset}")
        return PRODUCER

    async def abort_transaction(self, topic: str, partition: int, *, start_offset: int) -> client.PartitionProducer:
        self.changed.append((topic, partition, start_offset))
        return PRODUCER

    async def fence_transactional_id(self, transactional_id: str) -> tuple[int, int]:
        self.changed.append((transactional_id,))
        return 7, 6

    async def metadata(self) -> Any:
        return SimpleNamespace(topics=[SimpleNamespace(name=name) for name in ("tides-eu", "__group_state")])

    async def find_hanging_transactions(
        self, topic: str, partitions: Any, *, older_than_ms: int = 900_000
    ) -> list[client.HangingTransaction]:
        self.asked.append({"topic": topic, "partitions": partitions, "older_than_ms": older_than_ms})
        return self.hangs


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> MemoryAdmin:
    """The administrator that commands get."""
    return connected_to(MemoryAdmin(), monkeypatch)


def run(*words: object) -> Result:
    """One command."""
    return CliRunner().invoke(app, ["txn", *map(str, words), "-b", "127.0.0.1:1"])


def test_transactions_are_listed_with_their_age(admin: MemoryAdmin) -> None:
    """The filters go to the cluster, and an id without a transaction has no age."""
    found = run("list", "--state", "ongoing,empty", "--older-than", "90s", "--producer-id", 7, "-o", "json")

    assert found.exit_code == 0, found.output
    pay, ship = json.loads(found.stdout)
    assert (pay["transactional_id"], pay["state"], ship["open_seconds"]) == ("pay", "Ongoing", None)
    assert pay["open_seconds"] > 1e9
    assert admin.asked == [{"states": ["Ongoing", "Empty"], "producer_ids": [7], "longer_than_ms": 90_000}]


def test_a_list_that_may_lack_some_says_so(admin: MemoryAdmin) -> None:
    """What the others know is shown, and the exit code is 1."""
    admin.incomplete = True
    found = run("list")

    assert found.exit_code == 1
    assert "pay" in found.stdout
    assert "that node 3 coordinates may be missing" in found.output


def test_a_transactional_id_is_described(admin: MemoryAdmin) -> None:
    """With the partitions that have no marker yet; named twice, it is shown once."""
    found = run("describe", "pay", "pay", "-o", "json")

    (row,) = json.loads(found.stdout)
    assert (row["coordinator"], row["producer_epoch"], row["partitions"]) == (2, 4, ["tides-eu-3"])


def test_the_producers_of_a_partition_are_shown(admin: MemoryAdmin) -> None:
    """The last hyphen separates the topic from the number."""
    (row,) = json.loads(run("producers", "tides-eu-3", "-o", "json").stdout)

    assert (row["producer_id"], row["open_since_offset"], row["coordinator_epoch"]) == (7, 120, None)


def test_hanging_transactions_are_found_in_all_topics_of_users(admin: MemoryAdmin) -> None:
    """They are shown with why they hang, and the exit code is 1."""
    found = run("find-hanging", "-o", "json")

    assert found.exit_code == 1
    (row,) = json.loads(found.stdout)
    assert (row["start_offset"], row["transactional_id"]) == (120, None)
    assert row["why"] == "no coordinator knows the producer id"
    assert admin.asked == [{"topic": "tides-eu", "partitions": None, "older_than_ms": 900_000}]


def test_where_nothing_hangs_the_exit_code_is_0(admin: MemoryAdmin) -> None:
    """And the age and the partitions are as given."""
    admin.hangs = []
    found = run("find-hanging", "-t", "a:0,1", "--older-than", "5m")

    assert (found.exit_code, "no transaction hangs" in found.output) == (0, True)
    assert admin.asked == [{"topic": "a", "partitions": [0, 1], "older_than_ms": 300_000}]


@pytest.mark.parametrize(
    ("words", "changed", "outcome"),
    [
        (("abort", "tides-eu-3", "--start-offset", 120), ("tides-eu", 3, 120), "aborted"),
        (("fence", "pay"), ("pay",), "fenced"),
    ],
)
def test_a_change_is_shown_and_done_only_with_execute(
    admin: MemoryAdmin, words: tuple[object, ...], changed: tuple[Any, ...], outcome: str
) -> None:
    """Without it nothing is changed, and that is said."""
    dry = run(*words)
    assert (dry.exit_code, admin.changed) == (0, [])
    assert f"would be {outcome}" in dry.stdout
    assert "--execute applies it" in dry.output

    done = run(*words, "--execute")

    assert (done.exit_code, admin.changed) == (0, [changed])
    assert "would be" not in done.stdout


def test_an_abort_names_a_transaction_that_is_open(admin: MemoryAdmin) -> None:
    """At another offset there is none, and the dry run says so already."""
    found = run("abort", "tides-eu-3", "--start-offset", 121)

    assert found.exit_code == 1
    assert "no open transaction began at 121" in found.output


@pytest.mark.parametrize("text", ["tides", "-3", "tides-", "tides-x", "tides-3x"])
def test_a_partition_is_a_topic_and_a_number(text: str) -> None:
    """The message shows how one is written."""
    with pytest.raises(typer.BadParameter, match="orders-3"):
        partition_of(text)


async def test_a_status_asks_only_of_partitions_with_an_open_transaction(admin: MemoryAdmin) -> None:
    """What hangs makes the cluster unhealthy, and the sentence names the command that shows more."""
    calm, open_ = view(0, 9, 9, {1: 9}), replace(view(1, 9, 9, {1: 9}), oldest_open_producer_id=7)

    found = await hanging_now(cast(client.Admin, admin), [calm, open_])
    health = judge(image(partition(0)), hanging=found)

    assert [(asked["topic"], asked["partitions"]) for asked in admin.asked] == [(TOPIC, [1])]
    assert health.problems == (
        "hanging transactions hold readers back: tides-eu-3 (see `strandline txn find-hanging`)",
    )


async def test_a_status_is_shown_where_coordinators_do_not_answer() -> None:
    """Nothing is said to hang then."""

    class _Away(MemoryAdmin):
        async def find_hanging_transactions(
            self, topic: str, partitions: Any, *, older_than_ms: int = 0
        ) -> list[client.HangingTransaction]:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "away")

    views = [replace(view(1, 9, 9, {1: 9}), oldest_open_producer_id=7)]

    assert await hanging_now(cast(client.Admin, _Away()), views) == []
