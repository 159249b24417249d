"""The table of line forms: the lines of Kafka's logs that are read, with their first release and a sample of each.

A form is one row: its family, the releases whose source or log has it, a line as it was written, and the resulting
fact. A line that has a family's words but fits no row is counted by its family and never guessed.

Invariant: every sample fits its own row and no other row of its family.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from strandline_kafka.brokers import line_facts
from strandline_kafka.metadata.wire import uuid_text

Found = re.Match[str]


class LineForm(NamedTuple):
    """One form of a line's message."""

    family: str
    releases: str
    sample: str
    expression: re.Pattern[str]
    fact: Callable[[Found], line_facts.LineFact]
    becomes: str
    """Its result, for the documentation page."""


FAMILIES: dict[str, str] = {
    "shrink": "Shrinking ISR",
    "expansion": "Expanding ISR",
    "update": "ISR updated to",
    "leader": "Leader ",
    "follower": "Follower ",
    "cut": "Truncating ",
    "load": "Completed load of ",
    "fence": "Fencing broker ",
    "shutdown": "granted a controlled shutdown",
    "registration": "Successfully registered broker ",
    "release": "Kafka version: ",
}
"""The words in the lines of a family; `Leader` and `Follower` lines are those of the logger of state changes."""

SETTINGS = frozenset(
    {
        "replica.lag.time.max.ms",
        "broker.session.timeout.ms",
        "broker.heartbeat.interval.ms",
        "min.insync.replicas",
    }
)
"""The settings read from a `KafkaConfig values` block; all others are dropped unread, because some are secrets."""
SETTINGS_BEGIN = "KafkaConfig values:"
_SETTING = re.compile(r"\t(?P<name>[a-z.]{1,60}) = (?P<value>\d{1,10})")

_PLACE = r"(?P<topic>[\w.-]{1,249})-(?P<partition>\d{1,9})"
_PARTITION = rf"\[Partition {_PLACE} broker=(?P<broker>\d{{1,9}})\] "
_BROKER = r"\[Broker id=(?P<broker>\d{1,9})\] "
_IDS = r"\[?(?P<{}>[\d, ]{{0,4000}})\]?"
_NUMBER = r"(?P<{}>-?\d{{1,18}})"
_EPOCH = r"(?P<{}>-?\d{{1,9}})"
"""At most the digits that fit into a column: a line with more is damaged."""
_LEADER = rf"Leader: \(highWatermark: {_NUMBER.format('hw')}, endOffset: {_NUMBER.format('leo')}\)\. "
_TOPIC_ID = r"(?:None|(?:Some\()?(?P<topic_id>[A-Za-z0-9_-]{22})\)?)"
_MEMBER = r"\(brokerId: (\d{1,9}), endOffset: (\d{1,18}|unknown|-1)(?:, lastCaughtUpTimeMs: (-?\d{1,15}|unknown))?\)"
_MEMBERS = re.compile(_MEMBER)
_ONE_UNTIMED = r"\(brokerId: \d{1,9}, endOffset: (?:\d{1,18}|unknown|-1)\)"
_ONE_TIMED = _ONE_UNTIMED[:-2] + r", lastCaughtUpTimeMs: (?:-?\d{1,15}|unknown)\)"


def _out_of_sync(one: str) -> str:
    return rf"Out of sync replicas: (?P<members>{one}(?: {one}){{0,200}})\."


def _tp(found: Found) -> tuple[str, int]:
    return found["topic"], int(found["partition"])


def _broker(found: Found) -> int:
    return int(found["broker"])


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.replace(",", " ").split())


