"""Which events are lines of the log, and that each has its node, its epochs, its offsets and its cause."""

from __future__ import annotations

from typing import Any

import pytest
from made_events import made

from strandline.core.state_events import EVENT_TYPES as STATE_EVENTS
from strandline.core.types import TopicPartition
from strandline.export.log_lines import line_of
from strandline.export.rows import Emitter, Taken, to_row
from strandline.export.schema import EVENT_TYPES, SAMPLES, fields_of

TP = TopicPartition("id", 2)
EPOCHS = {"leader_epoch": 4, "partition_epoch": 9}


def _epochs(kind: str) -> dict[str, int]:
    """Those epochs that events of a type have."""
    has = {field.name for field in fields_of(STATE_EVENTS[kind].kind)}
    return {name: value for name, value in EPOCHS.items() if name in has}


def _line(kind: str, fields: dict[str, Any]) -> Any:
    emitter = Emitter(cluster_id="c", node_id=1, incarnation=7)
    taken = Taken(1_700_000_000_123_000, 1, made(kind, **fields, **_epochs(kind)), TP, 3)
    return line_of(to_row(taken, 1, emitter, {"id": "tides"}.get))


@pytest.mark.parametrize(
    ("kind", "fields", "sentence", "is_warning"),
    [
        ("EPOCH_START", {"start_offset": 5, "hw": 4, "new_isr": (1, 2)}, "leads", False),
        ("LEADER_CHANGE", {"old_leader": 1, "new_leader": None}, "partition without a leader", True),
        ("LEADER_CHANGE", {"old_leader": 1, "new_leader": 2, "election_type": "isr"}, "leader elected", False),
        ("LEADER_CHANGE", {"old_leader": 1, "new_leader": 2, "election_type": "unclean"}, "leader elected", True),
        ("ISR_CHANGE", {"old_isr": (1, 2), "new_isr": (1,), "cause": "lag"}, "ISR shrank", True),
        ("ISR_CHANGE", {"old_isr": (1,), "new_isr": (1, 2), "cause": "catch_up"}, "ISR expanded", False),
        ("ALTER_PARTITION", {"phase": "result", "error_code": 91}, "ISR update refused", True),
        ("ALTER_PARTITION", {"phase": "timeout", "error_code": 0}, "ISR update without an answer", True),
        ("TRUNCATION", {"from_leo": 9, "to_leo": 5, "hw_before": 5, "committed_cut": 0}, "log cut", False),
        ("TRUNCATION", {"from_leo": 9, "to_leo": 5, "hw_before": 7, "committed_cut": 2}, "log cut", True),
        (
            "PARTITION_FAILED",
            {"reason": "damaged", "leo": 9, "hw": 5},
            "partition does not replicate until the next leader epoch",
            True,
        ),
        ("NODE_SESSION", {"phase": "fence", "cause": "timeout", "subject_node_id": 2}, "node session", True),
        ("GROUP_CHANGE", {"group_id": "g", "old_state": "Stable", "new_state": "Empty"}, "group is empty", False),
        ("GROUP_CHANGE", {"group_id": "g", "old_state": "Empty", "new_state": "Empty"}, "group epoch rose", False),
        ("MEMBER_CHANGE", {"group_id": "g", "member_id": "m", "phase": "joined"}, "member joined", False),
        ("MEMBER_CHANGE", {"group_id": "g", "member_id": "m", "phase": "fenced"}, "member fenced", True),
        ("COORDINATOR_LOAD", {"bytes": 9, "n_keys": 1, "load_ms": 3}, "coordinator answers", False),
        ("TRANSACTION_CHANGE", {"cause": "timeout", "transactional_id": "x"}, "transaction timed out", False),
        ("TRANSACTION_CHANGE", {"cause": "marker_refused"},
         "partition refuses the marker of a transaction that its coordinator waits for", True),
        ("TRANSACTION_OPEN", {"cause": "hanging", "producer_id": 7, "hw": 9}, "transaction hangs", True),
    ],
)  # fmt: skip
def test_what_is_reported(kind: str, fields: dict[str, Any], sentence: str, is_warning: bool) -> None:
    """The sentence, whether it is a warning, and the location with its epochs."""
    line = _line(kind, fields)

    assert (line.sentence, line.is_warning) == (sentence, is_warning)
    place = {"node_id": 1, "topic": "tides", "partition": 2, "controller_epoch": 3, **_epochs(kind)}
    assert place.items() <= line.fields.items()
    assert line.fields["at"] == "2023-11-14T22:13:20.123+00:00"


def test_a_cut_names_its_offsets() -> None:
    """A truncation's line has its offsets, the HW before it, and how much of it had been committed."""
    fields = {"from_leo": 9, "to_leo": 5, "hw_before": 7, "committed_cut": 2, "reason": "diverging_epoch"}

    assert fields.items() <= _line("TRUNCATION", fields).fields.items()


@pytest.mark.parametrize("kind", [name for name, known in EVENT_TYPES.items() if known.dataset == SAMPLES])
def test_a_sample_is_no_line(kind: str) -> None:
    """Events that occur many times a second are not logged."""
    assert _line(kind, {}) is None


@pytest.mark.parametrize("phase", ["proposed", "result"])
def test_an_isr_update_that_goes_well_is_reported_by_its_change_alone(phase: str) -> None:
    """Neither the proposal nor its confirmation is a second line."""
    assert _line("ALTER_PARTITION", {"phase": phase, "error_code": 0}) is None


@pytest.mark.parametrize("kind", ["GROUP_CHANGE", "MEMBER_CHANGE"])
def test_what_is_repeated_is_no_line(kind: str) -> None:
    """Ten thousand calm groups are not logged once an hour."""
    assert _line(kind, {"group_id": "g", "cause": "repeated"}) is None
