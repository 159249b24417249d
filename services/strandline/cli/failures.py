"""How a command ends when it cannot do what was asked: one line on stderr and an exit code.

Invariant: exit code 1 means the cluster (or the check) answered no; 2 means that the question was wrong or
that no node answered. A traceback reaches the user only for a defect of ours.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, TypeVar

import typer
from typer.core import TyperGroup

T = TypeVar("T")

EXIT_REFUSED = 1
EXIT_UNREACHABLE = 2

NEWLINE_AND_TAB = "\n\t"
_REACH = (
    "check --bootstrap (STRANDLINE_BOOTSTRAP, or the profile), that the cluster runs, and whether it wants --tls-cert"
)


class CommandFailed(Exception):
    """A command's own end: ``message`` is the line printed, ``exit_code`` what the shell sees."""

    def __init__(self, message: str, exit_code: int = EXIT_REFUSED) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code


def perform(work: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """Runs one command's coroutine to its end; its failures are `explained`.

    ``loop_factory`` makes the loop; without one it is Python's own.
    """
    with explained(), asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(work)


@contextmanager
def explained() -> Iterator[None]:
    """Turns every expected failure inside into its line and its exit code.

    Raises:
        typer.Exit: with the exit code, after the line was printed.
    """
    try:
        yield
    except (typer.Exit, typer.BadParameter):
        raise
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        # `strandline consume ... | head` ends here: the pipe's reader has seen enough, which is no failure.
        # What is left in stdout's buffer goes nowhere, instead of failing again at the interpreter's end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except Exception as error:
        failure = explain(error)
        if failure is None:
            raise
        raise fail(failure) from error


def fail(failure: CommandFailed) -> typer.Exit:
    """Prints the failure's line on stderr and returns the exit to raise."""
    from strandline.cli.output import printable

    # A message of a node or the controller may quote what another client sent.
    typer.echo(f"strandline: {printable(failure.message, keep=NEWLINE_AND_TAB)}", err=True)
    return typer.Exit(failure.exit_code)


def confirm(question: str, what_not: str, *, err: bool = True) -> None:
    """Asks for a yes at the terminal.

    Raises:
        CommandFailed: it was not given, so ``what_not`` is the case.
    """
    try:
        agreed = typer.confirm(question, err=err)
    except typer.Abort:
        agreed = False
    if not agreed:
        raise CommandFailed(f"{what_not}: it was not confirmed; answer y, or give --yes")


def explain(error: BaseException) -> CommandFailed | None:
    """What an exception means for the user; None when it is a defect and must show its traceback."""
    if isinstance(error, CommandFailed):
        return error
    return _refusal(error) or _transport(error) or _address(error) or _machine(error) or _wrong_settings(error)


def _refusal(error: BaseException) -> CommandFailed | None:
    from strandline.core.errors import RULES, ErrorCode, Refused

    if not isinstance(error, Refused):
        return None
    refusal = error.refusal
    said = str(refusal)
    if refusal.code in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT):
        return CommandFailed(f"no answer: {said}; {_REACH}", EXIT_UNREACHABLE)
    # A refusal that names its remedy does so after a semicolon; others get the table's.
    return CommandFailed(said if ";" in said else f"{said}; {RULES[refusal.code].remedy}")


def _transport(error: BaseException) -> CommandFailed | None:
    """Explains gRPC's own failures, if the command has loaded grpc."""
    grpc = sys.modules.get("grpc")
    if grpc is None or not isinstance(error, grpc.RpcError):
        return None
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    name = code().name if callable(code) else "UNKNOWN"
    text = str(details() if callable(details) else error)
    if name in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}:
        return CommandFailed(f"no answer ({name}): {text}; {_REACH}", EXIT_UNREACHABLE)
    return CommandFailed(f"{name}: {text}")


def _address(error: BaseException) -> CommandFailed | None:
    """Explains that a service other than a controller answered: the address is wrong, not the connection."""
    if not isinstance(error, ConnectionError):
        return None
    from strandline.client import NotAController

    return CommandFailed(f"--bootstrap: {error}", EXIT_UNREACHABLE) if isinstance(error, NotAController) else None


