"""The definition of a failover's gap: the time without acknowledgements that a producer sees, however short it is."""

from __future__ import annotations

from tests.bench.failover_page import failover_table
from tests.bench.gaps import Acknowledgement, gap_ms

KILLED_S = 100.0
STEADY = [Acknowledgement(sent_s=99.98 + n / 1_000, acked_s=99.981 + n / 1_000) for n in range(18)]
"""One record after another; the last answer before the kill came at 99.998 s."""


def test_a_short_gap_is_the_gap() -> None:
    """Service that resumes 5 ms after the kill counts as 5 ms, not as an ordinary gap of later records."""
    resumed = [Acknowledgement(sent_s=100.002 + n / 500, acked_s=100.005 + n / 500) for n in range(50)]

    assert round(gap_ms([*STEADY, *resumed], KILLED_S), 3) == 7.0


def test_an_answer_that_was_on_its_way_ends_no_gap() -> None:
    """An answer of the dead leader that is read after the kill is not an answer of the next leader."""
    on_its_way = Acknowledgement(sent_s=99.999, acked_s=100.001)
    resumed = Acknowledgement(sent_s=100.001, acked_s=100.050)

    assert round(gap_ms([*STEADY, on_its_way, resumed], KILLED_S), 3) == 52.0


def test_the_table_says_what_its_figures_are() -> None:
    """Figures of this measure are explained, and those of the earlier one are labelled as such."""
    row = {"session_timeout_ms": 9_000, "heartbeat_interval_ms": 2_000, "gaps_ms": [7.0, 9.0]}
    idle = {**row, "measure": "sent-after-kill"}
    loaded = {**idle, "fault": "vanish", "load": {"per_s": 1_950}, "machine_percent": 130.0}
    now, without_load, before = (failover_table([one]) for one in (loaded, idle, row))

    assert "first acknowledgement of a record that was sent after it" in now
    assert "| vanished address | 9000 ms | 2000 ms | 2 | 8 | 7-9 | 1950 | 130.0 |" in now
    assert "without other load" not in now
    assert "without other load" in without_load
    assert "figures are of an earlier measure" in before
    assert "earlier" not in now + without_load
