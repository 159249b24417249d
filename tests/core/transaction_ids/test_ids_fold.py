"""The state after any history is the fold of its log, also of one that a sweep wrote again (G3, I31)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from ids_alone import ID, P0, P1, Q0, IdsAlone

from strandline.core.coordinator.machine import Key, Record
from strandline.core.errors import ErrorCode
from strandline.core.transactions.messages import ProducerIdentity
from strandline.core.transactions.records import PREPARED, TxnState

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
        case "drop":
            alone.topics.counts.pop("q", None)


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
