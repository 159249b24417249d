"""`strandline topic add-partitions`: more partitions for a topic, with what that changes for its users.

Invariant: the number of partitions never falls; the controller refuses a number that is not higher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.failures import perform
from strandline.cli.options import Bootstrap, Topic
from strandline.cli.over_tls import over_tls

if TYPE_CHECKING:
    from strandline.client import Admin

_WARNING = (
    "records with a key may go to another partition from now on, and are in order within each partition only; "
    "consumers that were assigned single partitions do not read the new ones"
)


@over_tls
def add_partitions(
    topic: Topic,
    bootstrap: Bootstrap,
    total: Annotated[int, typer.Option("--total", "-t", min=2, help="How many partitions the topic has afterwards.")],
) -> None:
    """Add partitions to a topic. Records with a key may go to other partitions from then on."""
    perform(_add(bootstrap, topic, total))


async def _add(bootstrap: str, topic: str, total: int) -> None:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        await grow(admin, topic, total)


async def grow(admin: Admin, topic: str, total: int) -> None:
    """Add partitions until there are ``total``, and say on stderr what changes for records with keys.

    Raises:
        Refused: INVALID_PARTITIONS, UNKNOWN_TOPIC_OR_PARTITION.
    """
    await admin.create_partitions(topic, total)
    typer.echo(f"{topic} has {total} partitions now")
    typer.echo(f"warning: {_WARNING}", err=True)
