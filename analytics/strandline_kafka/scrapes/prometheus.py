"""Asks a Prometheus for the recorded samples of a period: ranges by its API, one piece after the other.

A range selector in an instant query gives samples with the times of their scrapes; query_range would give values at
steps. Invariant: of an answer at most `MOST_BYTES` are held, and every wait has a deadline.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from urllib.parse import urlencode, urlsplit

from strandline_kafka.metadata.wire import Unreadable
from strandline_kafka.scrapes.series import Form, Mapping

PIECE_MS = 300_000
"""Some 600,000 samples of 10,000 partitions in three replicas at 15 s."""
MOST_BYTES = 256 << 20
WAIT_S = 60.0
_API = "/api/v1/query"
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""An opener without the proxy that the environment may set for other connections."""


class PrometheusUnreachable(Exception):
    """Prometheus cannot be reached; the text says where."""


def is_address(text: str) -> bool:
    """Whether a source is a Prometheus, not a file."""
    return text.startswith(("http://", "https://"))


def answers(address: str, mapping: Mapping, start_ms: int, end_ms: int) -> Iterator[bytes]:
    """The answers for all pieces of a period, in order; each is a matrix.

    Args:
        address: the server's address, with the path before its API.
        start_ms: the start, ms since 1970.
        end_ms: the end, ms since 1970.

    Raises:
        Unreadable: the address cannot be asked, or an answer is too large.
        Unanswered: no server answers.
    """
    parts = urlsplit(address)
    if not parts.hostname or parts.username is not None or parts.query or parts.fragment:
        raise Unreadable(f"{parts.scheme}://{parts.hostname or ''}: give scheme, host, port and path, and nothing else")
    base = address.rstrip("/") + _API
    for begin_ms in range(start_ms, end_ms, PIECE_MS):
        over_ms = min(begin_ms + PIECE_MS, end_ms)
        for form in mapping.forms:
            # A range is open at its beginning.
            asked = {"query": f"{selector(form)}[{over_ms - begin_ms}ms]", "time": f"{over_ms / 1000:.3f}"}
            yield _asked(f"{base}?{urlencode(asked)}")


def selector(form: Form) -> str:
    """The series of a rule set, in Prometheus's language."""
    labels = "".join(f',{name}="{_quoted(value)}"' for name, value in form.where)
    return f'{{__name__=~"(?i:{form.metric})"{labels}}}'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _asked(url: str) -> bytes:
    where = url.partition("?")[0]
    try:
        with _OPENER.open(url, timeout=WAIT_S) as answer:
            content: bytes = answer.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        # When Prometheus refuses a query, its answer has the reason.
        said = error.read(300).decode("utf-8", "replace")
        raise Unreadable(f"{where}: {error.code} {error.reason}: {said}") from error
    except (OSError, HTTPException) as error:
        raise PrometheusUnreachable(f"{where}: {getattr(error, 'reason', None) or error}") from error
    if len(content) > MOST_BYTES:
        raise Unreadable(f"{where}: an answer of more than {MOST_BYTES >> 20} MiB; choose fewer series under [where]")
    return content
