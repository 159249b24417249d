"""Events of transactions in plain words."""

from __future__ import annotations

from typing import Any

import pytest
from reported_material import BEGIN_US, event

from strandline_analytics.timeline.sentences import sentence


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"cause": "open"}, "producer 7 of epoch 3 holds the LSO at 1,000 for 2.0 s, HW 1,200"),
        (
            {"cause": "inherited", "producer_epoch": None},
            "producer 7 holds the LSO at 1,000 for 2.0 s, HW 1,200, as this leader found it",
        ),
        (
            {"cause": "inherited", "producer_id": None, "producer_epoch": None},
            "a transaction of an unknown producer holds the LSO at 1,000 for 2.0 s, HW 1,200, as this leader found it",
        ),
        (
            {"cause": "hanging"},
            "producer 7 of epoch 3 holds the LSO at 1,000 for 2.0 s, HW 1,200: longer than any producer may ask for, "
            "so that its coordinator may not know it",
        ),
    ],
)
def test_who_holds_the_lso_and_since_when(said: dict[str, Any], words: str) -> None:
    """At its first offset; the HW says how much waits."""
    known = {
        "producer_id": 7,
        "producer_epoch": 3,
        "first_offset": 1_000,
        "hw": 1_200,
        "held_since_us": BEGIN_US + 1_000_000,
    }

    assert sentence(event("TRANSACTION_OPEN", 3_000, plane="data", **known | said)) == words


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            {"producer_id": 7, "producer_epoch": 3, "first_offset": 9, "outcome": "abort", "n_coalesced": 1},
            "producer 7 of epoch 3 aborts, marker at 1,500: the LSO was held back for 4.2 s",
        ),
        (
            {"outcome": "commit", "n_coalesced": 1_200},
            "1,200 short transactions committed, the LSO was held back for 4.2 s in all",
        ),
        (
            {"outcome": "abort", "n_coalesced": 1},
            "1 short transaction aborted, the LSO was held back for 4.2 s in all",
        ),
    ],
)
def test_what_became_of_it(said: dict[str, Any], words: str) -> None:
    """One that was reported before is named; of others there are only sums."""
    decided = event("TRANSACTION_DECIDED", 9_000, plane="data", marker_offset=1_500, held_ms=4_200, **said)

    assert sentence(decided) == words


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"cause": "init"}, "transactional id pay has an identity: producer 7 of epoch 3"),
        (
            {"cause": "timeout", "n_partitions": 2},
            "transactional id pay took too long and is aborted: producer 7 of epoch 3, 2 partitions",
        ),
        ({"cause": "tide"}, "transactional id pay tide: producer 7 of epoch 3"),
        (
            {"cause": "marker_refused"},
            "this partition calls the transaction of pay over, and its coordinator waits for it",
        ),
        ({"cause": "committed", "transactional_id": None, "n_coalesced": 3}, "3 short transactions committed"),
    ],
)
def test_what_became_of_a_transactional_id(said: dict[str, Any], words: str) -> None:
    """Each cause has its words, and one of a newer version is shown by its name."""
    known = {"transactional_id": "pay", "producer_id": 7, "producer_epoch": 3}

    assert sentence(event("TRANSACTION_CHANGE", 0, plane="data", **known | said)) == words
