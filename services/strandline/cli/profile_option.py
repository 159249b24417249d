"""`--profile`: what a profile says is the default of the options that name a cluster.

Invariant: a flag counts before its variable, a variable before the profile; a profile named on the command line that a
variable overrides is reported, for the command then goes to another cluster than the one named.
"""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.failures import EXIT_UNREACHABLE, CommandFailed, fail


def names_of_profiles(incomplete: str) -> list[str]:
    """For the completion of shells."""
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
        **{name: path for name in ("tls_cert", "tls_key", "tls_ca") if (path := getattr(profile, name))},
    }
    return wanted


def report_overridden(ctx: typer.Context) -> None:
    """Says on stderr that the cluster is not that of the profile which was named."""
    named, cluster = (ctx.get_parameter_source(name) for name in ("profile", "bootstrap"))
    if named and cluster and (named.name, cluster.name) == ("COMMANDLINE", "ENVIRONMENT"):
        typer.echo(
            "strandline: STRANDLINE_BOOTSTRAP counts before the profile; unset it to use the profile's", err=True
        )


Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        envvar="STRANDLINE_PROFILE",
        metavar="NAME",
        help="Take what is not given here from this profile; default: the one in use.",
        is_eager=True,
        callback=_use,
        autocompletion=names_of_profiles,
    ),
]
