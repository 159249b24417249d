"""Which versions of PySpark are allowed, and what the oldest of them refuses."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from strandline_analytics.pyspark_range import NeedsNewerSpark, check_streams
from strandline_analytics.sources.trouble import explained

ROOT = Path(__file__).parents[2]


def test_an_older_pyspark_refuses_streams_in_one_sentence() -> None:
    """PySpark 4.1 says which version is needed, which one is there, and what works."""
    with pytest.raises(NeedsNewerSpark) as caught:
        check_streams("use spark.read", version="4.1.4")

    assert str(caught.value) == "reading as a stream needs PySpark 4.2 or newer, and this is 4.1.4; use spark.read"
    assert explained(caught.value) is caught.value


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1.dev3", "4.3.0", "5.0.0"])
def test_newer_ones_read_streams(version: str) -> None:
    """From 4.2 on nothing is refused."""
    check_streams("use spark.read", version=version)


def test_the_range_is_what_was_tested() -> None:
    """PySpark 4.1 to 4.3 can be installed beside Strandline, and no other minor version."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (spark,) = [need for need in map(Requirement, extras["analytics"]) if need.name == "pyspark"]

    assert [minor for minor in range(6) if f"4.{minor}.1" in spark.specifier] == [1, 2, 3]
    assert "3.5.9" not in spark.specifier
