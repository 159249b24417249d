"""The errors of a question that cannot be answered: what is wrong, by which rule, and what to do next.

Invariant: only the text of these errors is shown to users; it names the file or the argument.
"""

from __future__ import annotations

import re

from strandline_analytics.pyspark_range import NeedsNewerSpark
from strandline_analytics.tables.runtimes import NoRuntime

_FILE_OF_SPARK = re.compile(r"(?:FAILED_READ_FILE\S*\]?|reading file)[^/]*?((?:file|[a-z0-9]+)?:?/\S+?)[.,]?(?:\s|$)")
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE|\n|$)")
_OF_PLACES = re.compile(
    r"\[[A-Z_]*PATH[A-Z_]*\] (?P<said>.*?)(?: SQLSTATE|\n|$)"
    r"|(?P<kind>Permission denied|No space left on device|Mkdirs failed|Disk quota exceeded)(?P<more>[^\n]*)"
)
"""Messages of Spark and Hadoop, in the lines of a trace, about a place that cannot be read or written."""
_OTHER_TYPE = re.compile(r"column: \[(?P<column>[^\]]*)\], physicalType: (?P<is_>\w+), logicalType: (?P<must_be>\w+)")


class InputTrouble(Exception):
    """The input cannot be used as it is."""


class NothingThere(InputTrouble):
    """There are no exported events in the given place or window."""


class DamagedFile(InputTrouble):
    """A file does not have the required contents."""


class TooLong(InputTrouble):
    """There are more windows than a request can sensibly ask for: most likely a clock reported a wrong time."""


class Incomplete(InputTrouble):
    """The input is less complete than was required."""


def explained(error: BaseException) -> Exception | None:
    """The error to report for an exception; None if it is a defect and must show its traceback."""
    from strandline_analytics.silver.events import ConflictingEvents

    if isinstance(error, InputTrouble | ConflictingEvents | NeedsNewerSpark | NoRuntime):
        return error
    text = str(error)
    if "JAVA_GATEWAY_EXITED" in text:
        return InputTrouble("Java did not start Spark; it needs Java 17 or newer: see java -version, JAVA_HOME")
    if raised := _RAISED.search(text):
        return DamagedFile(raised[1])
    if "FAILED_READ_FILE" in text or "is not a Parquet file" in text:
        return _unreadable(text)
    if found := _OF_PLACES.search(text):
        said = found["said"] or f"{found['kind']}{found['more']}"
        return InputTrouble(f"Spark cannot read or write there: {said.strip()}")
    return None


def _unreadable(text: str) -> DamagedFile:
    found, other = _FILE_OF_SPARK.search(text), _OTHER_TYPE.search(text)
    reason = (
        f"column {other['column']} is {other['is_']}, and {other['must_be'].upper()} in the schema of exported events. "
        "Rule: a file has the columns of the schema, so this one was written by something else"
        if other
        else "it is damaged inside, or no Parquet file. Rule: a file is there whole or not at all"
    )
    return DamagedFile(
        f"{found[1] if found else 'a Parquet file'} cannot be read: {reason}. Export it again, or take it away "
        "together with its manifest; its hour then counts as incomplete"
    )
