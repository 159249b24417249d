"""`strandline acl ...` over an administrator that answers from memory: checked first, changed with --yes alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.cluster_images import connected_to
from typer.testing import CliRunner, Result

from strandline.cli.app import app
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.permissions import Rule


class MemoryAdmin:
    """Rules in memory; one about `refused` is refused."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []

    async def describe_acls(self) -> list[Rule]:
        return self.rules

    async def create_acls(self, rules: Iterable[Rule], *, validate_only: bool = False, force: bool) -> list[Any]:
        given = list(rules)
        if not validate_only:
            self.rules += given
        return [Refusal(ErrorCode.POLICY_VIOLATION, "no") if each.name == "refused" else None for each in given]

    async def delete_acls(self, rules: Iterable[Rule], *, validate_only: bool = False, force: bool) -> list[Any]:
        given = list(rules)
        if not validate_only:
            self.rules = [each for each in self.rules if each not in given]
        return [None] * len(given)


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> MemoryAdmin:
    """The administrator that commands are given."""
    return connected_to(MemoryAdmin(), monkeypatch)


def _run(*words: str) -> Result:
    return CliRunner().invoke(app, ["acl", *words, "--bootstrap", "127.0.0.1:1"])


def test_a_rule_is_added_with_yes_alone(admin: MemoryAdmin) -> None:
    """Without it the rule is only checked; a refused one changes nothing, and the exit code says so."""
    words = ("add", "client/x", "read", "topic:a.", "--prefixed", "--deny")
    dry, refused = _run(*words), _run("add", "client/x", "READ", "topic:refused", "--yes")
    before = list(admin.rules)
    done = _run(*words, "--yes")

    assert (dry.exit_code, refused.exit_code, done.exit_code) == (0, 1, 0)
    assert "--yes applies it" in dry.output
    assert (before, [str(each) for each in admin.rules]) == ([], ["client/x DENY READ topic PREFIXED a."])


def test_what_is_listed_is_what_files_hold(admin: MemoryAdmin, tmp_path: Path) -> None:
    """`list -o yaml` is read by `add --file`, and by `remove --file`."""
    _run("add", "client/x", "ALTER", "cluster", "--yes")
    file = tmp_path / "rules.yaml"
    file.write_text(_run("list", "-o", "yaml").output)
    rules = admin.rules
    removed = _run("remove", "--file", str(file), "--yes")
    empty = list(admin.rules)
    _run("add", "--file", str(file), "--yes")

    assert (removed.exit_code, empty, admin.rules) == (0, [], rules)


@pytest.mark.parametrize("content", ["", "7", "- principal: client/x", "[{]", "- {principal: x, a: b}"])
def test_a_file_without_rules_is_refused(admin: MemoryAdmin, tmp_path: Path, content: str) -> None:
    """Nothing, something else, a part of a rule, no YAML."""
    file = tmp_path / "rules.yaml"
    file.write_text(content)

    assert _run("add", "--file", str(file), "--yes").exit_code == 2
    assert admin.rules == []


@pytest.mark.parametrize(
    "words",
    [
        ("client/x", "READ"),
        ("client/x", "FLY", "topic:t"),
        ("client/x", "READ", "toaster:t"),
        ("client/x", "READ", "topic:"),
        ("root", "READ", "topic:t"),
        ("client/x", "READ", "topic:a\x07b"),
    ],
)
def test_words_that_are_no_rule_are_refused(admin: MemoryAdmin, words: tuple[str, ...]) -> None:
    """Too few, and what there is not; nothing of them reaches the terminal as it came."""
    result = _run("add", *words, "--yes")

    assert result.exit_code == 2
    assert "\x07" not in result.output


def test_test_says_which_rule_decides(admin: MemoryAdmin) -> None:
    """The denial if there is one, else what allows, else that nothing does; exit code 1 unless it is allowed."""
    for words in (("add", "client/*", "READ", "topic:*"), ("add", "client/x", "READ", "topic:a", "--deny")):
        _run(*words, "--yes")
    denied, allowed = _run("test", "client/x", "READ", "topic:a"), _run("test", "client/x", "DESCRIBE", "topic:a")
    nothing = _run("test", "client/x", "WRITE", "topic:a", "-o", "json")

    assert "denied by the rule 'client/x DENY READ topic LITERAL a'" in denied.output
    assert "allowed by the rule 'client/* ALLOW READ topic LITERAL *'" in allowed.output
    assert [denied.exit_code, allowed.exit_code, nothing.exit_code] == [1, 0, 1]
    assert json.loads(nothing.output)["rule"] is None
