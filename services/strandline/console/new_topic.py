"""The form of a new topic: how it is read and sent to the controller, and how a refusal is shown.

Invariant: the controller alone judges names and settings; here only what cannot be a number is refused. A topic is
asked for once; a lost answer is shown as lost, and the request is never repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs

from strandline.client.administer.admin_answers import only
from strandline.client.cluster.metadata import Cluster
from strandline.client.cluster.repeating import ask_again, new_request_id
from strandline.client.errors import ClusterUnreachable
from strandline.core.errors import RULES, Refusal, Refused
from strandline.v1 import controller_service_pb2 as pb

_DEADLINE_MS = 10_000
FIELDS = ("name", "partitions", "replication_factor", "configs", "token")


class Unreadable(ValueError):
    """A field that must be a whole number, or a line that must be NAME=VALUE, is not; ``field`` says which."""

    def __init__(self, field: str, rule: str, remedy: str) -> None:
        super().__init__(rule)
        self.field = field
        self.rule = rule
        self.remedy = remedy


def read_form(body: bytes) -> dict[str, str]:
    """The fields of the form; others are ignored."""
    given = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=50)
    return {name: given.get(name, [""])[0].strip() for name in FIELDS}


def read_topic(given: Mapping[str, str]) -> pb.CreatableTopic:
    """The topic that the fields describe.

    Raises:
        Unreadable: a field cannot be read.
    """
    return pb.CreatableTopic(
        name=given["name"],
        num_partitions=_count("partitions", given["partitions"]),
        replication_factor=_count("replication_factor", given["replication_factor"]),
        configs=_configs(given["configs"]),
    )


async def create_topic(cluster: Cluster, topic: pb.CreatableTopic) -> None:
    """Ask the controller for the topic.

    Raises:
        Refused: the controller's refusal.
        ClusterUnreachable: no answer; the topic may have been created.
    """
    request = pb.CreateTopicsRequest(
        cluster_id=cluster.cluster_id, topics=[topic], timeout_ms=_DEADLINE_MS, request_id=new_request_id()
    )
    answer = await ask_again(cluster, lambda to: to.CreateTopics, request, deadline_ms=_DEADLINE_MS)
    only(answer.topics)


def trouble_of(error: Exception) -> dict[str, str]:
    """A failure as the page shows it: code, field, sentence, rule, remedy; what is not known is empty."""
    if isinstance(error, Unreadable):
        return _reported("", error.field, "cannot be read", error.rule, error.remedy)
    if isinstance(error, Refused):
        refusal: Refusal = error.refusal
        remedy = refusal.remedy or RULES[refusal.code].remedy
        return _reported(refusal.code.name, refusal.field or "", refusal.message, refusal.rule or "", remedy)
    if isinstance(error, ClusterUnreachable):
        remedy = "look at the list of topics before asking again: it may have been created"
        return _reported("", "", f"no answer: {error}", "", remedy)
    return _reported("", "", str(error), "", "")


def _reported(code: str, field: str, sentence: str, rule: str, remedy: str) -> dict[str, str]:
    return {"code": code, "field": field, "sentence": sentence, "rule": rule, "remedy": remedy}


def _count(field: str, text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 6:
        raise Unreadable(field, "must be a whole number", "write for example 3, or leave it empty for the default")
    return int(text)


def _configs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if line.strip() and (not equals or not name.strip()):
            raise Unreadable("configs", "must have one NAME=VALUE on each line", "write min.insync.replicas=2")
        if line.strip():
            found[name.strip()] = value.strip()
    return found
