"""The statistics, each in a file named ``sNN_name``; a file that is added here is a statistic more."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from strandline_analytics.stats.definition import Statistic

_FILES = sorted(file.name for file in iter_modules(__path__) if file.name[0] == "s" and file.name[1:3].isdecimal())
_STATISTICS: tuple[Statistic, ...] = tuple(import_module(f"{__name__}.{name}").STATISTIC for name in _FILES)

ALL: dict[str, Statistic] = {statistic.id: statistic for statistic in _STATISTICS}
"""Every statistic by its id, ``s01`` and so on."""
