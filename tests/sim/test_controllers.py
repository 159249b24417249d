"""Three controllers on one store: what the simulator reaches, what holds, and which broken rules it catches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.core.controller import ControllerCore
from strandline.core.controller_events import ControllerStarted
from strandline.core.reign import ReignCore
from strandline.core.reign_events import Head, Holder
from strandline.core.sessions import Sessions
from strandline.sim import fenced_log
from strandline.sim.profiles import PROFILES
from strandline.sim.run import run_seed


@pytest.mark.parametrize("profile", ["controllers", "store-trouble"])
def test_first_seeds_break_nothing(profile: str) -> None:
    """Reigns change in every seed's run of faults, and no invariant breaks."""
    outcomes = [run_seed(seed, profile) for seed in range(8)]

    assert [outcome.violation for outcome in outcomes] == [None] * 8
    assert sum(outcome.counts["reign: catching_up to active"] for outcome in outcomes) > 8


def test_a_seed_is_one_run() -> None:
    """The same seed with three controllers is the same run."""
    one, other = run_seed(5, "controllers"), run_seed(5, "controllers")

    assert one == other


def test_a_reign_that_ends_with_the_topic_unstored_is_no_end() -> None:
    """In seed 218 the first reign is over before it has stored the topic; the next one is asked for it again."""
    assert run_seed(218, "controllers").violation is None


def test_promises_name_what_is_counted() -> None:
    """Each state but STOPPED, which a sound store never leads to, is promised by the profile of controllers."""
    promised = " ".join(PROFILES["controllers"].promises)

    for state in ("standby", "campaigning", "catching_up", "active", "unsure", "deposed"):
        assert state in promised


def _broken_within(seeds: int, profile: str = "controllers") -> str:
    for seed in range(seeds):
        violation = run_seed(seed, profile).violation
        if violation is not None:
            return violation.name
    return ""


def test_append_without_the_token_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant 27: I19, a write of a reign that is over."""

    def only_head(key: Holder | None, head: Head | None, token: int, after: int) -> bool:
        return (0 if head is None else head.revision) == after

    monkeypatch.setattr(fenced_log, "may_append", only_head)

    assert _broken_within(12) == "I19"


def test_take_over_that_believes_its_watch_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant 30: I22, the reign does not begin at the end of the log."""
    honest = ReignCore._won

    def believing(core: ReignCore, token: int, revision: int) -> None:
        honest(core, token, revision)
        assert core._reign is not None
        core._reign.head, core._reign.is_head_read = core.applied, True

    monkeypatch.setattr(ReignCore, "_won", believing)

    assert _broken_within(12) == "I22"


def test_controller_epoch_that_stays_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant 31: I21, two reigns with one controller epoch."""
    honest = ControllerCore._start

    def staying(core: ControllerCore, event: ControllerStarted) -> Any:
        if core._state is not None:
            header = core._state.header
            core._state = replace(core._state, header=replace(header, controller_epoch=header.controller_epoch - 1))
        return honest(core, event)

    monkeypatch.setattr(ControllerCore, "_start", staying)

    assert _broken_within(12) == "I21"


def test_sessions_that_stay_while_unsure_break(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant 48: I24, nodes are fenced for a time in which nobody could hear them (TR30)."""
    monkeypatch.setattr(Sessions, "resume", lambda sessions, now_ms, closed_ms: None)

    assert _broken_within(24, "store-trouble") == "I24"
