"""Options that were named after their unit are still taken, for one release."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.cli.options import FORMER, in_todays_words


@pytest.mark.parametrize(
    ("words", "today"),
    [
        ("node shutdown 1 --deadline-s 30", "node shutdown 1 --deadline 30s"),
        ("produce t --linger-ms=5.0 --acks 1", "produce t --linger 5.0ms --acks 1"),
        ("sim run --minutes 2", "sim run --time 2m"),
        ("certs renew d --days 90", "certs renew d --valid-for 90d"),
    ],
)
def test_a_former_option_is_todays_with_a_unit(words: str, today: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The number gets the unit that the name had, and stderr says how to write it."""
    assert in_todays_words(words.split()) == today.split()
    option = next(word for word in today.split() if word.startswith("--"))
    assert f"is now {option} {today.split()[today.split().index(option) + 1]}; " in capsys.readouterr().err


def test_other_words_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """A former name counts for its own command only, and never behind `--`."""
    for words in ("topic list --minutes 2", "produce -- --linger-ms 5", "produce t --linger 5ms", ""):
        assert in_todays_words(words.split()) == words.split()
    assert capsys.readouterr().err == ""


def test_a_former_option_reaches_its_command() -> None:
    """The value is checked like today's, under today's name; without a number it is a usage error."""
    wrong = CliRunner().invoke(app, ["certs", "renew", ".", "--days", "9999"])
    missing = CliRunner().invoke(app, ["certs", "renew", ".", "--days"])

    assert (wrong.exit_code, missing.exit_code) == (2, 2)
    assert "9999d is too long; give 3650d or less" in wrong.stderr
    assert "Invalid value for '--valid-for'" in missing.stderr


def test_every_former_option_has_a_successor() -> None:
    """Each command has the option that replaces a former one, and no longer the former."""
    root = typer.main.get_command(app)
    for name, options in FORMER.items():
        command = root
        for word in name.split():
            command = command.commands[word]  # type: ignore[attr-defined]  # a click group
        known = {option for parameter in command.params for option in parameter.opts}
        assert {today for today, _ in options.values()} <= known, name
        assert set(options) & known == set(), name
