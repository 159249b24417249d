"""The anatomy reads the summaries of perf; its table has a row for each count."""

from __future__ import annotations

from tests.bench.anatomy_page import rows_of, system_calls

SUMMARY = """
 Summary of events:

 python (3464), 180 events, 60.0%

   syscall            calls  errors  total       min       avg       max       stddev
                                     (msec)    (msec)    (msec)    (msec)        (%)
   --------------- --------  ------ -------- --------- --------- ---------     ------
   futex                 45      3   454.432     0.000    10.098    15.429      2.59%
   epoll_wait             5      0     1.631     0.021     0.036     0.072      4.08%

 event_engine (3465), 120 events, 40.0%

   syscall            calls  errors  total       min       avg       max       stddev
                                     (msec)    (msec)    (msec)    (msec)        (%)
   --------------- --------  ------ -------- --------- --------- ---------     ------
   futex                 15      0   454.432     0.000    10.098    15.429      2.59%
"""


def test_system_calls_are_added_up_over_threads() -> None:
    """A call that two threads make counts for both; headings and totals are no calls."""
    assert system_calls(SUMMARY) == {"futex": 60, "epoll_wait": 5}


def test_a_count_that_one_side_lacks_is_zero_there() -> None:
    """What only one pipeline does is shown beside 0, and what all do hardly ever is left out."""
    ours = {"leader": {"futex": 12.0, "madvise": 0.01}, "follower0": {"futex": 4.0}}
    stripped = {"leader": {"futex": 8.0}, "follower0": {}}
    rows = rows_of({"ours": ours, "stripped": stripped})

    assert rows == [("futex", [12.0, 8.0, 4.0, 0.0])]
