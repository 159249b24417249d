"""How a session is set up for the size of its input, and found again as it was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from strandline_analytics import session
from strandline_analytics.session import MIDDLE, MIDDLE_BYTES, SMALL, SMALL_BYTES, fit_session


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The settings of a session that somebody set up by hand."""
    monkeypatch.setattr(session, "_FOUND", {})
    return dict.fromkeys(SMALL, "by hand")


def fit(settings: dict[str, str], size_bytes: int) -> None:
    """Fit a session that has nothing but these settings."""
    spark: Any = SimpleNamespace(conf=SimpleNamespace(get=settings.get, set=settings.__setitem__))
    fit_session(spark, size_bytes)


def test_large_input_finds_the_settings_of_before(settings: dict[str, str]) -> None:
    """What somebody set is there again for input above the sizes that are known, whatever was read before it."""
    for size in (SMALL_BYTES, MIDDLE_BYTES, MIDDLE_BYTES + 1):
        fit(settings, size)

    assert settings == dict.fromkeys(SMALL, "by hand")


def test_input_of_a_day_keeps_all_settings_but_its_own(settings: dict[str, str]) -> None:
    """After little input, a day's is planned once and with whatever else was set."""
    fit(settings, SMALL_BYTES)
    assert settings == SMALL

    fit(settings, SMALL_BYTES + 1)

    assert settings == dict.fromkeys(SMALL, "by hand") | MIDDLE
