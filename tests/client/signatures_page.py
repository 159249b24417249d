"""Writes the clients' signatures into docs/CLIENT.md, each with the first sentence about it: `make client-sync`."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "services" / "strandline" / "client"
PAGE = ROOT / "docs" / "CLIENT.md"

CLASSES = {
    "Producer": "producer",
    "Delivery": "delivery",
    "Transaction": "transaction",
    "Consumer": "consumer",
    "Admin": "admin",
    "RebalanceListener": "rebalance_listener",
    "Interceptor": "interceptor",
}
"""In the order of the page, with their modules."""

_MADE_BY_THE_CLIENT = {"Delivery", "Transaction"}

_PLACE = re.compile(r"(<!-- signatures: .*? -->\n).*?(<!-- end of signatures -->)", re.DOTALL)


def with_signatures(page: str) -> str:
    """The page with the signatures as they are now."""
    return _PLACE.sub(lambda place: f"{place[1]}{_all()}{place[2]}", page)


def _all() -> str:
    text = ""
    for name in CLASSES:
        definition = _definition(name)
        heading = ast.unparse(ast.ClassDef(name, definition.bases, [], [ast.Pass()], []))
        shown = [node for node in definition.body if _is_public(node) and not _is_ours_alone(name, node)]
        stub = heading.removesuffix("    pass") + "\n".join(map(_signature, shown))
        text += f"\n```text\n{_formatted(stub).strip()}\n```\n"
    return text + "\n"


class _Constants(ast.NodeTransformer):
    """Puts the values of a module's constants in the place of their names."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = getattr(self._module, node.id, None)
        return ast.Constant(value) if isinstance(value, int | str) else node


def _definition(name: str) -> ast.ClassDef:
    module = ast.parse((CLIENT / f"{CLASSES[name]}.py").read_text())
    found = next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == name)
    with_values = _Constants(import_module(f"strandline.client.{CLASSES[name]}")).visit(found)
    assert isinstance(with_values, ast.ClassDef)
    return with_values


def _is_ours_alone(name: str, node: ast.AST) -> bool:
    return name in _MADE_BY_THE_CLIENT and getattr(node, "name", "") == "__init__"


def _is_public(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
        not node.name.startswith("_") or node.name in ("__init__", "__anext__")
    )


def _signature(node: ast.AST) -> str:
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    decorators = "".join(f"    @{ast.unparse(one)}\n" for one in node.decorator_list)
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    said = (ast.get_docstring(node) or "").partition("\n\n")[0].replace("\n", " ").partition(". ")[0].rstrip(".")
    comment = f"        # {said}.\n" if said and node.name != "__init__" else "        #\n"
    return f"{decorators}    {kind} {node.name}({ast.unparse(node.args)}){returns}:\n{comment}        ..."


def _formatted(stub: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    command = [str(ruff), "format", "--quiet", "--stdin-filename", str(CLIENT / "signatures.py"), "-"]
    text = subprocess.run(command, input=stub, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    # The body of a stub says nothing.
    return re.sub(r":\n(        #.*\n)        \.\.\.\n", lambda found: f"\n{found[1]}", text).replace("        #\n", "")


if __name__ == "__main__":
    PAGE.write_text(with_signatures(PAGE.read_text()))
