"""Which extra of the distribution each command needs, and the line that names it where it is not installed.

Invariant: a missing library of an extra ends a command with one line; a missing module of our own stays a defect.
"""

from __future__ import annotations

from importlib.util import find_spec

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
"""By the command's first word. Every other command is complete in the base install."""

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
    """Refuse at once what would start processes that cannot run.

    Raises:
        ModuleNotFoundError: the first library of the extra `server` that is not installed.
    """
    for library in _SERVER_LIBRARIES:
        if find_spec(library) is None:
            raise ModuleNotFoundError(f"No module named {library!r}", name=library)
