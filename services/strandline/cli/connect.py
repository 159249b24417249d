"""How a command reaches the cluster: the one place that opens the client library.

Invariant: every command closes what it opened, whatever happened in between.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict, TypeVar

import typer

from strandline.cli.failures import EXIT_UNREACHABLE, CommandFailed, explained, fail, perform
from strandline.cli.options import addresses

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from strandline.client import Admin, DescribedTopic
    from strandline.core.messages import TopicImage


CONNECTING = ("tls_cert", "tls_key", "tls_ca", "token_file")
"""Options with paths, of every command with `--bootstrap` and of profiles."""

# ---- profile_option
# `--profile`: the values in a profile are the defaults of the options that name a cluster.
#
# Invariant: a flag overrides its variable, a variable overrides the profile; if a variable overrides a profile that is
# named on the command line, that is reported, because the command then goes to another cluster than the one named.


def names_of_profiles(incomplete: str) -> list[str]:
    """Names of profiles, for shell completion."""
    from strandline.client.settings import profile_names

    return [name for name in profile_names() if name.startswith(incomplete)]


def _use(ctx: typer.Context, name: str | None) -> str | None:
    if ctx.resilient_parsing:
        return name
    from strandline.client.settings import Profile, ProfileWrong, profile_in_use

    try:
        if not (wanted := name or profile_in_use()):
            return None
        profile = Profile.load(wanted)
    except ProfileWrong as error:
        raise fail(CommandFailed(str(error), EXIT_UNREACHABLE)) from error
    ctx.default_map = {
        "bootstrap": ",".join(profile.bootstrap),
        **{name: path for name in CONNECTING if (path := getattr(profile, name))},
    }
    return wanted


def report_overridden(ctx: typer.Context) -> None:
    """Warns on stderr that the cluster is not the one of the named profile."""
    named, cluster = (ctx.get_parameter_source(name) for name in ("profile", "bootstrap"))
    if named and cluster and (named.name, cluster.name) == ("COMMANDLINE", "ENVIRONMENT"):
        typer.echo("strandline: STRANDLINE_BOOTSTRAP overrides the profile; unset it to use the profile's", err=True)


Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        envvar="STRANDLINE_PROFILE",
        metavar="NAME",
        help="Profile for the options that are not given; default: the current one.",
        is_eager=True,
        callback=_use,
        autocompletion=names_of_profiles,
    ),
]


# ---- over_tls
# Adds `--profile`, the TLS options and `--token-file` to each command that talks to a cluster, and passes their values
# to its clients.
#
# Invariant: every command with `--bootstrap` has `--tls-cert`, `--tls-key` and `--tls-ca`, with the variables that the
# services read too; without any of them it speaks plain. A token is read from a file: the command line is in the list
# of processes.


class TlsOptions(TypedDict):
    """The TLS and token arguments of `strandline.client`'s classes."""

    tls_cert: str
    tls_key: str
    tls_ca: str
    token: NotRequired[Callable[[], str]]


_PLAIN = TlsOptions(tls_cert="", tls_key="", tls_ca="")
_given: ContextVar[TlsOptions] = ContextVar("tls_options", default=_PLAIN)

TlsCert = Annotated[
    str,
    typer.Option("--tls-cert", envvar="STRANDLINE_TLS_CERT", metavar="FILE", help="Use this certificate (PEM)."),
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
TokenFile = Annotated[
    str,
    typer.Option(
        "--token-file",
        envvar="STRANDLINE_TOKEN_FILE",
        metavar="FILE",
        help="Use the token in this file instead of a certificate; it is read again before it expires.",
    ),
]

_Command = TypeVar("_Command", bound=Callable[..., Any])
_T = TypeVar("_T")
_Topic = TypeVar("_Topic", "DescribedTopic", "TopicImage")


def tls_options() -> TlsOptions:
    """The TLS and token options of the running command."""
    return _given.get()


def over_tls(command: _Command) -> _Command:
    """Adds five options to a command; clients that it opens with `tls_options` use them. Its failures are explained."""
    own = inspect.signature(command, eval_str=True)
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default="", annotation=annotation)
        for name, annotation in zip(CONNECTING, (TlsCert, TlsKey, TlsCa, TokenFile), strict=True)
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
        token_file: str = "",
        profile: str | None = None,
        context: typer.Context | None = None,
        **given: Any,
    ) -> Any:
        if context is not None:
            report_overridden(context)
        options = TlsOptions(tls_cert=tls_cert, tls_key=tls_key, tls_ca=tls_ca)
        if token_file:
            from strandline.client.token import token_in

            options["token"] = token_in(token_file)
        token = _given.set(options)
        try:
            with explained():
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


TOPIC_TIMEOUT_MS = 2_000
"""How long to wait for a topic to become known: the first snapshot has all topics, so this is for new ones."""


@asynccontextmanager
async def known_topic(name: str) -> AsyncIterator[None]:
    """Bounds the wait for a topic inside.

    Raises:
        CommandFailed: the topic did not become known in time.
    """
    try:
        async with asyncio.timeout(TOPIC_TIMEOUT_MS / 1000):
            yield
    except TimeoutError:
        raise CommandFailed(
            f"UNKNOWN_TOPIC_OR_PARTITION: no topic is named {name!r}; `strandline topic create {name}` makes it"
        ) from None


def topics_named(topics: Iterable[_Topic], name: str | None) -> list[_Topic]:
    """The topic of this name, or without one all topics, by name.

    Raises:
        CommandFailed: there is none of this name.
    """
    found = sorted((topic for topic in topics if name in (None, topic.name)), key=lambda topic: topic.name)
    if name is not None and not found:
        raise no_topic(name)
    return found


def no_topic(name: str) -> CommandFailed:
    """The end of a command for a topic that does not exist."""
    return CommandFailed(f"UNKNOWN_TOPIC_OR_PARTITION: no topic is named {name!r}; see `strandline topic list`")


@asynccontextmanager
async def open_admin(bootstrap: str) -> AsyncIterator[Admin]:
    """An `Admin` at ``bootstrap`` (host:port, separated by commas)."""
    from strandline.client import Admin

    async with Admin(addresses(bootstrap), **tls_options()) as admin:
        yield admin


def ask(bootstrap: str, question: Callable[[Admin], Awaitable[_T]]) -> _T:
    """The cluster's answer to what an `Admin` asks it; without one the command ends, as after `perform`."""

    async def answer() -> _T:
        async with open_admin(bootstrap) as admin:
            return await question(admin)

    return perform(answer())
