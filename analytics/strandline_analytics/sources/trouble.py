"""Decides how a question that cannot be answered is told: what is wrong, by which rule, and what to do next.

Invariant: whoever shows these errors shows their text alone; it names the file or the argument.
"""

from __future__ import annotations

import re

_FILE_OF_SPARK = re.compile(r"(?:FAILED_READ_FILE\S*\]?|reading file)[^/]*?((?:file|[a-z0-9]+)?:?/\S+?)[.,]?(?:\s|$)")
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE|\n|$)")
_FIRST_LINES = 300


class InputTrouble(Exception):
    """The input cannot be used as it is."""


class NothingThere(InputTrouble):
    """There are no exported events where they were looked for."""


class DamagedFile(InputTrouble):
    """A file is not what it must be."""


class TooLong(InputTrouble):
    """There are more windows than anybody meant: most likely a clock told a time that was never."""


class Incomplete(InputTrouble):
    """Less of the input is there than was required."""


def explained(error: BaseException) -> Exception | None:
    """What an exception means for whoever asked; None when it is a defect and must show its traceback."""
    from strandline_analytics.silver.events import ConflictingEvents

    if isinstance(error, InputTrouble | ConflictingEvents):
        return error
    text = str(error)
    if "JAVA_GATEWAY_EXITED" in text:
        return InputTrouble("Java did not start Spark; it needs Java 17 or newer: see java -version, JAVA_HOME")
    if raised := _RAISED.search(text):
        return DamagedFile(raised[1])
    if "FAILED_READ_FILE" in text or "is not a Parquet file" in text:
        found = _FILE_OF_SPARK.search(text)
        return DamagedFile(
            f"{found[1] if found else 'a Parquet file'} cannot be read: {text[:_FIRST_LINES].splitlines()[0]}. Rule: a "
            "file is there whole or not at all. Export it again, or take it away together with its manifest; its hour "
            "then counts as incomplete"
        )
    return None
