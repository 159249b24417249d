"""How events of consumer groups read in plain words."""

from __future__ import annotations

from typing import Any

import pytest
from reported_material import event

from strandline_analytics.timeline.sentences import sentence


def _group(cause: str = "join", **said: Any) -> str:
    return sentence(event("GROUP_CHANGE", 0, plane="data", node=2, group_id="orders", cause=cause, **said))


def _member(**said: Any) -> str:
    who = {"group_id": "orders", "member_id": "m-1"}
    return sentence(event("MEMBER_CHANGE", 0, plane="data", node=2, **who, **said))


def test_a_groups_change_has_both_states_and_its_epoch() -> None:
    """A target that lags behind the group's epoch is named; else one epoch is enough."""
    moving = {"old_state": "Stable", "new_state": "Assigning", "group_epoch": 8, "target_epoch": 7, "n_members": 3}
    settled = {"old_state": "Stable", "new_state": "Stable", "group_epoch": 8, "target_epoch": 8, "n_members": 1}

    assert _group(**moving) == "group orders Stable -> Assigning, epoch 8, target of epoch 7, 3 members"
    assert _group(**settled) == "group orders is Stable, epoch 8, 1 member"
    assert _group("repeated", **settled) == "group orders is still Stable, epoch 8, 1 member"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"phase": "joined", "assigned": []}, "joins"),
        ({"phase": "joined", "assigned": ["T:0"]}, "joins with 1 partition"),
        ({"phase": "assigned", "assigned": ["T:0", "T:1"]}, "is assigned 2 partitions"),
        ({"phase": "revoking", "assigned": ["T:0"], "revoking": ["T:1"]}, "is to give up 1 partition, keeps 1"),
        ({"phase": "away"}, "is away for a while"),
        ({"phase": "fenced"}, "is fenced: it did not give up its partitions in time"),
        ({"phase": "gone"}, "is gone"),
        ({"phase": "assigned", "cause": "repeated", "assigned": ["T:0"]}, "still has 1 partition"),
        (
            {"phase": "revoking", "cause": "repeated", "revoking": ["T:1"]},
            "still has 0 partitions, is to give up 1 partition",
        ),
        ({"phase": "away", "cause": "repeated"}, "is away for a while"),
        ({"phase": "tide_turned"}, "tide_turned"),
    ],
)
def test_a_members_change_says_what_became_of_it(said: dict[str, Any], words: str) -> None:
    """Each phase has its words, and one of a newer version is shown by its name."""
    assert _member(**said) == f"member m-1 of group orders {words}"


def test_a_static_member_is_named_by_its_instance_too() -> None:
    """The instance id is the name that its operator gave it."""
    assert _member(phase="gone", instance_id="pod-3") == "member m-1 of group orders (pod-3) is gone"


def test_commits_are_shown_with_what_was_refused() -> None:
    """The committed offset, or that there is none, and refusals by error."""
    said = {"group_id": "orders", "committed": 12_000, "n_commits": 2, "n_error": {}}
    refused = {"group_id": "orders", "n_commits": 0, "n_error": {"STALE_MEMBER_EPOCH": 2, "FENCED_MEMBER_EPOCH": 1}}

    assert sentence(event("GROUP_OFFSETS", 0, plane="data", **said)) == "group orders has committed 12,000"
    assert sentence(event("GROUP_OFFSETS", 0, plane="data", **refused)) == (
        "group orders has nothing committed, commits refused: 1 with FENCED_MEMBER_EPOCH, 2 with STALE_MEMBER_EPOCH"
    )


def test_a_load_says_how_long_nobody_was_answered() -> None:
    """Its length, and what was read in it."""
    loaded = event("COORDINATOR_LOAD", 0, plane="data", node=2, bytes=20_480, n_keys=1_000, load_ms=1_250)

    assert sentence(loaded) == "coordinator answers after 1.250 s: 20,480 bytes read, 1,000 keys"
