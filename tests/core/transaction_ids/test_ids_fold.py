"""The state of transactional ids is the fold of their log (G3, I31), and which events it reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings, strategies as st
from ids_alone import ID, P0, P1, PLACE, Q0, IdsAlone

from strandline.core.coordinator.machine import Key, Record, Reports
from strandline.core.errors import ErrorCode
from strandline.core.log.effects import Effect, Emit
from strandline.core.transactions.machine import TransactionMachine
from strandline.core.transactions.messages import ProducerIdentity
from strandline.core.transactions.records import PREPARED, TxnState
from strandline.core.transactions.reporting import TransactionReporting
from strandline.core.types import LeaderEpoch

NAMES = (ID, "other")


steps = st.lists(
    st.tuples(
        st.sampled_from("init go-on begin add commit abort late answer refuse tick wait fail-over drop".split()),
        st.sampled_from(NAMES),
        st.integers(0, 3),
    ),
    max_size=60,
)


def _do(alone: IdsAlone, verb: str, name: str, number: int) -> None:
    value = alone.machine.ids.get(name)
    by = tuple(value.identity) if value else (1, 0)
    match verb:
        case "init":
            alone.init(name=name)
        case "go-on":
            alone.init(by, name=name)
        case "begin":
            alone.add((P0, P1, Q0)[number % 3], by=by, name=name)
        case "add":
            alone.add(P0, Q0, by=by, name=name)
        case "commit" | "abort":
            alone.end(by, commit=verb == "commit", name=name)
        case "late":
            alone.end((by[0], by[1] - 1), commit=bool(number % 2), name=name)
        case "answer":
            alone.answer((P0, P1, Q0)[number % 3])
        case "refuse":
            alone.answer(refused=ErrorCode.NETWORK_EXCEPTION)
        case "tick":
            alone.tick(200)
        case "wait":
            alone.tick(25_000 * number)
        case "fail-over":
            alone.fail_over()
        case "drop" if alone.topics.by_name("q"):
            alone.topics.drop("q")


def _swept(log: list[Record], begin: int) -> list[Record]:
    live: dict[Key, Record] = {record.key: record for record in log[:begin] if record.value is not None}
    later = {record.key for record in log[begin:]}
    return [record for key, record in live.items() if key not in later] + log[begin:]


@settings(max_examples=200, deadline=None)
@given(steps, st.integers(0, 60), st.booleans())
def test_state_is_the_fold_of_the_log(history: list[tuple[str, str, int]], begin: int, exhausted: bool) -> None:
    """Live state equals that of a machine that loads the log, or what a sweep left of it; an epoch never goes back, and
    after the markers are answered nothing is left in a Prepare state."""
    alone = IdsAlone()
    if exhausted:
        alone.at(32_764)
    for step in history:
        _do(alone, *step)
        assert all(0 <= value.identity.producer_epoch <= 32_767 for value in alone.machine.ids.values())
        assert all(bool(value.partitions) is (value.start_ms is not None) for value in alone.machine.ids.values())
    assert alone.loaded().ids == alone.machine.ids
    whole, alone.log = alone.log, _swept(alone.log, min(begin, len(alone.log)))
    assert alone.loaded().ids == alone.machine.ids
    alone.log = whole
    _identities_only_rise(whole)
    alone.fail_over()
    alone.tick()
    alone.answer()
    alone.tick()
    assert not [value for value in alone.machine.ids.values() if value.state in PREPARED]


def _identities_only_rise(log: list[Record]) -> None:
    newest: dict[Key, ProducerIdentity] = {}
    for record in log:
        value = record.value
        if value is None:
            continue
        identity, state = value.identity, value.state  # type: ignore[attr-defined]
        before = newest.get(record.key)
        if before is not None and before.producer_id == identity.producer_id:
            assert before.producer_epoch <= identity.producer_epoch
        assert identity.producer_epoch < 32_767 or state in {TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT}
        newest[record.key] = identity


# Which state events a coordinator of transactions leaves.


@dataclass
class Reported(IdsAlone):
    """The machine with its reports."""

    reports: Reports = field(default_factory=lambda: Reports(PLACE, LeaderEpoch(7)))

    def loaded(self) -> TransactionMachine:
        self.reports = Reports(PLACE, LeaderEpoch(7))
        machine = TransactionMachine(self.reports, self.supply, self.settings, TransactionReporting(self.reports))
        for record in self.log:
            machine.apply(record)
        machine.excuse(self.context)
        return machine

    def rows(self) -> list[dict[str, Any]]:
        """What was reported since the last look, with its place."""
        left: list[Effect] = []
        self.reports.leave(left)
        return [{"tp": each.tp, **each.event._asdict()} for each in left if isinstance(each, Emit)]

    def causes(self) -> list[tuple[str | None, str]]:
        """Id and cause of what was reported since the last look."""
        return [(row["transactional_id"], row["cause"]) for row in self.rows()]


def test_short_commits_are_counted_in_one_row() -> None:
    """Thousands may commit in a second; of each no row is made, and identities are rows of their own."""
    alone = Reported()
    identity = alone.init()
    assert alone.causes() == [(ID, "init")]
    for _ in range(3):
        alone.add(P0, by=identity)
        identity = alone.end(identity)
        alone.answer()
        alone.tick(after_ms=200)
    assert alone.rows() == []

    alone.tick(after_ms=10_000)
    (row,) = alone.rows()
    assert (row["cause"], row["transactional_id"], row["n_coalesced"]) == ("committed", None, 3)


def test_a_long_transaction_is_reported_from_its_beginning_to_its_end() -> None:
    """Its beginning a second late, with its time; once a minute that it is open; the decision and the last marker."""
    alone = Reported()
    identity = alone.init(timeout_ms=600_000)
    began_us = alone.context.unix_ms * 1_000
    alone.add(P0, P1, by=identity)
    alone.rows()
    alone.tick(after_ms=999)
    assert alone.rows() == []
    alone.tick(after_ms=1)
    (row,) = alone.rows()
    assert (row["cause"], row["old_state"], row["new_state"]) == ("begun", "Empty", "Ongoing")
    assert (row["txn_start_us"], row["n_partitions"], row["timeout_ms"]) == (began_us, 2, 600_000)
    assert (row["tp"], row["producer_id"], row["producer_epoch"]) == (PLACE, 100, 0)
    assert (row["coordinator_epoch"], row["leader_epoch"]) == (7, 7)
    for _ in range(125):
        alone.tick(after_ms=1_000)
    alone.end(identity)
    alone.answer()
    rows = alone.rows()
    assert [row["cause"] for row in rows] == ["repeated", "repeated", "committed", "completed"]
    assert [row["new_state"] for row in rows[2:]] == ["PrepareCommit", "CompleteCommit"]


def test_what_ends_badly_is_always_reported() -> None:
    """An abort, a time-out, and a producer that is fenced, whatever time they took, each with its end."""
    alone = Reported()
    identity = alone.begun()
    alone.rows()
    second = alone.end(identity, commit=False)
    alone.answer()
    assert alone.causes() == [(ID, "aborted"), (ID, "completed")]

    alone.add(P0, by=second)
    alone.init()
    alone.answer()
    assert alone.causes() == [(ID, "fenced"), (ID, "completed")]

    alone.add(P0, by=alone.init())
    alone.tick(after_ms=61_000)
    (timeout,) = [row for row in alone.rows() if row["cause"] == "timeout"]
    assert (timeout["old_state"], timeout["new_state"], timeout["n_partitions"]) == ("Ongoing", "PrepareAbort", 1)


def test_a_refused_marker_is_reported_once_at_its_partition() -> None:
    """It is sent again and again, and refused as often."""
    alone = Reported()
    alone.end(alone.begun())
    alone.rows()
    for _ in range(5):
        alone.answer(refused=ErrorCode.INVALID_PRODUCER_EPOCH)
        alone.tick(after_ms=300)
    (row,) = [row for row in alone.rows() if row["cause"] == "marker_refused"]
    assert (row["tp"], row["transactional_id"], row["leader_epoch"], row["coordinator_epoch"]) == (P0, ID, None, 7)


def test_what_is_open_in_a_log_that_is_loaded_is_reported() -> None:
    """The coordinator before may have said so, or not."""
    alone = Reported()
    alone.begun()
    alone.fail_over()
    alone.tick()
    alone.tick(after_ms=1_000)

    assert alone.causes() == [(ID, "begun")]


def test_an_id_that_is_forgotten_is_reported() -> None:
    """The event has the identity that the id had."""
    alone = Reported()
    alone.init()
    alone.rows()
    alone.tick(after_ms=8 * 86_400_000)
    (row,) = alone.rows()
    assert (row["cause"], row["new_state"], row["producer_id"]) == ("expired", None, 100)
