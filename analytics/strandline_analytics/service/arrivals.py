"""Which exported files are new, and reads the rows of them that a watch needs.

Every file is read once, when it first appears; a file appears whole (`strandline.export.layout`). At the first look the
newest hours are read, since each begins with snapshots of everything.

Invariant: a look opens no file that an earlier look has opened; a file that cannot be read is reported once and left
alone.
"""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from strandline.export import layout
from strandline.export.schema import DATASETS
from strandline_analytics.service.live import COLUMNS, CONTROL_TYPES, LOOK_TYPE
from strandline_analytics.sources.places import Place

_MARK = f"/{layout.VERSION_FOLDER}/"
_TYPES = (*CONTROL_TYPES, LOOK_TYPE)

Row = Mapping[str, Any]


class Arrivals:
    """New files of some places. ``on_damage`` gets one sentence for each file that cannot be read."""

    def __init__(self, places: Sequence[Place], *, hours: int, on_damage: Callable[[str], None]) -> None:
        self._places = places
        self._hours = hours
        self._on_damage = on_damage
        self._seen: set[tuple[str, str]] = set()
        self._began = False

    def look(self) -> Iterator[list[Row]]:
        """The rows of each new file, oldest hour first."""
        listed = {(place.root, path): place for place in self._places for path in _data_files(place)}
        fresh = listed.keys() - self._seen
        self._seen = set(listed)
        for name in sorted(fresh if self._began else self._newest(fresh), key=lambda name: _hour(name[1])):
            yield self._rows(listed[name], name[1])
        self._began = True

    def _newest(self, names: set[tuple[str, str]]) -> list[tuple[str, str]]:
        by_cluster: dict[str, set[str]] = defaultdict(set)
        for root, path in names:
            by_cluster[_cluster(root, path)].add(_hour(path))
        oldest = {cluster: sorted(hours)[-self._hours :][0] for cluster, hours in by_cluster.items()}
        return [(root, path) for root, path in names if _hour(path) >= oldest[_cluster(root, path)]]

    def _rows(self, place: Place, path: str) -> list[Row]:
        try:
            content = place.read(path)
            return parsed(path, content)
        except (OSError, ValueError) as error:
            self._on_damage(f"{place.root}/{path} cannot be read and is left out of what is watched: {error}")
            return []


def parsed(path: str, content: bytes) -> list[Row]:
    """The rows of a file that `LiveState` reads, with all its columns.

    Raises:
        ValueError: it is damaged.
    """
    if path.endswith(layout.JSON_LINES):
        try:
            rows = [json.loads(line) for line in content.splitlines() if line.strip()]
        except RecursionError:
            raise ValueError("a line is nested too deeply") from None
        return [{name: row.get(name) for name in COLUMNS} for row in rows if row.get("event_type") in _TYPES]
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(io.BytesIO(content), columns=list(COLUMNS), filters=[("event_type", "in", _TYPES)])
    except pyarrow.ArrowException as error:
        raise ValueError(f"not a Parquet file of ours: {error}") from error
    found: list[Row] = table.to_pylist()
    return found


def _data_files(place: Place) -> Iterator[str]:
    for listed in place.files():
        parts = listed.path.split("/")
        if len(parts) > 3 and parts[-4] in DATASETS and parts[-1].endswith(layout.SUFFIXES):
            yield listed.path


def _hour(path: str) -> str:
    """``dt=.../hr=...``."""
    return "/".join(path.split("/")[-3:-1])


def _cluster(root: str, path: str) -> str:
    return f"{root}/{path}".rpartition(_MARK)[0]