def _known(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _shrink(found: Found) -> line_facts.LineFact:
    said = found.groupdict()
    members = _MEMBERS.findall(said.get("members") or "")
    removed = tuple(line_facts.OutOfSync(int(node), _known(leo), _known(caught_up)) for node, leo, caught_up in members)
    old_isr, new_isr = _ids(found["old"]), _ids(found["new"])
    if not removed:
        removed = tuple(line_facts.OutOfSync(node, None, None) for node in old_isr if node not in new_isr)
    hw, leo = _known(said.get("hw")), _known(said.get("leo"))
    return line_facts.ShrinkProposed(*_tp(found), _broker(found), old_isr, new_isr, hw, leo, removed)


def _update(found: Found) -> line_facts.LineFact:
    return line_facts.IsrUpdated(*_tp(found), _broker(found), _ids(found["isr"]), int(found["epoch"]))


def _leader(found: Found) -> line_facts.LineFact:
    leader_epoch, offset, epoch, hw = (int(found[name]) for name in ("leader_epoch", "offset", "epoch", "hw"))
    topic_id = None if found["topic_id"] is None else uuid_text(found["topic_id"])
    return line_facts.LeaderStarted(
        *_tp(found), _broker(found), leader_epoch, offset, epoch, hw, _ids(found["isr"]), topic_id
    )


def _follower(found: Found) -> line_facts.LineFact:
    leader_epoch, offset, epoch = (int(found[name]) for name in ("leader_epoch", "offset", "epoch"))
    return line_facts.FollowerStarted(*_tp(found), _broker(found), leader_epoch, offset, epoch)


def _cut_asked(reason: str) -> Callable[[Found], line_facts.LineFact]:
    return lambda found: line_facts.CutAsked(*_tp(found), int(found["offset"]), reason)


_SHRINKING = rf"{_PARTITION}Shrinking ISR from {_IDS.format('old')} to {_IDS.format('new')}"
_STARTS = rf" starts at leader epoch {_EPOCH.format('leader_epoch')} from offset {_NUMBER.format('offset')} with "
_LEADS = (
    rf"{_BROKER}Leader {_PLACE} with topic id {_TOPIC_ID}{_STARTS}partition epoch {_EPOCH.format('epoch')}, "
    rf"high watermark {_NUMBER.format('hw')}, ISR {_IDS.format('isr')}, adding replicas [^.]{{0,2000}}\. "
)
_FOLLOWS = (
    rf"{_BROKER}Follower {_PLACE}{_STARTS}partition epoch {_EPOCH.format('epoch')} and high watermark "
    rf"{_NUMBER.format('hw')}\. "
)
_CUTTING = rf"\[ReplicaFetcher [^]]{{0,200}}\] Truncating partition {_PLACE} with TruncationState\(" + (
    rf"offset={_NUMBER.format('offset')}, completed=\w{{4,5}}\) due to "
)
_TIMED_OUT = r"Fencing broker (?P<node>\d{1,9})(?: at epoch \d{1,19})? because its session has timed out\."
_STOPS = r"Unfenced broker (?P<node>\d{1,9}) has requested and been granted a controlled shutdown\."
_LOG = rf"\[(?:Unified)?Log partition={_PLACE}, dir=[^]]{{0,4000}}\] "


def _row(
    family: str, releases: str, becomes: str, expression: str, fact: Callable[[Found], line_facts.LineFact], sample: str
) -> LineForm:
    return LineForm(family, releases, sample, re.compile(expression), fact, becomes)


FORMS: tuple[LineForm, ...] = (
    _row(
        "shrink", "3.5 to 4.3", "`ALTER_PARTITION` proposed; the echo's HW, LEO and members",
        rf"{_SHRINKING}\. {_LEADER}{_out_of_sync(_ONE_TIMED)}", _shrink,
        "[Partition payments-0 broker=1] Shrinking ISR from 3,2,1 to 1,3. Leader: (highWatermark: 118, endOffset: 119)."
        " Out of sync replicas: (brokerId: 2, endOffset: 118, lastCaughtUpTimeMs: 1795387874209).",
    ),
    _row(
        "shrink", "2.2 to 3.4", "the same, without when a member was caught up",
        rf"{_SHRINKING}\. {_LEADER}{_out_of_sync(_ONE_UNTIMED)}", _shrink,
        "[Partition s08_dur-0 broker=1] Shrinking ISR from 1,2,3 to 1,3. Leader: (highWatermark: 150, endOffset: 150)."
        " Out of sync replicas: (brokerId: 2, endOffset: 132).",
    ),
    _row(
        "shrink", "before 2.2", "the same, without any offset",
        rf"{_SHRINKING}", _shrink,
        "[Partition orders-11 broker=2] Shrinking ISR from 2,4,5 to 2,5",
    ),
    _row(
        "update", "3.0 to 4.3", "`ALTER_PARTITION` result and the leader's `ISR_CHANGE` of partition epoch V",
        rf"{_PARTITION}ISR updated to {_IDS.format('isr')}  ?(?:\(under-min-isr\) )?and version updated to "
        rf"\[?{_EPOCH.format('epoch')}\]?", _update,
        "[Partition orders-0 broker=1] ISR updated to 1,2  and version updated to 1",
    ),
    _row(
        "leader", "3.3 to 4.3", "`EPOCH_START`",
        rf"{_LEADS}Previous leader .{{1,200}}", _leader,
        "[Broker id=1] Leader payments-0 with topic id Some(vA7fibUSTiqhYhFLFoLtwQ) starts at leader epoch 0 from "
        "offset 0 with partition epoch 0, high watermark 0, ISR [1,3,2], adding replicas [] and removing replicas [] . "
        "Previous leader None and previous leader epoch was -1.",
    ),
    _row(
        "follower", "3.3 to 4.3", "where the follower's log ended: `from_leo` of its next cut",
        rf"{_FOLLOWS}.{{1,200}}", _follower,
        "[Broker id=1] Follower orders-1 starts at leader epoch 0 from offset 0 with partition epoch 0 and high "
        "watermark 0. Current leader is 2. Previous leader None and previous leader epoch was -1.",
    ),
    _row(
        "cut", "3.0 to 4.3", "the reason of the cut that follows",
        rf"{_CUTTING}local high watermark \d{{1,19}}", _cut_asked("high_watermark"),
        "[ReplicaFetcher replicaId=1, leaderId=2, fetcherId=0] Truncating partition payments-1 with "
        "TruncationState(offset=0, completed=true) due to local high watermark 0",
    ),
    _row(
        "cut", "3.0 to 4.3", "the reason of the cut that follows",
        rf"{_CUTTING}leader epoch .{{1,400}}", _cut_asked("leader_epoch"),
        "[ReplicaFetcher replicaId=1, leaderId=2, fetcherId=0] Truncating partition payments-1 with "
        "TruncationState(offset=90, completed=true) due to leader epoch and offset EpochEndOffset(errorCode=0, "
        "partition=1, leaderEpoch=0, endOffset=90)",
    ),
    _row(
        "cut", "2.8 to 4.3", "no event",
        rf"{_LOG}Truncating to {_NUMBER.format('offset')} has no effect as the largest offset in the log is "
        r"-?\d{1,19}\.?",
        lambda found: line_facts.CutWithoutEffect(*_tp(found), int(found["offset"])),
        "[UnifiedLog partition=orders-2, dir=/srv/kafka/n1/data] Truncating to 0 has no effect as the largest offset in"
        " the log is -1",
    ),
    _row(
        "cut", "2.8 to 4.3", "`TRUNCATION`",
        rf"{_LOG}Truncating to offset {_NUMBER.format('offset')}",
        lambda found: line_facts.CutDone(*_tp(found), int(found["offset"])),
        "[UnifiedLog partition=orders-2, dir=/srv/kafka/n1/data] Truncating to offset 90",
    ),
    _row(
        "cut", "2.8 to 4.3", "`hw_before` and `committed_cut` of the cut that follows",
        rf"(?:\[[^]]{{0,200}}\] )?Truncating {_PLACE} to offset {_NUMBER.format('offset')} below high watermark "
        rf"{_NUMBER.format('hw')}",
        lambda found: line_facts.CutBelowHw(*_tp(found), int(found["offset"]), int(found["hw"])),
        "[ReplicaFetcher replicaId=1, leaderId=2, fetcherId=0] Truncating orders-2 to offset 90 below high watermark "
        "95",
    ),
    _row(
        "load", "2.8 to 4.3", "where the log ended at the start: `from_leo` of the next cut",
        r"Completed load of Log\(dir=.{1,4000}, topic=(?P<topic>[\w.-]{1,249}), partition=(?P<partition>\d{1,9}), "
        rf".{{1,400}} logEndOffset={_NUMBER.format('leo')}\) with .{{1,4000}}",
        lambda found: line_facts.LogLoaded(*_tp(found), int(found["leo"])),
        "Completed load of Log(dir=/srv/kafka/n1/data/payments-0, topicId=vA7fibUSTiqhYhFLFoLtwQ, topic=payments, "
        "partition=0, highWatermark=0, lastStableOffset=0, logStartOffset=0, logEndOffset=1812) with 1 segments, "
        "local-log-start-offset 0 and log-end-offset 1812 in 176ms (2/5 completed in /srv/kafka/n1/data)",
    ),
    _row(
        "fence", "3.5 to 4.3", "the cause of a fence: session_timeout",
        rf"\[QuorumController id=\d{{1,9}}\] {_TIMED_OUT}",
        lambda found: line_facts.SessionTimedOut(int(found["node"])),
        "[QuorumController id=3] Fencing broker 2 at epoch 19 because its session has timed out.",
    ),
    _row(
        "fence", "3.3 to 3.4", "the same",
        rf"\[Controller \d{{1,9}}\] {_TIMED_OUT}", lambda found: line_facts.SessionTimedOut(int(found["node"])),
        "[Controller 1] Fencing broker 3 because its session has timed out.",
    ),
    _row(
        "shutdown", "3.5 to 4.3", "no event: the metadata log has it",
        rf"\[QuorumController id=\d{{1,9}}\] {_STOPS}", lambda found: line_facts.ShutdownGranted(int(found["node"])),
        "[QuorumController id=3] Unfenced broker 1 has requested and been granted a controlled shutdown.",
    ),
    _row(
        "shutdown", "3.3 to 3.4", "the same",
        rf"\[Controller \d{{1,9}}\] {_STOPS}", lambda found: line_facts.ShutdownGranted(int(found["node"])),
        "[Controller 1] Unfenced broker 1 has requested and been granted a controlled shutdown.",
    ),
    _row(
        "registration", "3.3 to 4.3", "the incarnation of what follows",
        r"\[BrokerLifecycleManager id=\d{1,9}(?: [^]]{0,100})?\] Successfully registered broker (?P<node>\d{1,9}) with "
        r"broker epoch (?P<epoch>\d{1,18})",
        lambda found: line_facts.BrokerRegistered(int(found["node"]), int(found["epoch"])),
        "[BrokerLifecycleManager id=1] Successfully registered broker 1 with broker epoch 11",
    ),
    _row(
        "release", "2.8 to 4.3", "the release, in the source of the export",
        r"Kafka version: (?P<version>[\w.-]{1,40})", lambda found: line_facts.KafkaVersion(found["version"]),
        "Kafka version: 4.3.1",
    ),
)  # fmt: skip
"""Every form, the newest of a family first."""

_BY_FAMILY: dict[str, tuple[LineForm, ...]] = {
    family: tuple(form for form in FORMS if form.family == family) for family in FAMILIES
}
_WORDS = re.compile("|".join(f"(?P<{family}>{re.escape(words)})" for family, words in FAMILIES.items()))
_ANY_WORDS = (SETTINGS_BEGIN, *FAMILIES.values())
_OF_STATE_CHANGES = frozenset({"leader", "follower"})


class Read(NamedTuple):
    """The result of reading a message: its family, and the fact if a row of the table fits."""

    family: str
    fact: line_facts.LineFact | None


def may_matter(text: str) -> bool:
    """Whether a line has the words of a family, or begins a block of settings; all others are skipped unparsed."""
    # Separate searches are twenty times as fast as one expression for all.
    return any(words in text for words in _ANY_WORDS)


def read_message(message: str) -> Read | None:
    """The fact in a message, by the first row of its family that fits; None for a message of no family."""
    found = _WORDS.search(message)
    if found is None:
        return None
    family = str(found.lastgroup)
    if family in _OF_STATE_CHANGES and " starts at leader epoch " not in message:
        return None
    for form in _BY_FAMILY[family]:
        if (fits := form.expression.fullmatch(message)) is not None:
            return Read(family, form.fact(fits))
    return Read(family, None)


def read_setting(text: str) -> line_facts.Setting | None:
    """One line within a block of settings; None if it is not read, or ends the block."""
    found = _SETTING.fullmatch(text)
    if found is None or found["name"] not in SETTINGS:
        return None
    return line_facts.Setting(found["name"], int(found["value"]))
