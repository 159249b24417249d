"""`strandline topic configs`: the settings of a topic as they are in force, and where each comes from.

Invariant: a value that each node has for itself is not shown as if the controller knew it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.failures import perform
from strandline.cli.options import Bootstrap, Output, Topic
from strandline.cli.output import Column, Format, show
from strandline.cli.over_tls import over_tls

if TYPE_CHECKING:
    from strandline.client import TopicConfig

_COLUMNS = [
    Column("name", "setting"),
    Column("value", "value"),
    Column("source", "from"),
    Column("default", "default"),
]


@over_tls
def configs(
    topic: Topic,
    bootstrap: Bootstrap,
    name: Annotated[list[str] | None, typer.Option("--config", "-c", metavar="NAME", help="Only this setting.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the settings of a topic: value, where it comes from (topic, node, default), and the default."""
    perform(_configs(bootstrap, topic, name or [], output))


async def _configs(bootstrap: str, topic: str, names: list[str], form: Format) -> None:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        found = await admin.describe_configs(topic, names)
    show([config_row(one) for one in found], _COLUMNS, form, empty="no settings")


def config_row(config: TopicConfig) -> dict[str, Any]:
    """A setting as a row."""
    return {
        "name": config.name,
        "value": config.value,
        "source": config.source.value,
        "default": config.default,
    }
