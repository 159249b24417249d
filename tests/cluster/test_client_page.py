"""What docs/CLIENT.md shows works against a running cluster, and leaves no method of the clients out."""

from __future__ import annotations

import ast
import asyncio
import functools
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline import client
from strandline.cli.local.authority import issue, new_authority
from strandline.cli.local.local_cluster import LocalCluster
from strandline.client import Admin, sync
from strandline.rpc.permissions import parse_identity

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "CLIENT.md").read_text()
SCRIPT, *BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TOPIC = "waves"
CLIENTS = {name: getattr(client, name) for name in ("Producer", "Transaction", "Consumer", "Admin")}
_ONLY_IN_A_LOOP = {"start", "close"}
"""What `with` and `async with` call."""


def methods(cls: type) -> list[str]:
    """Every public method and property."""
    return [name for name, member in vars(cls).items() if not name.startswith("_") and _is_shown(member)]


def _is_shown(member: object) -> bool:
    return inspect.isfunction(member) or isinstance(member, property)


class Recorder:
    """Notes which methods were called, and which of their parameters were given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.used: dict[str, set[str]] = {}
        for name, cls in CLIENTS.items():
            for member in [*methods(cls), "__init__"]:
                found = vars(cls)[member]
                noting = property(self._noting(name, member, found.fget)) if isinstance(found, property) else None
                monkeypatch.setattr(cls, member, noting or self._noting(name, member, found))

    def _noting(self, cls: str, member: str, function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def noting(*arguments: Any, **named: Any) -> Any:
            given = signature.bind(*arguments, **named).arguments
            self.used.setdefault(f"{cls}.{member}", set()).update(given)
            return function(*arguments, **named)

        return noting


async def test_the_page_runs(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every example runs as it is shown, one after the other, and together they use every method and parameter."""
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(TOPIC, partitions=3, replication_factor=3)
    script = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", SCRIPT, cluster.bootstrap], capture_output=True, text=True, timeout=60
    )
    recorder = Recorder(monkeypatch)
    authority = new_authority("c1", 1)
    issued = issue(authority, parse_identity("strandline://c1/client/billing"), ["localhost"], 1)
    names: dict[str, Any] = {
        "__name__": "__page__",
        "bootstrap": cluster.bootstrap,
        "certificate": issued.cert,
        "private_key": issued.key,
        "authority": authority.pem,
    }
    async with asyncio.timeout(90):
        for block in BLOCKS:
            code = compile(block, "docs/CLIENT.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            running = eval(code, names)
            if inspect.isawaitable(running):
                await running
    printed = capsys.readouterr().out

    assert script.returncode == 0, script.stderr[-2_000:]
    assert "b'spring'" in script.stdout
    assert "b'from a script'" in printed
    unused = {
        f"{name}.{member}: {parameter}"
        for name, cls in CLIENTS.items()
        for member in [*methods(cls), "__init__"]
        if member not in _ONLY_IN_A_LOOP
        for parameter in _parameters(cls, member) - recorder.used.get(f"{name}.{member}", set())
    }
    assert unused == set()


@pytest.mark.slow
def test_the_examples_are_typed(tmp_path: Path) -> None:
    """Every example passes `mypy --strict`, as a user's program would that begins as it does."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "page.py").write_text(_as_module(BLOCKS))
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", tmp_path / "cache", tmp_path],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout


def _as_module(blocks: list[str]) -> str:
    """The examples as functions, with what they import and define in front of them, where later ones see it."""
    shown: list[str] = []
    functions: list[str] = []
    given = ", ".join(["bootstrap: str", "certificate: bytes", "private_key: bytes", "authority: bytes"])
    for number, block in enumerate(blocks):
        does = [f"async def block_{number}({given}) -> None:", "    pass"]
        for node in ast.parse(block).body:
            if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                shown.append(ast.unparse(node))
            else:
                does.append(textwrap.indent(ast.unparse(node), "    "))
        functions.append("\n".join(does))
    return "\n\n\n".join(["from __future__ import annotations", *shown, *functions]) + "\n"


def _parameters(cls: type, member: str) -> set[str]:
    found = vars(cls)[member]
    return set(inspect.signature(found.fget if isinstance(found, property) else found).parameters)


def test_the_blocking_clients_are_used_too() -> None:
    """The page has an example of each class of `strandline.client.sync`."""
    assert [
        name for name in sync.__all__ if name not in ("Delivery", "Transaction") and f"sync.{name}(" not in PAGE
    ] == []
