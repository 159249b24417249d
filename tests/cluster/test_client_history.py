"""The checker of client histories, and waiting for a cluster that starts."""

from __future__ import annotations

import socket

import pytest
from running_cluster import until

from strandline.client import Admin
from strandline_sim.checks.history import (
    EndAnswer,
    Operation,
    Read,
    RecordPlace,
    RecordValue,
    Seek,
    Send,
    SendOutcome,
    anomalies,
)

ACKED = SendOutcome.OK


def sent(
    seq: int,
    offset: int | None,
    *,
    at: float = 0.0,
    until: float = 1.0,
    client: str = "p",
    outcome: SendOutcome = ACKED,
) -> Send:
    """One send to partition 0, acknowledged at ``offset``."""
    return Send(
        value=RecordValue(client, seq), partition=0, invoked_s=at, completed_s=until, outcome=outcome, offset=offset
    )


def read(seq: int, offset: int, *, consumer: str = "c", client: str = "p", at: float = 9.0) -> Read:
    """One record of partition 0, read."""
    return Read(consumer=consumer, place=RecordPlace(0, offset), value=RecordValue(client, seq), at_s=at)


def seek(offset: int, consumer: str = "c") -> Seek:
    """A consumer of partition 0 moved to a position."""
    return Seek(consumer=consumer, place=RecordPlace(0, offset))


def end(offset: int, at: float, until: float) -> EndAnswer:
    """An answer with the end of partition 0."""
    return EndAnswer(partition=0, offset=offset, invoked_s=at, completed_s=until)


WRONG: dict[str, list[tuple[str, list[Operation]]]] = {
    "lost-write": [
        ("passed over by every reader", [sent(1, 0), sent(2, 1, at=2, until=3), seek(1), read(2, 1)]),
        ("another value lies there", [sent(1, 0), sent(2, None, outcome=SendOutcome.INDEFINITE), read(2, 0)]),
    ],
    "inconsistent-offsets": [
        ("two readers differ", [sent(1, 0), read(1, 0), read(7, 0, consumer="d")]),
        ("two acks share an offset", [sent(1, 0), sent(2, 0), read(1, 0)]),
    ],
    "duplicate": [("one value twice", [sent(1, 0), read(1, 0), read(1, 1)])],
    "unseen": [("never read", [sent(1, 0), read(2, 1), sent(2, 1, at=2, until=3), seek(1)])],
    "phantom": [
        ("failed for certain", [sent(1, None, outcome=SendOutcome.DEFINITE), read(1, 0)]),
        ("never sent", [read(1, 0)]),
    ],
    "poll-skip": [
        ("between two records", [*(sent(n, n) for n in range(3)), read(0, 0), read(2, 2), read(1, 1, consumer="d")]),
        ("right after a seek", [*(sent(n, n) for n in range(3)), seek(0), read(1, 1), read(0, 0, consumer="d")]),
    ],
    "nonmonotonic-poll": [
        ("back without a seek", [sent(0, 0), sent(1, 1), read(0, 0), read(1, 1), read(0, 0)]),
        ("the same once more", [sent(0, 0), read(0, 0), read(0, 0)]),
        ("before the place sought", [sent(0, 0), seek(1), read(0, 0)]),
    ],
    "nonmonotonic-send": [("a later send lies first", [sent(1, 1), sent(2, 0), read(2, 0), read(1, 1)])],
    "realtime": [
        (
            "of two producers",
            [sent(1, 1, until=1), sent(1, 0, at=2, until=3, client="q"), read(1, 0, client="q"), read(1, 1)],
        )
    ],
    "early-read": [("read before it was sent", [sent(1, 0, at=5, until=6), read(1, 0, at=4)])],
    "end-regress": [("a later answer is smaller", [end(10, 0, 1), end(9, 2, 3)])],
}


