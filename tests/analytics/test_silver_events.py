"""Which rows are events: each identity once, with one content."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline_analytics.silver.events import ConflictingEvents
from strandline_analytics.silver.tables import Silver

_SAID = (
    '{"t": 0, "seq": 7, "meta_offset": 7, "event_type": "STATE_SNAPSHOT", "partition_epoch": 1, '
    '"new_leader": %d, "new_isr": [1, 2]}'
)


@pytest.mark.timeout(300)  # May be the first to wait for the session.
def test_one_identity_with_two_stories_is_an_error(silver: Callable[[str], Silver]) -> None:
    """Two rows under one event id that differ are wrong data, and the message names the id."""
    with pytest.raises(ConflictingEvents, match=r"event -1:1:7 of cluster c"):
        silver("\n".join((_SAID % 1, _SAID % 2)))


@pytest.mark.timeout(300)  # May be the first to wait for the session.
def test_copies_of_a_row_are_one_event(silver: Callable[[str], Silver]) -> None:
    """A row that occurs three times is one event, which carries the number of copies."""
    (row,) = silver("\n".join([_SAID % 1] * 3)).transitions.collect()

    assert (row.seq, row.n_copies, row.n_stories) == (7, 3, 1)
