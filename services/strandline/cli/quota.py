"""`strandline quota ...`: list, set and remove limits on what clients send, read, request and change (C102).

Invariant: nothing changes without --yes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.ask.acl import UNCHANGED, Principal, Yes
from strandline.cli.connect import over_tls, with_admin
from strandline.cli.failures import EXIT_REFUSED, CommandFailed, perform
from strandline.cli.options import Bootstrap, Output
from strandline.cli.output import Column, Format, show
from strandline.core.quotas import QuotaChange, QuotaKey, quota_refusal
from strandline.units import read_size

if TYPE_CHECKING:
    from strandline.client import Admin

app = typer.Typer(help="How much clients may use per second, at each node: list, set and remove.", no_args_is_help=True)

Key = Annotated[str, typer.Argument(metavar="KEY", help=f"{', '.join(QuotaKey)}.")]

_COLUMNS = [Column("principal", "principal"), Column("key", "key"), Column("value", "per second", number=True)]


@app.command("list")
@over_tls
def list_quotas(bootstrap: Bootstrap, output: Output = Format.TABLE) -> None:
    """List all quotas."""
    rows = [
        {"principal": quota.principal, "key": str(quota.key), "value": quota.value}
        for quota in perform(with_admin(bootstrap, lambda admin: admin.describe_quotas()))
    ]
    show(rows, _COLUMNS, output, empty="no quotas: clients may use as much as they like")


@app.command("set")
@over_tls
def set_quota(
    principal: Principal,
    key: Key,
    rate: Annotated[str, typer.Argument(metavar="RATE", help="A number per second; of bytes also as 500kB.")],
    bootstrap: Bootstrap,
    yes: Yes = False,
) -> None:
    """Check a quota, and with --yes set it; client/* is every client that has none of its own for the key."""
    try:
        value = read_size(rate) if key.endswith("byte_rate") and rate.endswith("B") else float(rate)
    except ValueError as error:
        raise typer.BadParameter(f"RATE: {error}") from None
    _change(bootstrap, QuotaChange(principal, key, value), "set", yes=yes)


@app.command()
@over_tls
def remove(principal: Principal, key: Key, bootstrap: Bootstrap, yes: Yes = False) -> None:
    """Check that a quota is there, and with --yes remove it."""
    _change(bootstrap, QuotaChange(principal, key, None), "removed", yes=yes)


def _change(bootstrap: str, change: QuotaChange, done: str, *, yes: bool) -> None:
    if (refusal := quota_refusal(*change)) is not None:
        raise typer.BadParameter(refusal.message)

    async def alter(admin: Admin) -> None:
        there = [(quota.principal, quota.key) for quota in await admin.describe_quotas()]
        if change.value is None and change[:2] not in there:
            said = f"{change.principal} has no {change.key}; `strandline quota list` shows what there is"
            raise CommandFailed(said, EXIT_REFUSED)
        (refusal,) = await admin.alter_quotas([change], validate_only=not yes)
        if refusal is not None:
            raise CommandFailed(str(refusal), EXIT_REFUSED)

    perform(with_admin(bootstrap, alter))
    typer.echo(f"1 quota {done}" if yes else UNCHANGED)
