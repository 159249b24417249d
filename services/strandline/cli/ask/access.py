"""`strandline acl ...`, `strandline quota ...`: access rules and quotas of clients: list, change and test them.

Invariant: nothing changes without --yes; what `acl list -o yaml` prints is what `add --file` and `remove --file` read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from strandline.cli.connect import ask, over_tls
from strandline.cli.failures import EXIT_REFUSED, CommandFailed
from strandline.cli.options import Bootstrap, Output
from strandline.cli.output import Column, Format, printable, show, show_one
from strandline.core.permissions import CLUSTER_NAME, Acls, Pattern, Permission, ResourceType, Rule, rule_refusal
from strandline.core.quotas import QuotaChange, QuotaKey, quota_refusal
from strandline.units import count_of, read_size

if TYPE_CHECKING:
    from strandline.client import Admin
    from strandline.core.errors import Refusal

acls = typer.Typer(help="Access rules: list, add and remove them, or test one case.", no_args_is_help=True)

_FIELDS: Mapping[str, Any] = get_type_hints(Rule)
_RULE_COLUMNS = [Column(name, name) for name in _FIELDS]

_WHO = "client/ID as in a certificate, ALIAS:SUBJECT as in a token, or client/*."
_WHAT = "topic:NAME, group:NAME, transactional-id:NAME, or cluster; topic:* is every topic."
_PRINCIPAL = typer.Argument(metavar="PRINCIPAL", help=_WHO)
_OPERATION = typer.Argument(metavar="OPERATION", help="READ, WRITE, and so on, or ALL.")
_RESOURCE = typer.Argument(metavar="RESOURCE", help=_WHAT)
Principal = Annotated[str, _PRINCIPAL]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="The name is a prefix.")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny it; this overrides rules that allow it.")]
File = Annotated[Path | None, typer.Option("--file", metavar="YAML", help="Rules as `acl list -o yaml` prints them.")]
Yes = Annotated[bool, typer.Option("--yes", help="Apply the change; without this it is only checked.")]
UNCHANGED = "checked; nothing was changed, --yes applies it"
Force = Annotated[bool, typer.Option("--force", help="Allow it even if you could not change rules afterwards.")]


@acls.command("list")
@over_tls
def list_rules(bootstrap: Bootstrap, output: Output = Format.TABLE) -> None:
    """List all rules."""
    rules = ask(bootstrap, lambda admin: admin.describe_acls())
    show([_row(rule) for rule in rules], _RULE_COLUMNS, output, empty="no rules: with acl, clients may do nothing")


_Call = Callable[..., Awaitable[list["Refusal | None"]]]


def _command(name: str, call: Callable[[Admin], _Call], done: str, words: str) -> None:
    @acls.command(name, help=words)
    @over_tls
    def change(
        bootstrap: Bootstrap,
        principal: Annotated[str | None, _PRINCIPAL] = None,
        operation: Annotated[str | None, _OPERATION] = None,
        resource: Annotated[str | None, _RESOURCE] = None,
        deny: Deny = False,
        prefixed: Prefixed = False,
        file: File = None,
        force: Force = False,
        yes: Yes = False,
    ) -> None:
        given = [word for word in (principal, operation, resource) if word is not None]
        if len(given) != (3 if file is None else 0):
            raise typer.BadParameter("give PRINCIPAL OPERATION RESOURCE, or --file alone")
        permission = Permission.DENY if deny else Permission.ALLOW
        pattern = Pattern.PREFIXED if prefixed else Pattern.LITERAL
        rules = [_rule(*given, permission=permission, pattern=pattern)] if file is None else _read_file(file)

        async def change_all(admin: Admin) -> list[Refusal | None]:
            # All rules are checked first, so that a wrong one leaves nothing half done.
            refusals = await call(admin)(rules, validate_only=True, force=force)
            return await call(admin)(rules, force=force) if yes and not any(refusals) else refusals

        refusals = ask(bootstrap, change_all)
        for rule, refusal in zip(rules, refusals, strict=True):
            typer.echo(printable(f"{rule}: {refusal}" if refusal else str(rule)), err=refusal is not None)
        if refused := len(refusals) - refusals.count(None):
            said = f"{count_of(refused, 'rule')} refused; `strandline acl list` shows those that are there"
            raise CommandFailed(said)
        typer.echo(f"{count_of(len(rules), 'rule')} {done}" if yes else UNCHANGED)


_command("add", lambda admin: admin.create_acls, "added", "Check one rule, or those of a file; --yes adds them.")
_command("remove", lambda admin: admin.delete_acls, "removed", "Check that rules are there; --yes removes them.")


@acls.command("test")
@over_tls
def check(
    principal: Principal,
    operation: Annotated[str, _OPERATION],
    resource: Annotated[str, _RESOURCE],
    bootstrap: Bootstrap,
    output: Output = Format.TABLE,
) -> None:
    """Say whether the rules allow it, and which one decides; exit code 1 if they do not."""
    wanted = _rule(principal, operation, resource, permission=Permission.ALLOW, pattern=Pattern.LITERAL)
    rules = ask(bootstrap, lambda admin: admin.describe_acls())
    found = Acls(tuple(rules)).of(wanted.principal).rule_for(wanted.operation, wanted.resource, wanted.name)
    allowed = found is not None and found.permission is Permission.ALLOW
    why = "no rule allows it" if found is None else f"by the rule '{found}'"
    asked = f"{wanted.principal} {wanted.operation} {wanted.resource} {wanted.name}"
    row = {"asked": asked, "allowed": allowed, "rule": _row(found) if found else None}
    show_one(row, output, printable(f"{'allowed' if allowed else 'denied'} {why}"))
    if not allowed:
        raise typer.Exit(EXIT_REFUSED)


def _row(rule: Rule) -> dict[str, Any]:
    return {name: str(getattr(rule, name)) for name in _FIELDS}


def _rule(principal: str, operation: str, resource: str, *, permission: Permission, pattern: Pattern) -> Rule:
    kind, _, name = resource.partition(":")
    if kind == ResourceType.CLUSTER and not name:
        name = CLUSTER_NAME
    return _checked(
        dict(zip(_FIELDS, (principal, permission, operation.upper(), kind, pattern, name), strict=True)), ""
    )


def _read_file(path: Path) -> list[Rule]:
    import yaml

    try:
        rows = yaml.safe_load(path.read_text())
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise typer.BadParameter(f"--file: {path} cannot be read as YAML: {error}") from error
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise typer.BadParameter(f"--file: {path} is not a list of rules; `strandline acl list -o yaml` shows the form")
    return [_checked(row, f"--file: rule {number} of {path}: ") for number, row in enumerate(rows, 1)]


def _checked(row: Mapping[str, Any], where: str) -> Rule:
    if set(row) != set(_FIELDS) or not all(isinstance(value, str) for value in row.values()):
        raise typer.BadParameter(f"{where}a rule has the string fields {', '.join(_FIELDS)}, and nothing else")
    found = {}
    for name, kind in _FIELDS.items():
        try:
            found[name] = kind(row[name])
        except ValueError:
            raise typer.BadParameter(f"{where}{name} {row[name]!r} is none of {', '.join(kind)}") from None
    rule = Rule(**found)
    if (refusal := rule_refusal(rule)) is not None:
        raise typer.BadParameter(where + refusal.message)
    return rule


# ---- quota
# `strandline quota ...`: list, set and remove limits on what clients send, read, request and change (C102).

quotas = typer.Typer(
    help="Limits of what clients may use per second at each node: list, set and remove.", no_args_is_help=True
)

Key = Annotated[str, typer.Argument(metavar="KEY", help=f"{', '.join(QuotaKey)}.")]

_QUOTA_COLUMNS = [Column("principal", "principal"), Column("key", "key"), Column("value", "per second", number=True)]


@quotas.command("list")
@over_tls
def list_quotas(bootstrap: Bootstrap, output: Output = Format.TABLE) -> None:
    """List all quotas."""
    rows = [
        {"principal": quota.principal, "key": str(quota.key), "value": quota.value}
        for quota in ask(bootstrap, lambda admin: admin.describe_quotas())
    ]
    show(rows, _QUOTA_COLUMNS, output, empty="no quotas: clients may use as much as they like")


@quotas.command("set")
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
    _change_quota(bootstrap, QuotaChange(principal, key, value), "set", yes=yes)


@quotas.command("remove")
@over_tls
def remove_quota(principal: Principal, key: Key, bootstrap: Bootstrap, yes: Yes = False) -> None:
    """Check that a quota is there, and with --yes remove it."""
    _change_quota(bootstrap, QuotaChange(principal, key, None), "removed", yes=yes)


def _change_quota(bootstrap: str, change: QuotaChange, done: str, *, yes: bool) -> None:
    if (refusal := quota_refusal(*change)) is not None:
        raise typer.BadParameter(refusal.message)

    async def alter(admin: Admin) -> None:
        there = [(quota.principal, quota.key) for quota in await admin.describe_quotas()]
        if change.value is None and change[:2] not in there:
            said = f"{change.principal} has no {change.key}; `strandline quota list` shows what there is"
            raise CommandFailed(said)
        (refusal,) = await admin.alter_quotas([change], validate_only=not yes)
        if refusal is not None:
            raise CommandFailed(str(refusal))

    ask(bootstrap, alter)
    typer.echo(f"1 quota {done}" if yes else UNCHANGED)
