"""Client histories: a small one for each anomaly, which is found, and tricky ones without an anomaly."""

from __future__ import annotations

import pytest

from strandline_sim.checks.history import EndAnswer, Operation, Place, Read, Seek, Send, SendOutcome, Value, anomalies

OK, DEFINITE, INDEFINITE = SendOutcome.OK, SendOutcome.DEFINITE, SendOutcome.INDEFINITE


def send(
    seq: int,
    offset: int | None = None,
    *,
    at: float | None = None,
    took: float = 0.5,
    outcome: SendOutcome = OK,
    client: str = "p",
    partition: int = 0,
) -> Send:
    """A send of value ``seq``, invoked at second ``seq`` unless given otherwise."""
    began = float(seq) if at is None else at
    return Send(
        value=Value(client, seq),
        partition=partition,
        invoked_s=began,
        completed_s=None if outcome is INDEFINITE else began + took,
        outcome=outcome,
        offset=offset,
    )


def read(offset: int, seq: int, *, at: float = 100.0, by: str = "c", client: str = "p") -> Read:
    """A consumer received value ``seq`` at ``offset``."""
    return Read(consumer=by, place=Place(0, offset), value=Value(client, seq), at_s=at)


def seek(offset: int, by: str = "c") -> Seek:
    """A consumer goes to ``offset``."""
    return Seek(consumer=by, place=Place(0, offset))


def end(offset: int, at: float, took: float = 0.5) -> EndAnswer:
    """A leader returned the partition's end."""
    return EndAnswer(partition=0, offset=offset, invoked_s=at, completed_s=at + took)


def names(*operations: Operation) -> set[str]:
    """The names of all anomalies found."""
    return {anomaly.name for anomaly in anomalies(operations)}


TWO = (send(0, 0), send(1, 1), seek(0), read(0, 0), read(1, 1))


@pytest.mark.parametrize(
    ("name", "history"),
    [
        ("lost-write", [send(0, 0), send(1, 1), seek(0), read(0, 7), read(1, 1)]),
        ("lost-write", [send(0, 0), send(1, 1), seek(1), read(1, 1)]),
        ("inconsistent-offsets", [*TWO, seek(0, "d"), read(0, 9, by="d"), send(9, outcome=INDEFINITE)]),
        ("duplicate", [*TWO, read(2, 0)]),
        ("unseen", [send(0, 0), send(1, 1), seek(0), read(0, 0)]),
        ("phantom", [*TWO, send(2, outcome=DEFINITE), read(2, 2)]),
        ("phantom", [*TWO, read(2, 2)]),
        ("poll-skip", [*TWO, send(2, 2), seek(0, "d"), read(0, 0, by="d"), read(2, 2, by="d"), read(2, 2)]),
        ("nonmonotonic-poll", [*TWO, read(0, 0)]),
        ("nonmonotonic-send", [send(0, 1), send(1, 0), seek(0), read(0, 1), read(1, 0)]),
        ("realtime", [send(0, 1), send(1, 0, client="q"), seek(0), read(0, 1, client="q"), read(1, 0)]),
        ("early-read", [send(0, 0, at=50.0), seek(0), read(0, 0, at=49.0)]),
        ("end-regress", [*TWO, end(2, at=10.0), end(1, at=11.0)]),
    ],
)
def test_each_anomaly_is_found(name: str, history: list[Operation]) -> None:
    """One tiny history that no correct log produces, and its name."""
    assert name in names(*history)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(
            [send(0, 0, took=9.0), send(1, 1), seek(0), read(0, 0), read(1, 1)], id="a retry that landed once"
        ),
        pytest.param([*TWO, seek(0), read(0, 0), read(1, 1)], id="read again after a seek"),
        pytest.param([*TWO, send(2, outcome=INDEFINITE), read(2, 2)], id="an indefinite send that landed"),
        pytest.param([*TWO, send(2, outcome=INDEFINITE)], id="an indefinite send that did not"),
        pytest.param([*TWO, send(2, outcome=DEFINITE)], id="a definite failure that nobody read"),
        pytest.param(
            [send(0, 1, took=3.0), send(1, 0, client="q"), seek(0), read(0, 1, client="q"), read(1, 0)],
            id="sends that overlap, in either order",
        ),
        pytest.param([*TWO, end(2, at=10.0, took=5.0), end(1, at=11.0)], id="answers that overlap"),
        pytest.param([send(0, 0), send(1, 2), seek(0), read(0, 0), read(2, 1)], id="an offset that nobody ever saw"),
    ],
)
def test_what_a_correct_log_may_do_is_no_anomaly(history: list[Operation]) -> None:
    """A tricky history that a correct log can produce has no anomaly."""
    assert names(*history) == set()


def test_what_nobody_could_read_is_not_unseen() -> None:
    """A loss cannot be claimed for a partition that stays without a leader; for the others it can."""
    history = [send(0, 0), seek(0), read(0, 0), send(1, 1), send(2, 0, partition=1)]

    assert {a.sentence[:3] for a in anomalies(history)} == {"p/1", "p/2"}
    assert {a.sentence[:3] for a in anomalies(history, unreadable={1})} == {"p/1"}
