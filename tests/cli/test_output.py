"""Answers for programs: the same fields in every form."""

from __future__ import annotations

import csv
import io
import json

import pytest
import yaml

from strandline.cli.output import Column, Format, flat_row, print_document, show

ROWS = [
    {"topic": "tides", "partition": 0, "isr": [1, 2], "leader": None, "clean": True},
    {"topic": 'a,"b"\nc', "partition": 1, "isr": [], "leader": 3, "clean": False, "why": "late"},
]


@pytest.mark.parametrize("form", [Format.JSON, Format.YAML])
def test_documents_are_as_they_were(form: Format, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON and YAML give every field back, whatever the columns are."""
    show(ROWS, [Column("topic", "topic")], form)
    text = capsys.readouterr().out

    assert (json.loads if form is Format.JSON else yaml.safe_load)(text) == ROWS


def test_csv_has_every_field_of_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    """The header names all fields once; a field that a row lacks, and null, are empty; text survives quoting."""
    show(ROWS, [Column("topic", "topic")], Format.CSV)
    read = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))

    assert read == [
        {"topic": "tides", "partition": "0", "isr": "1,2", "leader": "", "clean": "true", "why": ""},
        {"topic": 'a,"b"\nc', "partition": "1", "isr": "", "leader": "3", "clean": "false", "why": "late"},
    ]


def test_a_document_is_one_row_of_csv(capsys: pytest.CaptureFixture[str]) -> None:
    """Inner fields are named with a dot, lists of documents stay json."""
    print_document({"latency_ms": {"p50": 1.5}, "parts": [{"id": 1}], "none": {}}, Format.CSV)

    assert capsys.readouterr().out == 'latency_ms.p50,parts,none\n1.5,"[{""id"": 1}]",{}\n'
    assert flat_row({"a": {"b": {"c": 1}}}) == {"a.b.c": 1}


def test_no_row_is_no_csv(capsys: pytest.CaptureFixture[str]) -> None:
    """Without rows the fields are not known, and nothing is printed."""
    show([], [], Format.CSV)

    assert capsys.readouterr().out == ""
