"""Which columns a statistic's results have, with the unit and the meaning of each."""

from __future__ import annotations

from strandline_analytics.scope import Grouping
from strandline_analytics.stats.definition import Statistic, Value
from strandline_analytics.timestamps import TIMES

_COMMON = {
    "cluster_id": ("string", "", "the cluster, as it calls itself"),
    "topic_id": ("string", "", "the topic's id: names are used again, ids are not"),
    "topic": ("string", "", "the topic's name"),
    "partition": ("int", "", "the partition's number"),
    "window_start": ("bigint", "us since 1970", "the first moment of the row's window"),
    "window_start_time": ("timestamp", "", "the same as window_start"),
    "window_end": ("bigint", "us since 1970", "the moment before which it ends"),
    "window_end_time": ("timestamp", "", "the same as window_end"),
}
_EVERYWHERE = {
    "coverage": ("double", "share", "known time / time of the window, over all partitions of the row"),
    "n_zombie": ("bigint", "samples", "of leaders whose term was over; not used"),
    "n_duplicate": ("bigint", "events", "further copies; not used"),
    "n_gap": ("bigint", "transitions", "missing by the partition epochs; the time before each is unknown"),
    "clock_regressions": ("bigint", "events", "whose time was before that of the one before them; corrected"),
    "input_manifest_hash": ("string", "", "names the files that the row follows from"),
    "code_version": ("string", "", "the version of strandline that computed it"),
}


def head_columns(grouping: Grouping) -> list[Value]:
    """What a row is about: the statistic, its group and its window."""
    names = (*grouping.value, *(name for both in TIMES.items() for name in both))
    return [Value("stat", "string", "", "the statistic's id"), *(Value(name, *_COMMON[name]) for name in names)]


def tail_columns() -> list[Value]:
    """How far a row can be relied on, and what it follows from."""
    return [Value(name, *said) for name, said in _EVERYWHERE.items()]


def result_columns(statistic: Statistic, grouping: Grouping) -> list[Value]:
    """All columns of a statistic's results, in their order."""
    grouping = Grouping.CLUSTER if statistic.only_cluster else grouping
    return [*head_columns(grouping), *statistic.extra, *statistic.values, *tail_columns()]
