"""Decides what a scrape of the analytics server reads: how many questions wait, and how those before them ended.

Invariant: every end is there from the start, so that the first failure is seen as an increase.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.metrics.families import QUESTIONS, QUESTIONS_WAITING
from strandline.metrics.figures import Figure
from strandline_analytics.service.jobs import JobQueue, JobState


def queue_figures(queue: JobQueue) -> Iterator[Figure]:
    """As the queue stands."""
    yield Figure(QUESTIONS_WAITING, queue.waiting)
    for state in JobState:
        if state.is_end:
            yield Figure(QUESTIONS, queue.ended[state.value], (state.value,))
