"""`strandline acl ...`: access rules: list, add and remove them, and test which one decides.

Invariant: nothing changes without --yes; what `list -o yaml` prints is what `add --file` and `remove --file` read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from strandline.cli.connect import over_tls, with_admin
from strandline.cli.failures import EXIT_REFUSED, CommandFailed, fail, perform
from strandline.cli.options import Bootstrap, Output
from strandline.cli.output import Column, Format, printable, show, show_one
from strandline.core.permissions import (
    CLUSTER_NAME,
    Acls,
    Pattern,
    Permission,
    ResourceType,
    Rule,
    rule_refusal,
)
from strandline.units import count_of

if TYPE_CHECKING:
    from strandline.client import Admin
    from strandline.core.errors import Refusal

app = typer.Typer(help="Access rules: list, add and remove them, or test one case.", no_args_is_help=True)

_FIELDS: Mapping[str, Any] = get_type_hints(Rule)
_COLUMNS = [Column(name, name) for name in _FIELDS]

_WHO = "client/ID as in a certificate, ALIAS:SUBJECT as in a token, or client/*."
_WHAT = "topic:NAME, group:NAME, transactional-id:NAME, or cluster; topic:* is every topic."
_PRINCIPAL = typer.Argument(metavar="PRINCIPAL", help=_WHO)
_OPERATION = typer.Argument(metavar="OPERATION", help="READ, WRITE, ... or ALL.")
_RESOURCE = typer.Argument(metavar="RESOURCE", help=_WHAT)
Principal = Annotated[str, _PRINCIPAL]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="The name is a prefix.")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny it; this overrides rules that allow it.")]
File = Annotated[Path | None, typer.Option("--file", metavar="YAML", help="Rules as `acl list -o yaml` prints them.")]
Yes = Annotated[bool, typer.Option("--yes", help="Apply the change; without this it is only checked.")]
UNCHANGED = "checked; nothing was changed, --yes applies it"
Force = Annotated[bool, typer.Option("--force", help="Even if you could not change rules afterwards.")]


@app.command("list")
@over_tls
def list_rules(bootstrap: Bootstrap, output: Output = Format.TABLE) -> None:
    """List all rules."""
    rules = perform(with_admin(bootstrap, lambda admin: admin.describe_acls()))
    show([_row(rule) for rule in rules], _COLUMNS, output, empty="no rules: with acl, clients may do nothing")


_Call = Callable[..., Awaitable[list["Refusal | None"]]]


def _command(name: str, call: Callable[[Admin], _Call], done: str, words: str) -> None:
    @app.command(name, help=words)
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

        refusals = perform(with_admin(bootstrap, change_all))
        for rule, refusal in zip(rules, refusals, strict=True):
            typer.echo(printable(f"{rule}: {refusal}" if refusal else str(rule)), err=refusal is not None)
        if refused := len(refusals) - refusals.count(None):
            said = f"{count_of(refused, 'rule')} refused; `strandline acl list` shows those that are there"
            raise fail(CommandFailed(said, EXIT_REFUSED))
        typer.echo(f"{count_of(len(rules), 'rule')} {done}" if yes else UNCHANGED)


_command("add", lambda admin: admin.create_acls, "added", "Check one rule, or those of a file; --yes adds them.")
_command("remove", lambda admin: admin.delete_acls, "removed", "Check that rules are there; --yes removes them.")


@app.command("test")
@over_tls
def ask(
    principal: Principal,
    operation: Annotated[str, _OPERATION],
    resource: Annotated[str, _RESOURCE],
    bootstrap: Bootstrap,
    output: Output = Format.TABLE,
) -> None:
    """Say whether the rules allow it, and which one decides; exit code 1 if they do not."""
    wanted = _rule(principal, operation, resource, permission=Permission.ALLOW, pattern=Pattern.LITERAL)
    rules = perform(with_admin(bootstrap, lambda admin: admin.describe_acls()))
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
    except (OSError, ValueError, yaml.YAMLError) as error:
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
