"""What a report says of lost committed records: how many, how large, how many of them could be avoided."""

from __future__ import annotations

from reported_material import material, unclean

from strandline_analytics.report.failovers import Losses, loss_parts
from strandline_analytics.report.page import page

_OF_LOSSES = (
    "committed_lost_records",
    "committed_lost_min_bytes",
    "committed_lost_max_bytes",
    "avoidable_lost_records",
)


def test_a_loss_has_its_size_and_the_part_that_could_be_avoided() -> None:
    """65 records of 6 to 7 KiB, 15 of which another live replica had: in the headline, the tile and the data."""
    shown = page(material(events=unclean(), lost=65, lost_bytes=(6_144, 7_168), avoidable=15))
    (tile,) = (fact for fact in shown["facts"] if fact.name == "committed records lost")

    words = "6.0 KiB to 7.0 KiB, at least 15 of them avoidable: another live replica had them"
    assert shown["verdict"].headline.startswith(f"Committed records were lost: 65, {words}, in 1 incident")
    assert tile.note == words.replace(", ", "; ")
    figures = [shown["data"][name] for name in _OF_LOSSES]
    assert figures == [65, 6_144, 7_168, 15]


def test_of_a_loss_that_is_not_known_in_bytes_the_least_is_said() -> None:
    """Without an upper bound it is at least so much; without any it is nothing, and null in the data."""
    least = page(material(events=unclean(), lost=65, lost_bytes=(6_144, None)))["verdict"].headline
    neither = page(material(events=unclean(), lost=65))

    assert least.startswith("Committed records were lost: 65, at least 6.0 KiB, in 1 incident")
    assert neither["verdict"].headline.startswith("Committed records were lost: 65, in 1 incident")
    assert [neither["data"][name] for name in _OF_LOSSES] == [65, None, None, None]


def test_a_loss_beside_an_unknown_one_has_no_upper_bound() -> None:
    """The epoch of unknown loss may have lost any number of bytes: the known 6 KiB are the least."""
    shown = page(material(events=unclean(), lost=65, epochs_unknown=1, lost_bytes=(6_144, 6_144)))

    assert ", at least 6.0 KiB, in 1 incident" in shown["verdict"].headline
    assert [shown["data"][name] for name in _OF_LOSSES] == [65, 6_144, None, None]


def test_a_size_of_which_one_bound_is_known_or_both_are_equal_is_said_once() -> None:
    """Equal bounds are one size, and a lower bound of 0 is none."""
    assert loss_parts(Losses(records=65, min_bytes=6_144, max_bytes=6_144)) == ["6.0 KiB"]
    assert loss_parts(Losses(records=65, min_bytes=0, max_bytes=6_144)) == ["at most 6.0 KiB"]


def test_where_nothing_was_lost_no_byte_was_and_an_unknown_loss_has_no_size() -> None:
    """0 in each figure of the data, or null in each."""
    none = page(material(lost=0))["data"]
    unknown = page(material(events=unclean(), lost=None))["data"]

    assert [none[name] for name in _OF_LOSSES] == [0, 0, 0, 0]
    assert [unknown[name] for name in _OF_LOSSES] == [None, None, None, None]
