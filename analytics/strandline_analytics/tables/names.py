"""What the table of a statistic is called: `CATALOG.NAMESPACE.s10_isr_time`, or for Delta without a catalog its place.

A session of our own has no catalog in which Delta could keep names from one run to the next, so there a table is named
by the directory that it lies in, below the warehouse.

Invariant: every part of a name is quoted, so that no name of a user is read as SQL.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline_analytics.scope import Grouping
from strandline_analytics.stats.definition import Statistic

_SUFFIXES = {Grouping.PARTITION: "", Grouping.TOPIC: "_by_topic", Grouping.CLUSTER: "_by_cluster"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableNames:
    """Names of one set of results. Without a catalog a warehouse is given, and tables are named by their places."""

    namespace: str
    """One name, or several with dots between them."""
    catalog: str | None = None
    warehouse: str | None = None
    """A directory or URI, as Hadoop names it."""

    @property
    def shown(self) -> str:
        """Where the tables are, for people."""
        if self.catalog is not None:
            return f"{self.catalog}.{self.namespace}"
        return f"{self.warehouse}/{self.namespace.replace('.', '/')}"

    def shown_table(self, name: str) -> str:
        """A table, for people: its name, or the place that names it."""
        return f"{self.shown}{'/' if self.catalog is None else '.'}{name}"

    @property
    def quoted_namespace(self) -> str | None:
        """The namespace in SQL; None where tables are named by their places."""
        return None if self.catalog is None else ".".join(map(quoted, (self.catalog, *self._parts)))

    def table(self, name: str) -> str:
        """A table in SQL."""
        if self.catalog is not None:
            return f"{self.quoted_namespace}.{quoted(name)}"
        return f"delta.{quoted('/'.join((self.warehouse or '', *self._parts, name)))}"

    @property
    def _parts(self) -> list[str]:
        return self.namespace.split(".")


def table_of(statistic: Statistic, grouping: Grouping) -> str:
    """The name of a statistic's table; one about the cluster as a whole has one name for every grouping."""
    suffix = "" if statistic.only_cluster else _SUFFIXES[grouping]
    return f"{statistic.id}_{statistic.name}{suffix}"


def quoted(name: str) -> str:
    """A part of a name in SQL."""
    return "`" + name.replace("`", "``") + "`"
