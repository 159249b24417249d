"""`make test` runs every test, in one of its two lanes."""

from __future__ import annotations

from tests.lanes import COMPUTING, REAL, TESTS, lanes


def test_every_test_file_is_in_one_lane() -> None:
    """A folder that no lane knows would be tests that nobody runs."""
    real, computing = lanes()
    in_a_lane = [path for folder in (*real, *computing) for path in folder.rglob("test_*.py")]

    assert sorted(in_a_lane) == sorted(TESTS.rglob("test_*.py"))


def test_what_a_lane_names_exists() -> None:
    """A name that is misspelt would move its tests into the other lane, or into none."""
    assert {folder.name for folder in lanes()[1]} == COMPUTING
    assert all(path.exists() for path in REAL)
