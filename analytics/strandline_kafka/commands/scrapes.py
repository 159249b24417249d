"""`--prometheus` of `strandline analytics import kafka`: the log ends in a Prometheus or its files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from strandline.cli.failures import EXIT_REFUSED, EXIT_UNREACHABLE, CommandFailed

if TYPE_CHECKING:
    from strandline_kafka.scrapes.series import Mapping, Reader, Scrapes

_ANSWER = re.compile(rb'\s*\{\s*"')
"""The beginning of an object; a line of a metric may begin with the brace of its labels."""


def read_scrapes(sources: Sequence[str], mapping_file: Path | None, span_ms: tuple[int, int]) -> Scrapes | None:
    """All log ends in the sources; None if no source was given.

    Args:
        span_ms: the period for which a Prometheus is asked, ms since 1970.

    Raises:
        typer.BadParameter: the mapping cannot be read, or is unused.
        CommandFailed: a source cannot be read, or nothing answers.
        OSError: a file cannot be opened.
    """
    from strandline_kafka.metadata.wire import Unreadable
    from strandline_kafka.scrapes.prometheus import PrometheusUnreachable
    from strandline_kafka.scrapes.series import Mapping, Reader, read_mapping

    if not sources:
        if mapping_file is not None:
            raise typer.BadParameter("--prometheus-mapping goes with --prometheus")
        return None
    try:
        mapping = Mapping() if mapping_file is None else read_mapping(mapping_file)
    except Unreadable as error:
        raise typer.BadParameter(f"--prometheus-mapping: {error}") from error
    reader = Reader(mapping)
    try:
        for source in sources:
            _read_scrapes(source, reader, mapping, span_ms)
        scrapes = reader.found()
        period_ms = scrapes.period_ms()
    except Unreadable as error:
        raise CommandFailed(f"--prometheus: {error}", EXIT_REFUSED) from error
    except PrometheusUnreachable as error:
        raise CommandFailed(f"--prometheus: {error}", EXIT_UNREACHABLE) from error
    replicas = sum(map(len, scrapes.by_node.values()))
    typer.echo(
        f"Prometheus: {scrapes.samples:,} samples of {replicas:,} replicas on nodes "
        f"{', '.join(map(str, sorted(scrapes.by_node)))}, every {period_ms:,} ms"
    )
    return scrapes


def _read_scrapes(source: str, reader: Reader, mapping: Mapping, span_ms: tuple[int, int]) -> None:
    """Read a Prometheus, or one file of it: an object is an answer, anything else a text."""
    from strandline_kafka.scrapes.prometheus import answers, is_address

    if is_address(source):
        for content in answers(source, mapping, *span_ms):
            reader.take_answer(source, content)
        return
    with Path(source).open("rb") as file:
        is_answer = _ANSWER.match(file.read(64)) is not None
        file.seek(0)
        if is_answer:
            reader.take_answer(source, file.read())
        else:
            reader.take_text(source, (line.decode("utf-8", "replace") for line in file))
