"""Gives a command that talks to a cluster `--profile` and the three options of TLS, and its clients what they say.

Invariant: every command with `--bootstrap` has `--tls-cert`, `--tls-key` and `--tls-ca`, with the variables that the
services read too; without any of them it speaks plain.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Annotated, Any, TypedDict, TypeVar

import typer

from strandline.cli.profile_option import Profile, report_overridden


class TlsOptions(TypedDict):
    """What `strandline.client`'s classes take."""

    tls_cert: str
    tls_key: str
    tls_ca: str


_PLAIN = TlsOptions(tls_cert="", tls_key="", tls_ca="")
_given: ContextVar[TlsOptions] = ContextVar("tls_options", default=_PLAIN)

TlsCert = Annotated[
    str,
    typer.Option("--tls-cert", envvar="STRANDLINE_TLS_CERT", metavar="FILE", help="Present this certificate (PEM)."),
]
TlsKey = Annotated[
    str, typer.Option("--tls-key", envvar="STRANDLINE_TLS_KEY", metavar="FILE", help="The certificate's key.")
]
TlsCa = Annotated[
    str,
    typer.Option(
        "--tls-ca",
        envvar="STRANDLINE_TLS_CA",
        metavar="FILE",
        help="Trust servers whose certificate this authority signed.",
    ),
]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def tls_options() -> TlsOptions:
    """What the command that runs was given."""
    return _given.get()


def over_tls(command: _Command) -> _Command:
    """The command with four more options; whatever it opens by `tls_options` uses those of TLS."""
    own = inspect.signature(command, eval_str=True)
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default="", annotation=annotation)
        for name, annotation in (("tls_cert", TlsCert), ("tls_key", TlsKey), ("tls_ca", TlsCa))
    ]
    extra += [
        inspect.Parameter("profile", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Profile),
        inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=typer.Context),
    ]

    @functools.wraps(command)
    def with_tls(
        *,
        tls_cert: str = "",
        tls_key: str = "",
        tls_ca: str = "",
        profile: str | None = None,
        context: typer.Context | None = None,
        **given: Any,
    ) -> Any:
        if context is not None:
            report_overridden(context)
        token = _given.set(TlsOptions(tls_cert=tls_cert, tls_key=tls_key, tls_ca=tls_ca))
        try:
            return command(**given)
        finally:
            _given.reset(token)

    parameters = [*own.parameters.values(), *extra]
    described: Any = with_tls
    # Typer reads a command's options from its signature and its annotations.
    described.__signature__ = own.replace(parameters=parameters)
    described.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    result: _Command = described
    return result
