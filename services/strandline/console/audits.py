"""The page of the audit: what callers changed and were refused lately, as the cluster's processes tell of it.

Pure: answers in, rows out. Invariant: what the console's own certificate may not see is said to be so, not shown empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from strandline.v1 import metadata_service_pb2

MOST_ROWS = 200
"""Events that the page shows, the newest."""


class AuditLook(NamedTuple):
    """What one process answered last, or why it did not."""

    answer: metadata_service_pb2.DescribeAuditResponse | None = None
    failure: str = ""


class AuditRow(NamedTuple):
    """One event; ``process`` told of it, ``changes`` has name, before and after."""

    wall_us: int
    process: str
    principal: str
    peer: str
    what: str
    is_refused: bool
    times: int
    rule: str
    changes: tuple[tuple[str, str, str], ...]


def audit_rows(looks: Mapping[str, AuditLook]) -> tuple[AuditRow, ...]:
    """The newest events of all processes, the newest first."""
    found = [row for process, look in looks.items() if look.answer is not None for row in _rows(process, look.answer)]
    return tuple(sorted(found, reverse=True)[:MOST_ROWS])


def _rows(process: str, answer: metadata_service_pb2.DescribeAuditResponse) -> Iterable[AuditRow]:
    for event in answer.events:
        names = sorted({*event.before, *event.after})
        yield AuditRow(
            event.ts_wall_us,
            process,
            event.principal or "several",
            event.peer,
            " ".join(filter(None, (event.method.rpartition("/")[2], event.resource_type, event.resource_name))),
            event.outcome == "REFUSED",
            event.n_coalesced,
            event.rule,
            tuple((name, event.before.get(name, "–"), event.after.get(name, "–")) for name in names),
        )
