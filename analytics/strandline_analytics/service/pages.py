"""Cuts an answer into pages, and keeps recent answers so that the next page costs nothing.

A token names the question, the input it was answered from, and the next row. All pages of an answer come from one
computation: an answer that is no longer kept is computed again, but only from the very same files.

Invariant: the kept answers have at most ``most_rows`` rows in all; a token is valid for its own question only.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from strandline.v1 import analytics_service_pb2 as pb
from strandline_analytics.report import Report
from strandline_analytics.service import questions

_Part = TypeVar("_Part")
_TOKEN_FIELD = "page_token"


@dataclass(frozen=True, slots=True)
class Answer(Generic[_Part]):
    """All rows of an answer, and the header that precedes them."""

    input_hash: str
    rows: Sequence[_Part]
    header: Any = None


@dataclass(frozen=True, slots=True)
class Continuation:
    """The position at which an answer continues; ``input_hash`` is empty for the first page."""

    input_hash: str = ""
    offset: int = 0


def fingerprint(request: Message) -> str:
    """A hash of the question without its paging: 16 hexadecimal digits."""
    question = type(request)()
    question.CopyFrom(request)
    for name in ("page_size", _TOKEN_FIELD, "speed"):
        if name in request.DESCRIPTOR.fields_by_name:
            question.ClearField(name)
    content = request.DESCRIPTOR.full_name.encode() + question.SerializeToString(deterministic=True)
    return hashlib.sha256(content).hexdigest()[:16]


def read_token(token: str, question: str) -> Continuation:
    """The position at which a request continues.

    Raises:
        Refused: the token is not one of this service, or belongs to another question.
    """
    if not token:
        return Continuation()
    try:
        of, input_hash, offset = json.loads(base64.urlsafe_b64decode(token.encode("ascii")))
        place = Continuation(str(input_hash), int(offset))
    except (ValueError, TypeError, RecursionError, binascii.Error) as error:
        raise questions.wrong(_TOKEN_FIELD, "it is a next_page_token of this server", _BEGIN) from error
    if of != question or place.offset < 0:
        raise questions.wrong(_TOKEN_FIELD, "it belongs to the very question that it was the answer to", _BEGIN)
    return place


def next_token(question: str, answer: Answer[Any], end: int) -> str:
    """The token for the rows after the first ``end``; empty if there are none."""
    if end >= len(answer.rows):
        return ""
    return base64.urlsafe_b64encode(json.dumps([question, answer.input_hash, end]).encode()).decode()


def check_same_input(place: Continuation, input_hash: str) -> None:
    """Refuse to continue an answer if the input has changed.

    Raises:
        Refused: the files are not those of the first page.
    """
    if place.input_hash not in ("", input_hash):
        raise questions.wrong(_TOKEN_FIELD, "the input has changed since the first page", _BEGIN)


class KeptAnswers:
    """The answers to the latest questions."""

    def __init__(self, most_rows: int) -> None:
        self._most_rows = most_rows
        self._answers: OrderedDict[tuple[str, str], Answer[Any]] = OrderedDict()

    def find(self, question: str, input_hash: str) -> Answer[Any] | None:
        """The answer from this input, if it is kept."""
        found = self._answers.get((question, input_hash))
        if found is not None:
            self._answers.move_to_end((question, input_hash))
        return found

    def keep(self, question: str, answer: Answer[Any]) -> None:
        """Keep an answer, and drop the oldest ones until all fit; the newest one always stays."""
        self._answers[question, answer.input_hash] = answer
        self._answers.move_to_end((question, answer.input_hash))
        while len(self._answers) > 1 and sum(len(one.rows) for one in self._answers.values()) > self._most_rows:
            self._answers.popitem(last=False)


_BEGIN = "leave it empty to begin at the first row"


# ---- reports
# A report as the service keeps and sends it: the findings, and the page and its figures in pieces.
#
# Invariant: the pieces in their order are the page that `strandline analytics report` writes over the same files.

PIECE_BYTES = 256 * 1024
"""The size of a piece, far below the limit of a message."""


def parts_of(report: Report) -> Iterator[pb.GetReportResponse]:
    """The messages of an answer, in order."""
    yield pb.GetReportResponse(found=pb.ReportFound(verdict=report.verdict, troubles=report.troubles))
    for piece in _pieces(report.page):
        yield pb.GetReportResponse(page=piece)
    for piece in _pieces(report.figures):
        yield pb.GetReportResponse(figures=piece)


def _pieces(text: str) -> Iterator[bytes]:
    content = text.encode()
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]
