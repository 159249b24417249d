"""`strandline certs`: a development authority and a cluster's certificates, without openssl.

Invariant: only a renewal overwrites files; what was made is listed with its names and dates.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.durations import Duration, duration_option, read_duration
from strandline.cli.failures import EXIT_UNREACHABLE, CommandFailed, fail
from strandline.cli.options import Output
from strandline.cli.output import TEXT, Format, plain_columns, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from strandline.cli.local.certificate_folder import CertificateHolder
    from strandline.rpc.permissions import Identity

app = typer.Typer(help="Make the certificates of a cluster: authority, nodes, clients.", no_args_is_help=True)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the certificates, one folder each.")]
ValidFor = Annotated[
    Duration,
    duration_option("--valid-for", help="How long a certificate is valid.", least="1d", most="3650d", step="1d"),
]
YEAR = read_duration("365d")
Hosts = Annotated[
    list[str] | None, typer.Option("--host", metavar="HOST", help="A host name or address of the server; repeatable.")
]

_COLUMNS = plain_columns(holder=TEXT, identity=TEXT, hosts=TEXT, valid_until=TEXT)


@app.callback()
def certs() -> None:
    """Make the certificates of a cluster: authority, nodes, clients."""


@app.command()
def new(
    directory: Directory,
    cluster: Annotated[str | None, typer.Option(metavar="ID", help="The cluster's id; a new one if left out.")] = None,
    nodes: Annotated[int, typer.Option(min=0, max=1000, help="Number of data nodes.")] = 3,
    first_node: Annotated[int, typer.Option(min=0, help="Id of the first data node.")] = 1,
    node_host: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="A node's name, with {id} for its id; repeatable.")
    ] = None,
    controller_host: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="The controller's name; repeatable.")
    ] = None,
    hosts: Hosts = None,
    client: Annotated[list[str] | None, typer.Option(metavar="ID", help="A client; repeatable.")] = None,
    admin: Annotated[list[str] | None, typer.Option(metavar="ID", help="An administrator; repeatable.")] = None,
    valid_for: ValidFor = YEAR,
    output: Output = Format.TABLE,
) -> None:
    """Make an authority, and a certificate for each node, the controller, clients and administrators.

    A new cluster takes its id from its certificates. Give --cluster for one that exists: `strandline cluster status`
    shows its id. Servers can be dialled by localhost as well.
    """

    def work() -> list[CertificateHolder]:
        from strandline.cli.local import certificate_folder as folder
        from strandline.rpc.permissions import CallerRole, Identity

        name = cluster or str(uuid.uuid4())
        common = [*(hosts or []), *folder.LOOPBACK_HOSTS]
        plan: list[tuple[Identity, list[str]]] = [
            (Identity(name, CallerRole.CONTROLLER, "controller"), [*(controller_host or ["controller"]), *common])
        ]
        for node_id in range(first_node, first_node + nodes):
            own = [pattern.replace("{id}", str(node_id)) for pattern in node_host or ["node-{id}"]]
            plan.append((Identity(name, CallerRole.REPLICA, str(node_id)), [*own, *common]))
        plan += [(Identity(name, CallerRole.CLIENT, one), []) for one in client or ["client"]]
        plan += [(Identity(name, CallerRole.ADMIN, one), []) for one in admin or ["admin"]]
        _refuse_doubles(identity for identity, _ in plan)
        for identity, _ in plan:
            folder.refuse_existing(directory / folder.folder_name(identity))
        authority = folder.begin(directory, name, max(valid_for.days, 3650))
        return [folder.add(directory, authority, identity, names, valid_for.days) for identity, names in plan]

    _perform(work, output)


@app.command()
def add(
    directory: Directory,
    who: Annotated[str, typer.Argument(metavar="ROLE/ID", help="For example replica/4, client/reports, admin/eve.")],
    hosts: Hosts = None,
    valid_for: ValidFor = YEAR,
    output: Output = Format.TABLE,
) -> None:
    """Make one more certificate. Give --host for one that serves a port, such as that of the analytics server."""

    def work() -> list[CertificateHolder]:
        from strandline.cli.local import certificate_folder as folder
        from strandline.rpc.permissions import SCHEME, CallerRole, parse_identity

        identity = parse_identity(f"{SCHEME}{folder.cluster_of(directory)}/{who}")
        is_server = identity.role in (CallerRole.REPLICA, CallerRole.CONTROLLER) or hosts
        names = [*(hosts or []), *folder.LOOPBACK_HOSTS] if is_server else []
        return [folder.add(directory, folder.authority_of(directory), identity, names, valid_for.days)]

    _perform(work, output)


@app.command()
def renew(directory: Directory, valid_for: ValidFor = YEAR, output: Output = Format.TABLE) -> None:
    """Replace every certificate and key with new ones for the same names; running processes load them."""

    def work() -> list[CertificateHolder]:
        from strandline.cli.local import certificate_folder as folder

        authority = folder.authority_of(directory)
        return [folder.renew(authority, holder, valid_for.days) for holder in list(folder.holders(directory))]

    _perform(work, output)


@app.command("list")
def list_certificates(directory: Directory, output: Output = Format.TABLE) -> None:
    """List the certificates with their names and dates."""

    def work() -> list[CertificateHolder]:
        from strandline.cli.local import certificate_folder as folder

        return list(folder.holders(directory))

    _perform(work, output)


def _perform(work: Callable[[], list[CertificateHolder]], form: Format) -> None:
    try:
        found = work()
    except FileExistsError as error:
        raise fail(CommandFailed(f"{error.filename} exists; nothing was written over", EXIT_UNREACHABLE)) from error
    except (ValueError, OSError) as error:
        raise fail(CommandFailed(str(error), EXIT_UNREACHABLE)) from error
    show([_row(holder) for holder in found], _COLUMNS, form)


def _refuse_doubles(identities: Iterable[Identity]) -> None:
    from strandline.cli.local.certificate_folder import folder_name

    seen: set[str] = set()
    for identity in identities:
        name = folder_name(identity)
        if name in seen or name == "authority":
            raise ValueError(f"two holders would share the folder '{name}'; give one of them another id")
        seen.add(name)


def _row(holder: CertificateHolder) -> dict[str, Any]:
    return {
        "holder": str(holder.folder),
        "identity": holder.identity.uri,
        "hosts": ", ".join(holder.hosts),
        "valid_until": holder.certificate.not_valid_after_utc.strftime("%Y-%m-%d"),
    }