@pytest.mark.parametrize(
    ("name", "operations"),
    [pytest.param(name, story, id=f"{name}: {title}") for name, stories in WRONG.items() for title, story in stories],
)
def test_each_anomaly_is_found(name: str, operations: list[Operation]) -> None:
    """A history that shows the anomaly is flagged by its name."""
    assert name in {anomaly.name for anomaly in anomalies(operations)}


RIGHT: dict[str, list[Operation]] = {
    "nothing happened": [],
    "a plain run": [sent(0, 0), sent(1, 1), seek(0), read(0, 0), read(1, 1)],
    "an indefinite send that landed once": [
        sent(0, None, until=30, outcome=SendOutcome.INDEFINITE),
        sent(1, 1, at=31, until=32),
        read(0, 0, at=40),
        read(1, 1, at=40),
    ],
    "an indefinite send that never landed": [sent(0, None, outcome=SendOutcome.INDEFINITE), sent(1, 0), read(1, 0)],
    "an indefinite send that landed after later ones": [
        sent(0, None, until=1, outcome=SendOutcome.INDEFINITE),
        sent(1, 0, at=2, until=3),
        read(1, 0),
        read(0, 1),
    ],
    "a send still open that was read": [
        Send(value=RecordValue("p", 0), partition=0, invoked_s=0.0),
        read(0, 0),
    ],
    "read again after a seek": [sent(0, 0), sent(1, 1), read(0, 0), read(1, 1), seek(0), read(0, 0), read(1, 1)],
    "a gap that nobody ever filled": [sent(0, 0), sent(1, 5, at=2, until=3), read(0, 0), read(1, 5)],
    "overlapping sends in either order": [
        sent(0, 1, at=0, until=5),
        sent(0, 0, at=1, until=4, client="q"),
        read(0, 0, client="q"),
        read(0, 1),
    ],
    "overlapping answers about the end": [end(10, 0, 3), end(9, 1, 2), end(10, 4, 5)],
    "a definite failure that stayed away": [sent(0, None, outcome=SendOutcome.DEFINITE), sent(1, 0), read(1, 0)],
    "two consumers at their own pace": [
        *(sent(n, n) for n in range(3)),
        *(read(n, n) for n in range(3)),
        seek(2, "d"),
        read(2, 2, consumer="d"),
    ],
}


@pytest.mark.parametrize("operations", RIGHT.values(), ids=RIGHT.keys())
def test_a_clean_history_stays_clean(operations: list[Operation]) -> None:
    """A history that a correct log can produce is not flagged."""
    assert anomalies(operations) == []


def test_partitions_are_logs_of_their_own() -> None:
    """Equal offsets of two partitions are unrelated."""
    sends = [
        Send(value=RecordValue("p", n), partition=n, invoked_s=0.0, completed_s=1.0, outcome=ACKED, offset=0)
        for n in range(2)
    ]
    reads = [Read(consumer="c", place=RecordPlace(n, 0), value=RecordValue("p", n), at_s=2.0) for n in range(2)]

    assert anomalies([*sends, *reads]) == []


# Waiting for a cluster, as in the other tests: a process that has not started yet is waited for, not a failure.


async def _reached(address: str) -> bool:
    async with Admin(address, timeout_ms=100) as admin:
        return bool((await admin.metadata()).nodes)


async def test_a_cluster_that_cannot_be_reached_yet_is_asked_again() -> None:
    """A failed call does not end the wait; the next one is made, and its answer counts."""
    with socket.socket() as nobody:
        # Bound and not listening: the test owns the port, which refuses connections.
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        asked = 0

        async def look() -> bool:
            nonlocal asked
            asked += 1
            return asked == 2 or await _reached(address)

        assert await until(look, "somebody answers", timeout_s=10)

    assert asked == 2


async def test_a_wait_ends_with_what_was_reported_last() -> None:
    """Without any answer the failure names what was waited for, and the address that did not answer."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"

        with pytest.raises(AssertionError, match=f"not within 0.3 s: somebody answers; last failure: .*{address}"):
            await until(lambda: _reached(address), "somebody answers", timeout_s=0.3)
