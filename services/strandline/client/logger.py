"""Where the client logs: the standard library's logger "strandline.client", silent until a program asks for it.

Invariant: no line has a key, a value or a header in it, and none is written per record. WARNING: something has been
tried again for longer than a second. INFO: assignments, leaders that move, and the end of what was warned of.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

log = logging.getLogger("strandline.client")
log.addHandler(logging.NullHandler())

_NAMED = 10


def some_of(partitions: Iterable[tuple[str, int] | str]) -> str:
    """The first partitions by name and how many more there are: a line stays a line with a thousand of them."""
    names = [one if isinstance(one, str) else f"{one[0]}-{one[1]}" for one in partitions]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (", ".join(names[:_NAMED]) or "nothing") + more
