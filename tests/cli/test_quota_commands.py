"""`strandline quota ...` over an administrator that answers from memory: checked first, changed with --yes alone."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from tests.cli.cluster_images import connected_to
from typer.testing import CliRunner, Result

from strandline.cli.app import app
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.quotas import Quota, QuotaChange, QuotaKey


class MemoryAdmin:
    """Quotas in memory; one of `client/refused` is refused."""

    def __init__(self) -> None:
        self.quotas: list[Quota] = []

    async def describe_quotas(self) -> list[Quota]:
        return self.quotas

    async def alter_quotas(self, changes: Iterable[QuotaChange], *, validate_only: bool) -> list[Refusal | None]:
        (change,) = changes
        if change.principal == "client/refused":
            return [Refusal(ErrorCode.UNSUPPORTED_VERSION, "no")]
        if not validate_only:
            self.quotas = [each for each in self.quotas if (each.principal, each.key) != change[:2]]
            if change.value is not None:
                self.quotas.append(Quota(change.principal, QuotaKey(change.key), change.value))
        return [None]


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> MemoryAdmin:
    """The administrator that commands are given."""
    return connected_to(MemoryAdmin(), monkeypatch)


def _run(*words: str) -> Result:
    return CliRunner().invoke(app, ["quota", *words, "--bootstrap", "127.0.0.1:1"])


def test_a_quota_is_set_and_removed_with_yes_alone(admin: MemoryAdmin) -> None:
    """Without it the change is only checked; bytes may have a unit; what is not there cannot be removed."""
    words = ("set", "client/x", "producer_byte_rate", "500kB")
    dry, before = _run(*words), list(admin.quotas)
    done, there = _run(*words, "--yes"), list(admin.quotas)
    absent = _run("remove", "client/x", "request_rate", "--yes")
    gone = _run("remove", "client/x", "producer_byte_rate", "--yes")

    assert "--yes applies it" in dry.output
    assert (before, there) == ([], [Quota("client/x", QuotaKey.PRODUCER_BYTE_RATE, 500_000)])
    assert [each.exit_code for each in (dry, done, absent, gone)] == [0, 0, 1, 0]
    assert admin.quotas == []


@pytest.mark.parametrize(
    "words",
    [
        ("client/x", "producer_byte_rate", "0"),
        ("client/x", "io_rate", "5"),
        ("x", "request_rate", "5"),
        ("client/x", "request_rate", "5kB"),
    ],
)
def test_what_can_be_no_quota_is_refused_before_anybody_is_asked(admin: MemoryAdmin, words: tuple[str, ...]) -> None:
    """Exit code 2 and a sentence that names what is wrong."""
    refused = _run("set", *words, "--yes")

    assert refused.exit_code == 2
    assert admin.quotas == []


def test_a_refusal_of_the_cluster_is_the_exit_code(admin: MemoryAdmin) -> None:
    """1, with the reason."""
    refused = _run("set", "client/refused", "request_rate", "5", "--yes")

    assert refused.exit_code == 1
    assert "UNSUPPORTED_VERSION" in refused.output


def test_quotas_are_listed(admin: MemoryAdmin) -> None:
    """As a table, and as JSON with the names of the protocol; without one a sentence says so."""
    none = _run("list")
    admin.quotas = [Quota("client/*", QuotaKey.REQUEST_RATE, 2.5)]
    found = json.loads(_run("list", "-o", "json").output)

    assert "no quotas" in none.output
    assert found == [{"principal": "client/*", "key": "request_rate", "value": 2.5}]
