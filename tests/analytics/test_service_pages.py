"""Pages of an answer: a token is valid for its own query and input, and stored answers stay within a bound."""

from __future__ import annotations

import pytest

from strandline.core.errors import ErrorCode, Refused
from strandline.v1 import analytics_service_pb2 as pb
from strandline_analytics.service import pages

_ROWS = pages.Answer("0123456789abcdef", list(range(10)))


def _question(**fields: object) -> str:
    return pages.fingerprint(pb.QueryRequest(stat="s10", **fields))  # type: ignore[arg-type]


def test_a_token_leads_to_the_next_row() -> None:
    """A token names the input and the row at which the next page begins; after the last row there is none."""
    token = pages.next_token(_question(), _ROWS, 4)

    assert pages.read_token(token, _question()) == pages.Place("0123456789abcdef", 4)
    assert pages.read_token("", _question()) == pages.Place("", 0)
    assert pages.next_token(_question(), _ROWS, 10) == ""


def test_paging_is_no_part_of_the_question() -> None:
    """A page may be larger than the one before; any other difference makes another query."""
    token = pages.next_token(_question(), _ROWS, 4)

    assert _question(page_size=3, page_token=token) == _question()
    assert _question(step_us=60) != _question()
    assert pages.fingerprint(pb.GetTimelineRequest()) != pages.fingerprint(pb.GetCoverageRequest())


@pytest.mark.parametrize(
    "token",
    ["nonsense", "bm8=", "é", "WyJhIiwgImIiXQ==", "W1tb" * 20_000, pages.next_token(_question(step_us=60), _ROWS, 4)],
    ids=["no base64", "no JSON", "no ASCII", "too short", "too deep", "of another question"],
)
def test_a_token_that_is_not_of_this_question_is_refused(token: str) -> None:
    """The error names the field, the rule and the remedy."""
    with pytest.raises(Refused) as caught:
        pages.read_token(token, _question())

    refusal = caught.value.refusal
    assert (refusal.code, refusal.field) == (ErrorCode.INVALID_REQUEST, "page_token")
    assert refusal.rule
    assert refusal.remedy


def test_another_input_ends_an_answer() -> None:
    """A page of other files would not follow the one before it."""
    pages.check_same_input(pages.Place(), "fedcba9876543210")
    with pytest.raises(Refused, match="the input has changed"):
        pages.check_same_input(pages.Place("0123456789abcdef", 4), "fedcba9876543210")


def test_the_oldest_answers_are_let_go_of() -> None:
    """All stored answers together have no more rows than the bound; the newest stays in any case."""
    kept = pages.KeptAnswers(25)
    for question in ("a", "b", "c"):
        kept.keep(question, _ROWS)

    assert [kept.find(question, _ROWS.input_hash) is not None for question in "abc"] == [False, True, True]
    kept.keep("large", pages.Answer("h", list(range(100))))
    assert kept.find("large", "h") is not None
    assert kept.find("c", _ROWS.input_hash) is None
