"""Writes `strandline.client.sync` from the asynchronous clients, so that both have the same names: `make generated`.

A method that waits is passed to the thread of the process; one that does not wait is called there. Signatures and
docstrings are taken over as they are written in the source.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "services" / "strandline" / "client"
TARGET = CLIENT / "sync.py"

CLIENTS = {"Producer": "Blocking", "Consumer": "BlockingReader", "Admin": "Blocking"}
"""The classes, and what each derives from; each is in the module of its name."""

DUNDERS = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}
"""How Python calls what waits, and what does not."""

HEAD = '''"""The clients for programs without an event loop: the same names, and every call waits.

Written from the asynchronous clients by `make generated`; edit those.

All clients of a process share one thread with an event loop, which the first call starts. Functions that are given to
a client (``on_done``, ``on_delivery``, ``on_stats``, serializers and a producer's interceptors) are called in that
thread, must not block and cannot call a client; deserializers and a consumer's interceptors are called by `for` in the
thread of the loop, and by `poll` in the other one. A `Producer` and an `Admin` may be used by several threads at a
time, a `Consumer` by one.

A client that was started before a fork cannot be used behind it, and says so (`ForkedAfterUse`).
"""

from __future__ import annotations

'''


@dataclass
class Names:
    """What the signatures name, and from where it comes."""

    imports: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def read(self, module: ast.Module, module_name: str) -> None:
        """Note what a module imports and defines."""
        for node in module.body:
            if isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__":
                self.imports |= {alias.asname or alias.name: node.module for alias in node.names}
            elif isinstance(node, ast.ClassDef):
                self.imports.setdefault(node.name, module_name)

    def note(self, *nodes: ast.AST | None) -> None:
        """These expressions will be written."""
        for node in nodes:
            if node is not None:
                self.used |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}

    def lines(self, own: set[str]) -> list[str]:
        """The imports that are needed."""
        wanted = sorted((self.imports[name], name) for name in self.used & self.imports.keys() - own)
        return [f"from {module} import {name}" for module, name in wanted]


def written() -> str:
    """The module's text, formatted."""
    names = Names()
    classes = [_class(name, base, names) for name, base in CLIENTS.items()]
    names.used -= {"Delivery", "Transaction"}
    lines = names.lines(set(CLIENTS))
    lines.append("from strandline.client import admin, consumer, producer")
    lines.append("from strandline.client.blocking import Blocking, BlockingReader, Delivery, Transaction")
    exported = sorted([*CLIENTS, "Delivery", "Transaction"])
    text = HEAD + "\n".join(lines) + f"\n\n__all__ = {exported!r}\n\n\n" + "\n\n\n".join(classes) + "\n"
    text = _ruff("check", "--fix-only", "--select", "I", "--quiet", text=text)
    return _ruff("format", "--quiet", text=text)


def _ruff(*arguments: str, text: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    command = [str(ruff), *arguments, "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def _class(name: str, base: str, names: Names) -> str:
    module_name = name.lower()
    module = ast.parse((CLIENT / f"{module_name}.py").read_text())
    names.read(module, f"strandline.client.{module_name}")
    definition = next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == name)
    generic = next((ast.unparse(one) for one in definition.bases if "Generic" in ast.unparse(one)), "")
    names.note(*definition.bases)
    body = [_method(node, module_name, generic, names) for node in definition.body if _is_public(node)]
    heading = f"class {name}({base}{', ' + generic if generic else ''}):"
    doc = _quoted((ast.get_docstring(definition) or "").replace("an async context", "a context"), 1)
    return "\n\n".join([f"{heading}\n{doc}", *body])


def _is_public(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
        not node.name.startswith("_") or node.name == "__init__" or node.name in DUNDERS
    )


def _method(node: ast.AST, module_name: str, generic: str, names: Names) -> str:
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    names.note(node.args, node.returns)
    is_property = any(ast.unparse(one) == "property" for one in node.decorator_list)
    lines = ["    @property"] if is_property else []
    name = DUNDERS.get(node.name, node.name)
    returns = ast.unparse(node.returns) if node.returns is not None else "None"
    lines.append(f"    def {name}({ast.unparse(node.args)}) -> {returns}:")
    documented = ast.get_docstring(node)
    if documented:
        lines.append(
            _quoted(documented.replace("StopAsyncIteration", "StopIteration").replace("async with", "with"), 2)
        )
    lines += [f"        {line}" for line in _body(node, module_name, generic, is_property)]
    return "\n".join(lines)


def _body(node: ast.FunctionDef | ast.AsyncFunctionDef, module_name: str, generic: str, is_property: bool) -> list[str]:
    passed = ", ".join(_passed(node.args))
    if node.name == "__init__":
        # The type says which records come out, and is no part of the call.
        kind = f"{module_name}.{module_name.capitalize()}"
        parameters = generic.removeprefix("Generic")
        return [f"self._inner: {kind}{parameters} = {kind}({passed})"]
    if node.name == "__aenter__":
        return ["self.start()", "return self"]
    if node.name == "__aiter__":
        return ["return self"]
    if node.name == "__anext__":
        return ["return self._take()"]
    if is_property:
        return [f"return self._call(lambda: self._inner.{node.name})"]
    how = "_run" if isinstance(node, ast.AsyncFunctionDef) else "_call"
    within = ""
    if how == "_run" and any(one.arg == "timeout_ms" for one in node.args.args):
        how, within = "_run_within", "timeout_ms"
    call = f"self.{how}({', '.join(one for one in (within, f'self._inner.{node.name}', passed) if one)})"
    returns = ast.unparse(node.returns) if node.returns is not None else "None"
    if returns == "Transaction":
        # Its consumer is a client, too.
        inner = call.replace("consumer=consumer", "consumer=None if consumer is None else consumer._inner")
        return [f"return Transaction(self, {inner}, consumer)"]
    if returns == "None":
        return [call]
    if returns == "list[Delivery]":
        return [f"return [Delivery(self, one) for one in {call}]"]
    return [f"return Delivery(self, {call})" if returns == "Delivery" else f"return {call}"]


def _passed(arguments: ast.arguments) -> list[str]:
    """The arguments as a call passes them on."""
    positional = [one.arg for one in (*arguments.posonlyargs, *arguments.args) if one.arg != "self"]
    starred = [f"*{arguments.vararg.arg}"] if arguments.vararg is not None else []
    return [*positional, *starred, *(f"{one.arg}={one.arg}" for one in arguments.kwonlyargs)]


def _quoted(text: str, depth: int) -> str:
    margin = "    " * depth
    first, *rest = text.splitlines()
    lines = [f'{margin}"""{first}', *(f"{margin}{line}" if line else "" for line in rest)]
    lines[-1] += f'\n{margin}"""' if rest else '"""'
    return "\n".join(lines)


if __name__ == "__main__":
    TARGET.write_text(written())
