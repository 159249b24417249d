"""The configuration of all tests: which ones start real processes, and hypothesis settings for a busy machine."""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Like the command line (`strandline.cli.__main__`), before anything here loads gRPC: tests that serve come before tests
# that start Spark.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

import pytest
from hypothesis import HealthCheck, settings

_CLUSTER = Path(__file__).parent / "cluster"

# Commands take nothing from the profiles of the person who tests.
# It is removed by name: a second run in the same process would find the one of the first left to the garbage collector.
_NO_PROFILES = tempfile.TemporaryDirectory(prefix="strandline-config-")
atexit.register(_NO_PROFILES.cleanup)
os.environ["XDG_CONFIG_HOME"] = _NO_PROFILES.name
os.environ.pop("STRANDLINE_PROFILE", None)

# Wall-clock limits of single examples say more about the machine than about the code; pytest-timeout catches
# what hangs. A failure prints the blob that repeats it.
# Where `CI` is set, examples are the same in every run, so that a change is judged by what it changed.
# `make test-deep` searches.
settings.register_profile(
    "strandline",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("strandline")


_BROKEN: dict[str, str] = {}
"""Fixtures of the whole session that failed, and why."""


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
    """Remember what fails once for all tests, such as a JVM that is not there within the first test's time."""
    try:
        return (yield)
    except (Exception, pytest.fail.Exception) as error:
        if fixturedef.scope == "session":
            _BROKEN[fixturedef.argname] = f"{type(error).__name__}: {error}"
        raise


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """One failure, and not one of every test that asks for the same."""
    for name in getattr(item, "fixturenames", ()):
        if name in _BROKEN:
            pytest.skip(f"fixture {name} failed in an earlier test: {_BROKEN[name]}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in tests/cluster, so that `-m "not cluster"` leaves real processes out."""
    for item in items:
        if _CLUSTER in item.path.parents:
            item.add_marker(pytest.mark.cluster)
