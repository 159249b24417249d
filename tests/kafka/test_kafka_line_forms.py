"""The table of line forms: each sample is read by its own row, and what fits no row is never guessed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline_kafka.brokers.line_facts import IsrUpdated, OutOfSync, Setting, ShrinkProposed
from strandline_kafka.brokers.line_forms import FAMILIES, FORMS, LineForm, may_matter, read_message, read_setting


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.family} {form.releases}")
def test_each_sample_fits_its_row_alone(form: LineForm) -> None:
    """A sample is found by its family's words, and by no other row of the family."""
    fitting = [other for other in FORMS if other.family == form.family and other.expression.fullmatch(form.sample)]
    assert fitting == [form]
    read = read_message(form.sample)
    assert read is not None
    assert (read.family, type(read.fact)) == (form.family, type(form.fact(form.expression.fullmatch(form.sample))))  # type: ignore[arg-type]
    assert may_matter(form.sample)


def test_every_family_but_one_has_a_form() -> None:
    """Expansions are known by their words only: releases with KRaft do not log them."""
    assert FAMILIES.keys() - {form.family for form in FORMS} == {"expansion"}


def test_a_removal_gives_positions_and_members() -> None:
    """HW, LEO and each member with its end offset and the moment when it was last caught up."""
    read = read_message(
        "[Partition a-b.c-12 broker=3] Shrinking ISR from 1,2,3 to 3. Leader: (highWatermark: 9, endOffset: 12). Out "
        "of sync replicas: (brokerId: 1, endOffset: 9, lastCaughtUpTimeMs: 1000) (brokerId: 2, endOffset: unknown, "
        "lastCaughtUpTimeMs: -1)."
    )
    assert read is not None
    removed = (OutOfSync(1, 9, 1000), OutOfSync(2, None, None))
    assert read.fact == ShrinkProposed("a-b.c", 12, 3, (1, 2, 3), (3,), 9, 12, removed)


def test_an_older_release_leaves_what_it_does_not_say_open() -> None:
    """Without lastCaughtUpTimeMs the moment is not known, and without offsets nothing but the members is."""
    untimed, bare = (form.sample for form in FORMS if form.releases in ("2.2 to 3.4", "before 2.2"))
    found = [read.fact for text in (untimed, bare) if (read := read_message(text)) is not None]
    assert [(one.hw, one.removed) for one in found if isinstance(one, ShrinkProposed)] == [
        (150, (OutOfSync(2, 132, None),)),
        (None, (OutOfSync(4, None, None),)),
    ]


def test_a_take_over_below_the_minimum_is_one_too() -> None:
    """The words about the minimum do not hide the partition epoch."""
    read = read_message("[Partition orders-0 broker=1] ISR updated to 2 (under-min-isr) and version updated to 7")
    assert read is not None
    assert read.fact == IsrUpdated("orders", 0, 1, (2,), 7)


@pytest.mark.parametrize(
    ("message", "family"),
    [
        ("[Partition orders-0 broker=1] Expanding ISR from 1,2 to 1,2,3", "expansion"),
        ("[Partition orders-0 broker=1] Shrinking ISR from 1,2 to 1 because of the moon", "shrink"),
        ("[QuorumController id=3] Fencing broker 2 because nobody likes it.", "fence"),
        ("[Partition orders-0 broker=1] ISR updated to 1,2  and version updated to 9999999999", "update"),
    ],
)
def test_a_line_of_a_family_that_fits_no_row_is_counted_and_not_guessed(message: str, family: str) -> None:
    """Its family is known, and no fact comes of it."""
    read = read_message(message)
    assert read is not None
    assert (read.family, read.fact) == (family, None)


def test_settings_are_a_closed_list() -> None:
    """Of a block of settings those of the list are read; no other value leaves the reader."""
    assert read_setting("\treplica.lag.time.max.ms = 4000") == Setting("replica.lag.time.max.ms", 4000)
    for text in ("\tssl.key.password = 12345", "\tmin.insync.replicas = two", "min.insync.replicas = 2"):
        assert read_setting(text) is None


@given(st.sampled_from([form.sample for form in FORMS]), st.integers(0, 200), st.text(max_size=30))
def test_any_change_of_a_sample_is_read_or_counted(sample: str, place: int, more: str) -> None:
    """Whatever stands in a line, it is a fact, a counted line, or nothing."""
    at = place % len(sample)
    read = read_message(sample[:at] + more + sample[at:])
    assert read is None or read.family in FAMILIES
