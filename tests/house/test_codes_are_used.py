"""Error codes and exit codes are in use: product code raises each of them, and clients act as in the table."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import IntEnum
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strandline.client import offsets
from strandline.client.cluster.view import Leader
from strandline.client.consume.fetching import Fetching, FetchPolicy
from strandline.client.log import RetryLog
from strandline.client.offsets import LATEST, OffsetFinder
from strandline.client.produce.delivery import OutgoingBatch, ProducerIdentity
from strandline.client.produce.lane import PartitionLane
from strandline.core.errors import RESERVED, RULES, ErrorCode, Outcome, Refusal, Refused
from strandline.core.messages import Endpoint, NodeRegistered
from strandline.core.types import LeaderEpoch, NodeId, TopicPartition
from strandline.runtime.exit_codes import ExitCode
from strandline.runtime.session import Session
from strandline.v1 import partition_pb2

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ROOT / "services" / "strandline"
TP = TopicPartition("id", 0)
ERRORS = [code for code in ErrorCode if code is not ErrorCode.NONE]


def _product_files() -> Iterator[Path]:
    """Files of servers, processes and clients; the simulator's own codes prove nothing."""
    for folder in (SERVICES, ROOT / "analytics" / "strandline_analytics"):
        for path in folder.rglob("*.py"):
            if not {"v1"} & set(path.relative_to(folder).parts) and path != SERVICES / "core" / "errors.py":
                yield path


def _raised(tree: ast.AST, enum: type[IntEnum]) -> set[str]:
    """Members that are passed on: not those that are only compared, or listed in a set, a tuple or as keys."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == enum.__name__:
            above: ast.AST = parents[node]
            below: ast.AST = node
            while isinstance(above, ast.IfExp | ast.BoolOp):
                above, below = parents[above], above
            is_key = isinstance(above, ast.Dict) and below in above.keys
            if not is_key and not isinstance(above, ast.Compare | ast.MatchValue | ast.Set | ast.Tuple | ast.List):
                found.add(node.attr)
    return found


def _raised_anywhere(enum: type[IntEnum]) -> set[str]:
    texts = (path.read_text() for path in _product_files())
    return set().union(*(_raised(ast.parse(text), enum) for text in texts if enum.__name__ in text))


def test_every_error_code_is_raised_or_reserved() -> None:
    """A code of the table is returned by product code, or it is in RESERVED, and never both."""
    raised = _raised_anywhere(ErrorCode) - {"NONE"}
    reserved = {code.name for code in RESERVED}

    assert raised | reserved == {code.name for code in ERRORS}
    assert raised & reserved == set()


def test_every_exit_code_is_raised() -> None:
    """Some process ends with each of the exit codes."""
    assert _raised_anywhere(ExitCode) == {code.name for code in ExitCode}


def test_a_code_that_is_only_compared_is_not_raised() -> None:
    """The search for raised codes takes a call's argument, and leaves comparisons, sets and keys out."""
    source = """
if refusal.code is ErrorCode.NETWORK_EXCEPTION or refusal.code in {ErrorCode.INVALID_CONFIG}:
    status = {ErrorCode.INVALID_RECORD: 1}
    raise Refused(ErrorCode.INVALID_REQUEST if is_wrong else ErrorCode.INVALID_TIMESTAMP, "no")
"""

    assert _raised(ast.parse(source), ErrorCode) == {"INVALID_REQUEST", "INVALID_TIMESTAMP"}


def test_pages_and_contract_say_which_codes_are_reserved() -> None:
    """PROTOCOL.md and error.proto name exactly the codes that are never returned."""
    page = (ROOT / "docs" / "PROTOCOL.md").read_text()
    line = next(line for line in page.splitlines() if line.startswith("- Reserved error numbers"))
    proto = (ROOT / "protos" / "strandline" / "v1" / "error.proto").read_text().splitlines()
    marked = {after.split()[0] for before, after in pairwise(proto) if "Reserved:" in before}

    assert set(re.findall(r"[A-Z]+(?:_[A-Z]+)+", line)) == {code.name for code in RESERVED}
    assert marked == {f"ERROR_CODE_{code.name}" for code in RESERVED}