def _wrong_settings(error: BaseException) -> CommandFailed | None:
    from strandline.client.settings import ProfileWrong
    from strandline.client.token import NoToken
    from strandline.rpc.tls import TlsWrong

    is_wrong = isinstance(error, ProfileWrong | TlsWrong | NoToken)
    return CommandFailed(str(error), EXIT_UNREACHABLE) if is_wrong else None


def _machine(error: BaseException) -> CommandFailed | None:
    if isinstance(error, PermissionError) or (isinstance(error, OSError) and error.filename is not None):
        return CommandFailed(f"{error.filename}: {error.strerror}", EXIT_UNREACHABLE)
    if isinstance(error, ConnectionError | TimeoutError):
        text = str(error) or "timed out"
        return CommandFailed(f"no answer: {text}; {_REACH}", EXIT_UNREACHABLE)
    if isinstance(error, OSError):
        where = "the output cannot be written: " if error.errno == errno.ENOSPC else ""
        return CommandFailed(f"{where}{error.strerror or error}", EXIT_UNREACHABLE)
    if str(error).startswith(("Value out of range", "'utf-8' codec can't encode")):
        return CommandFailed(f"an argument is out of range, or not UTF-8: {error}", EXIT_UNREACHABLE)
    return None


# ---- extras
# Which extra of the distribution and which package each command needs, and the line that names what is missing.
#
# Other packages add commands in the entry-point group `strandline.commands`, by the words before them joined with a
# dot.
#
# Invariant: a missing library of an extra ends a command with one line; a missing module of our own stays a defect.

EXTRA_OF = {
    "up": "server",
    "demo": "server",
    "controller": "server",
    "replica": "server",
    "settings": "server",
    "export": "export",
    "console": "console",
    "analytics": "analytics",
    "scenario": "sim",
    "sim": "sim",
}
"""The extra that a command needs, by its first word. All other commands work with the base install."""

ANALYTICS_IMAGE = ("strandline_analytics", "strandline_kafka")
"""Our packages that only the analytics image has (deploy/images/Dockerfile)."""

_SERVER_LIBRARIES = (
    "grpc_health",
    "grpc_reflection",
    "msgspec",
    "prometheus_client",
    "psutil",
    "pydantic",
    "structlog",
)


def missing_extra(error: ImportError, command: str) -> str | None:
    """One line with the remedy; None when ``error`` is about a module of our own, or of no extra."""
    library = (error.name or "").partition(".")[0]
    extra = EXTRA_OF.get(command)
    if extra is None or not library or library.startswith("strandline"):
        return None
    return f"`strandline {command}` needs {library}, which is not installed; in the checkout: pip install '.[{extra}]'"


def require_server() -> None:
    """Fail at once if the processes to start could not run.

    Raises:
        ModuleNotFoundError: the first library of the extra `server` that is not installed.
    """
    for library in _SERVER_LIBRARIES:
        if find_spec(library) is None:
            raise ModuleNotFoundError(f"No module named {library!r}", name=library)


def installed_elsewhere(below: str = "") -> Iterator[tuple[str, typer.Typer]]:
    """The commands that other packages add to the program, or to its command ``below``: name and commands."""
    prefix = f"{below}." if below else ""
    for entry in entry_points(group="strandline.commands"):
        name = entry.name.removeprefix(prefix)
        if entry.name.startswith(prefix) and "." not in name:
            yield name, _loaded(entry)


def _loaded(entry: EntryPoint) -> typer.Typer:
    package = entry.module.partition(".")[0]
    if find_spec(package) is not None:
        commands: typer.Typer = entry.load()
        return commands

    # Entry points belong to the distribution; an image has some of its packages.
    words = entry.name.replace(".", " ")
    where = "the image strandline-analytics has it" if package in ANALYTICS_IMAGE else "no image has it"
    said = f"`strandline {words}` needs the package {package}, which is not installed here; {where}"
    absent = typer.Typer(cls=_Absent, help=said)
    absent.callback()(lambda: None)
    return absent


class _Absent(TyperGroup):
    """Replaces the commands of a missing package: prints one line and exits with code 1, whatever follows."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Print the line; never returns."""
        typer.echo(f"strandline: {self.help}", err=True)
        raise typer.Exit(1)
