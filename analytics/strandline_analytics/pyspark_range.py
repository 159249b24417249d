"""Checks what the installed PySpark can do: everything from 4.2 on; 4.1 cannot read streams.

In PySpark 4.1 a source written in Python can neither limit a micro-batch nor read the present data and end. The live
statistics are tested only from 4.2 on.

Invariant: anything that a version cannot do is refused with one sentence that names the version and what works.
"""

from __future__ import annotations

import re

import pyspark

STREAMS_SINCE = (4, 2)


class NeedsNewerSpark(Exception):
    """The installed PySpark cannot do what was requested."""


def check_streams(instead: str, *, version: str = pyspark.__version__) -> None:
    """Refuse to read a stream if PySpark cannot.

    Args:
        instead: what to use, for the message.
        version: the version that PySpark reports.

    Raises:
        NeedsNewerSpark: PySpark is older than `STREAMS_SINCE`.
    """
    if numbers_of(version) < STREAMS_SINCE:
        since = ".".join(map(str, STREAMS_SINCE))
        raise NeedsNewerSpark(f"reading as a stream needs PySpark {since} or newer, and this is {version}; {instead}")


def numbers_of(version: str) -> tuple[int, ...]:
    """Major and minor number of a version."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))
