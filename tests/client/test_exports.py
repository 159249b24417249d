"""What the package `strandline.client` gives its users, whose call each call is, and which errors its page names."""

from __future__ import annotations

import builtins
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_cluster import TOPIC, fake_cluster

from strandline import client
from strandline.client import Admin, Consumer, Producer, sync

_NAMES = re.compile(r"^    ([A-Z]\w+(?:, [A-Z]\w+)*):", re.MULTILINE)
_QUOTED = re.compile(r"(?<!`)`([A-Za-z_]+)(?:\.([a-z_]+))?`(?!`)")
_NOT_MADE_BY_USERS = {"OutgoingBatch", "Blocking", "BlockingReader", "Cluster", "TransactionalId"}
"""Parameters of constructors that only the client itself calls."""

_SHARED = {
    "Acks",
    "Compression",
    "ControllerHint",
    "ErrorCode",
    "ForkedAfterUse",
    "LeaderEpoch",
    "NewRecord",
    "Offset",
    "Operation",
    "Outcome",
    "Pattern",
    "Permission",
    "Record",
    "Quota",
    "QuotaChange",
    "QuotaKey",
    "Refusal",
    "Refused",
    "ResourceType",
    "Rule",
    "TlsWrong",
}
"""Words of the protocol that every part uses: what is refused and how, what a record is, and what a rule is. Nothing
else that a user meets is a type of the core."""

_MODULES = [client, sync]


def named_types(annotation: object) -> set[typing.Any]:
    """The project's own types in an annotation, those inside of unions, lists and callables too."""
    is_own = getattr(annotation, "__module__", "").startswith("strandline")
    is_type = isinstance(annotation, type) or hasattr(annotation, "__supertype__")
    found: set[typing.Any] = {annotation} if is_own and is_type else set()
    for inner in (*typing.get_args(annotation), typing.get_origin(annotation)):
        for one in inner if isinstance(inner, list) else [inner]:
            if one is not None:
                found |= named_types(one)
    return found


def public_functions(cls: type) -> list[typing.Any]:
    """The constructor and every public method and property of a class."""
    members = [member for name, member in inspect.getmembers(cls) if not name.startswith("_") or name == "__init__"]
    functions = [member.fget if isinstance(member, property) else member for member in members]
    return [function for function in functions if inspect.isfunction(function)]


def exported() -> list[type]:
    """Every class that the packages export."""
    found = [getattr(module, name) for module in _MODULES for name in module.__all__]
    return [value for value in found if inspect.isclass(value)]


def met() -> set[typing.Any]:
    """Every type that the exported classes take, return or hold."""
    found: set[typing.Any] = set()
    for cls in exported():
        for owner in (cls, *public_functions(cls)):
            for name, hint in typing.get_type_hints(owner).items():
                if not name.startswith("_"):
                    found |= named_types(hint)
    return {one for one in found if one.__name__ not in _NOT_MADE_BY_USERS}


def documented() -> Iterator[tuple[str, str]]:
    """Every docstring that a user reads, with whose it is."""
    for cls in exported():
        if not cls.__module__.startswith("strandline.client"):
            continue
        for one in (cls, *public_functions(cls)):
            if one.__module__.startswith("strandline.client"):
                yield f"{cls.__name__}.{one.__name__}", inspect.getdoc(one) or ""


def test_every_type_that_users_meet_is_exported() -> None:
    """Every type that the exported classes take, return or hold can be imported from the same package."""
    own = {one for module in _MODULES for name in module.__all__ if (one := getattr(module, name)) is not None}
    missing = {one.__name__ for one in met() if one not in own}

    assert missing == set()
    assert {"Refused", "TopicPartition", "DescribedCluster"} <= {one.__name__ for one in met() | set(exported())}


def test_what_users_meet_is_the_clients_own() -> None:
    """Beside the words of the protocol nothing is a type of the core, of rpc or of records: those may change."""
    others = {one for one in met() | set(exported()) if not one.__module__.startswith("strandline.client")}

    assert {one.__name__ for one in others} == _SHARED


def test_every_error_that_users_catch_is_exported() -> None:
    """Each exception that a docstring of an exported class names under "Raises" is exported or Python's own."""
    raised: set[str] = set()
    for _, text in documented():
        _, _, section = text.partition("Raises:\n")
        for names in _NAMES.findall(section):
            raised |= set(names.split(", "))
    own = {name for name in raised if not hasattr(builtins, name)}

    assert {"Refused", "SendFailed", "DeserializationFailed"} <= raised
    assert own - set(client.__all__) == set()


def test_docstrings_name_what_a_user_has() -> None:
    """A name in backquotes is exported, a member or parameter of something that is, or Python's own."""
    members = {name for cls in exported() for name in dir(cls)}
    members |= {name for cls in exported() for function in public_functions(cls) for name in _parameters(function)}
    known = set(client.__all__) | members | set(dir(builtins)) | {"for"}
    unknown = [
        f"{where}: {match.group()}"
        for where, text in documented()
        for match in _QUOTED.finditer(text)
        if match[1] not in known or (match[2] and match[2] not in members)
    ]

    assert unknown == []


def _parameters(function: typing.Any) -> list[str]:
    return list(inspect.signature(function).parameters)


async def test_every_call_says_whose_it_is() -> None:
    """Streams and single calls to controllers, leaders and followers have the name as the first word."""
    async with (
        fake_cluster(nodes=2) as cluster,
        Producer(cluster.bootstrap, client_id="shop") as producer,
        Consumer(cluster.bootstrap, client_id="shop") as consumer,
        Consumer(cluster.bootstrap, client_id="shop", read_from="follower") as follower,
        Admin(cluster.bootstrap, client_id="shop") as admin,
    ):
        await producer.send_and_wait(TOPIC, b"x")
        for reader in (consumer, follower):
            await reader.assign(TOPIC)
            await reader.poll(5_000)
        await admin.list_nodes()
        await admin.list_offsets(TOPIC)
        await admin.describe_partitions()
        await admin.describe_replicas()
        agents = cluster.user_agents

    called = {"WatchMetadata", "InitProducerId", "ProduceStream", "ListOffsets", "FetchStream", "Fetch", "ListNodes"}
    assert called | {"DescribePartitions", "DescribeReplicas"} <= agents.keys()
    assert {agent.split()[0] for found in agents.values() for agent in found} == {"shop"}


@pytest.mark.parametrize("kind", [Producer, Consumer, Admin])
@pytest.mark.parametrize("name", ["", "two words", "x" * 250, "line\n"])
def test_a_name_is_one_word(kind: type[Any], name: str) -> None:
    """Anything else is rejected, because it would not arrive as it was given."""
    with pytest.raises(ValueError, match=r"client_id .* must be 1 to 249"):
        kind("127.0.0.1:1", client_id=name)


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "CLIENT.md").read_text()


def test_the_page_has_every_error() -> None:
    """Everything that is exported to be caught is in the table of what is raised."""
    table = PAGE.partition("### What is raised")[2].partition("## ")[0]
    errors = {
        name
        for name in client.__all__
        if inspect.isclass(one := getattr(client, name)) and issubclass(one, BaseException)
    }
    named = set(re.findall(r"`(\w+)`", table))

    assert {"Refused", "TopicDeleted"} <= errors <= named