@pytest.mark.parametrize("code", ERRORS, ids=lambda code: code.name)
def test_a_producer_sends_again_what_is_retriable(code: ErrorCode) -> None:
    """A numbered batch is sent again if the table says so; otherwise it has ended, acknowledged or failed."""
    lane = PartitionLane("t-0", idempotent=True, max_in_flight=5)
    lane.identity = ProducerIdentity(1, 0)
    batch = OutgoingBatch("t", TP, now_ms=0, deadline_ms=1e9)
    batch.record_count = 1
    lane.queue.append(batch)
    lane.maybe_take(1, 0)
    lane.refused(batch, Refusal(code, outcome=Outcome.MAY_APPEAR), 0)

    assert batch.is_done is not RULES[code].retriable


@pytest.mark.parametrize("code", ERRORS, ids=lambda code: code.name)
async def test_a_consumer_fetches_again_after_what_is_retriable(code: ErrorCode) -> None:
    """A rejected fetch is sent again, with new metadata, if the table says so; otherwise the user gets the error."""
    refreshed: list[bool] = []
    later: list[float] = []
    cluster = SimpleNamespace(listen=lambda _: None, refresh=lambda: refreshed.append(True), background=None)
    policy = FetchPolicy(False, None, 0, "error", 500, 1, 1 << 20, 1 << 20, partition_pb2.ISOLATION_LEVEL_UNSPECIFIED)
    fetching = Fetching(cast("Any", cluster), policy, on_news=lambda: None, on_lost=lambda: None)
    cursor = SimpleNamespace(topic="t", tp=TP, fetch_offset=0, failure=None, later=later.append, retry=RetryLog("t"))
    fetching._refused(cast("Any", cursor), Refusal(code))

    assert (cursor.failure is None) is RULES[code].retriable
    assert (bool(later), bool(refreshed)) == (RULES[code].retriable,) * 2


@pytest.mark.parametrize("code", ERRORS, ids=lambda code: code.name)
async def test_an_offset_is_asked_again_after_what_is_retriable(
    code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rejected offset request stays open if the table says so; otherwise the error is raised."""
    refusal = Refusal(code)

    async def ask(*_: object, **__: object) -> None:
        return None

    leader = Leader(NodeId(1), LeaderEpoch(0), Endpoint("127.0.0.1", 1))
    view = SimpleNamespace(leader_of=lambda _: leader)
    channels = SimpleNamespace(to=lambda _: None)
    cluster = SimpleNamespace(view=view, channels=channels, ask_while=ask, cluster_id="")
    monkeypatch.setattr(offsets, "LeaderServiceStub", lambda _: SimpleNamespace(ListOffsets=None))
    monkeypatch.setattr(offsets, "list_offsets_request", lambda *_, **__: None)
    monkeypatch.setattr(offsets, "read_offsets", lambda _: [SimpleNamespace(tp=TP, refusal=refusal)])
    try:
        raised = await OffsetFinder(cast("Any", cluster)).find_some({TP: LATEST}) != {}
    except Refused:
        raised = True

    assert raised is not RULES[code].retriable


class _NoWait:
    """A back-off that only yields."""

    def next_s(self) -> float:
        return 0


@pytest.mark.parametrize("code", ERRORS, ids=lambda code: code.name)
async def test_a_node_registers_again_after_what_is_retriable(code: ErrorCode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rejected registration is retried if the table says so; otherwise the process ends."""
    answers = [NodeRegistered(refusal=Refusal(code)), NodeRegistered()]
    ended: list[ExitCode] = []

    async def attempt(_: object) -> NodeRegistered:
        return answers.pop(0)

    def stop(code: ExitCode, _: str) -> None:
        ended.append(code)

    nothing: Any = None
    host = cast("Any", SimpleNamespace(node_id=1))
    session = Session(nothing, host, stop=cast("Any", stop), backoff=lambda: cast("Any", _NoWait()))
    monkeypatch.setattr(session, "_try_to_register", attempt)
    await session.register(cast("Any", SimpleNamespace(node_id=1, position=None, topics_position=None)))

    assert ended == ([] if RULES[code].retriable else [ExitCode.REFUSED])
