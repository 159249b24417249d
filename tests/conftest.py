"""The configuration of all tests: which of them are slow, which share one worker, and hypothesis settings.

Invariant: a test is either in `make test`, or marked `slow` and in `make test-all`; none is in neither.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Like the command line (`strandline.cli.__main__`), before anything here loads gRPC: tests that serve come before tests
# that start Spark.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

TESTS = Path(__file__).parent
SLOW = frozenset((TESTS / "slow.txt").read_text().split())
"""Files and folders of slow tests, relative to this folder; a single slow test carries the mark itself."""
TOGETHER = ("analytics", "cluster", "containers", "chaos")
"""Folders that share a Spark session, a cluster or a machine's network: one worker runs each, in this order."""

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
settings.register_profile("few", settings.get_profile("strandline"), max_examples=25)
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


@pytest.fixture(params=["asyncio", "grpcio"])
def carried_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each transport in turn carries the calls of the test's servers and channels."""
    from strandline.rpc import transports

    monkeypatch.setattr(transports, "_chosen", transports.TRANSPORTS[request.param])
    return str(request.param)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """One failure, and not one of every test that asks for the same."""
    for name in getattr(item, "fixturenames", ()):
        if name in _BROKEN:
            pytest.skip(f"fixture {name} failed in an earlier test: {_BROKEN[name]}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests and those of real clusters, and let the workers begin with the longest folders."""
    for item in items:
        place = item.path.relative_to(TESTS)
        if not SLOW.isdisjoint(map(str, (place, *place.parents))):
            item.add_marker(pytest.mark.slow)
        if place.parts[0] == "cluster":
            item.add_marker(pytest.mark.cluster)
    ranks = {name: rank for rank, name in enumerate(TOGETHER)}
    items.sort(key=lambda item: ranks.get(item.path.relative_to(TESTS).parts[0], len(ranks)))


class _ByFile(LoadScopeScheduling):
    """Hands a worker whole files, and a folder of TOGETHER whole."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        folder = path.removeprefix("tests/").partition("/")[0]
        return folder if folder in TOGETHER else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Files stay whole, because their fixtures are started once."""
    return _ByFile(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """An option of `make test-all`."""
    parser.addoption("--no-other-skips", action="store_true", help="fail if a test is skipped that is not in skips.txt")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With --no-other-skips, a skip that `skips.txt` does not expect is a failure, so that none stays unseen."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not session.config.getoption("--no-other-skips"):
        return
    lines = (TESTS / "skips.txt").read_text().splitlines()
    expected = tuple(line.split()[0] for line in lines if line and not line.startswith("#"))
    skipped = {report.nodeid for report in reporter.stats.get("skipped", [])}
    if others := sorted(node for node in skipped if not node.startswith(expected)):
        reporter.write_line("\nskipped, and not in tests/skips.txt:\n" + "\n".join(others), red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
