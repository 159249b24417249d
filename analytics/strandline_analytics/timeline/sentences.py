"""Describes an event in one short sentence, the same in tables, chains and pages.

Invariant: every figure of a sentence is a field of the event; an unknown type is shown by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from strandline.export.schema import CONTROLLER_NODE_ID, START_OFFSET
from strandline_analytics.timeline.causes import MOVED, OLDER_COPY, WAIT_OVER
from strandline_analytics.timeline.event import Event

_NAMED_CHANGES = 3


def sentence(event: Event) -> str:
    """The sentence of an event, without time, partition and writer."""
    reported = _SENTENCES.get(event.event_type)
    return reported(event) if reported else event.event_type.lower().replace("_", " ")


def writer(node_id: int) -> str:
    """``controller`` or ``node 2``."""
    return "controller" if node_id == CONTROLLER_NODE_ID else f"node {node_id}"


def nodes_text(nodes: Iterable[int]) -> str:
    """``{1,2}``, sorted."""
    return "{" + ",".join(str(node) for node in sorted(nodes)) + "}"


def _isr_change(event: Event) -> str:
    old, new = set(event.get("old_isr") or ()), set(event.get("new_isr") or ())
    reported = f"ISR {nodes_text(old)} -> {nodes_text(new)}" if old != new else f"ISR {nodes_text(new)} stays"
    if gone := sorted(old - new):
        reported += f", {_list(gone)} removed"
    if came := sorted(new - old):
        reported += f", {_list(came)} added"
    return reported + (f": its {OLDER_COPY}" if gone and event.cause == "directory_restored" else "")


def _leader_change(event: Event) -> str:
    old, new = event.get("old_leader"), event.get("new_leader")
    epoch = event.get("new_leader_epoch")
    who = "no leader" if new is None or new < 0 else f"node {new} leads"
    after = "" if old is None or old < 0 else f" after node {old}"
    kind = f", {event.get('election_type')} election" if event.get("election_type") else ""
    # For another system the offset may be known without the moment at which the leader began its epoch.
    begins = event.ext.get(START_OFFSET, "")
    where = f" from offset {int(begins):,} on" if begins.isascii() and begins.isdigit() else ""
    return f"{who}{after}, epoch {epoch}{where}{kind}{_why_elected(event)}"


def _why_elected(event: Event) -> str:
    """The reason, if the name of the cause explains little without knowledge of the protocol."""
    old = event.get("old_leader")
    whose = "the leader before" if old is None or old < 0 else f"node {old}"
    if event.cause == MOVED:
        return ": a move of its replicas ended"
    if event.cause == "unclean_recovery_timeout":
        return f": {WAIT_OVER}"
    if event.cause == "directory_restored":
        return f": {whose}'s {OLDER_COPY}"
    if event.cause == "refused_cut":
        return f": node {event.get('new_leader')} held committed records that {whose} lacked, and refused to cut them"
    return ""


def _epoch_start(event: Event) -> str:
    return f"epoch {event.leader_epoch} starts at offset {_n(event.get('start_offset'))}, HW {_n(event.get('hw'))}"


def _truncation(event: Event) -> str:
    if event.cut_records is None:
        # Logs of another system do not always say where a log ended.
        return f"log cut to {_n(event.get('to_leo'))}" + _below_hw(event)
    begin, end = _n(event.get("to_leo")), _n(event.get("from_leo"))
    reported = f"log cut from {end} to {begin} ({_n(event.cut_records)} records)"
    return reported + _below_hw(event)


def _below_hw(event: Event) -> str:
    committed = event.get("committed_cut")
    if committed is None:
        return ", own HW not known"
    return f", {_n(committed)} of them below its HW" if committed else ", none below its HW"


def _alter_partition(event: Event) -> str:
    phase, isr = event.get("phase"), nodes_text(event.get("proposed_isr") or ())
    if phase == "proposed":
        return f"asks for ISR {isr} at partition epoch {event.get('expected_partition_epoch')}"
    code = event.get("error_code")
    took = f" after {event.get('latency_us') / 1000:,.1f} ms" if event.get("latency_us") is not None else ""
    return f"ISR {isr} {'granted' if phase == 'result' and not code else f'{phase} with error {code}'}{took}"


def _hw_advance(event: Event) -> str:
    many = event.get("n_coalesced") or 1
    steps = f" in {_n(many)} steps" if many > 1 else ""
    waited = event.get("blocking_replicas")
    whom = "its own disk" if waited == [event.node_id] else _list(sorted(waited or ()))
    for_whom = f", had waited for {whom}" if waited else ""
    return f"HW {_n(event.get('old_hw'))} -> {_n(event.get('new_hw'))}{steps}{for_whom}"


def _node_session(event: Event) -> str:
    verb = {
        "register": "registers",
        "unfence": "is unfenced",
        "fence": "is fenced",
        "unregister": "is unregistered",
        "disk_nearly_full": "refuses appends: its disk is nearly full",
        "disk_has_room": "takes appends again: its disk has room",
    }
    phase = str(event.get("phase"))
    reported = f"node {event.get('subject_node_id')} {verb.get(phase, phase)}"
    return reported + (f": its {OLDER_COPY}" if event.cause == "directory_restored" else "")


def _config_change(event: Event) -> str:
    if event.get("topic_created"):
        return f"topic created on {nodes_text(event.get('replicas') or ())}, min ISR {event.get('min_isr')}"
    if event.get("topic_deleted"):
        return "topic deleted"
    if event.get("lag_time_max_ms") is not None:
        return f"replica.lag.time.max.ms is {event.get('lag_time_max_ms'):,}"
    return f"min ISR {event.get('min_isr')}, replicas {nodes_text(event.get('replicas') or ())}"


def _reassignment(event: Event) -> str:
    target, adding = event.get("target_replicas") or (), event.get("adding_replicas") or ()
    removing = event.get("removing_replicas") or ()
    if event.get("phase") == "cancelled" and not adding and not removing:
        return "the queued move cancelled"
    was = (event.get("replicas") or ()) if event.get("phase") == "queued" else {*target, *removing} - {*adding}
    moved = f"from {nodes_text(was)} to {nodes_text(target)}"
    waits = "; ".join(f"node {wait}" for wait in event.get("waiting_for") or ())
    # A waiting transaction may have started long ago.
    phase = "runs" if waits and event.get("phase") == "started" else event.get("phase")
    said = f"the move {moved if {*was} != {*target} else f'to the order {list(target)}'} {phase}"
    return f"{said}, and waits: {waits}" if waits else said


def _audit(event: Event) -> str:
    who, method = event.get("principal") or "callers", str(event.get("method") or "").rpartition("/")[2]
    called = " ".join(filter(None, (method, event.get("resource_type"), event.get("resource_name"))))
    if event.get("outcome") == "REFUSED":
        times = event.get("n_coalesced") or 1
        often = f", {_n(times)} times" if times > 1 else ""
        return f"{who} refused {called or 'calls'}{often}: {event.get('rule') or 'no rule allows it'}"
    before, after = event.get("before") or {}, event.get("after") or {}
    names = sorted({*before, *after})
    shown = [f"{name} {before.get(name, 'none')} -> {after.get(name, 'none')}" for name in names[:_NAMED_CHANGES]]
    more = [f"{len(names) - _NAMED_CHANGES} more"] if len(names) > _NAMED_CHANGES else []
    return f"{who} called {called}" + (f": {', '.join((*shown, *more))}" if shown else "")


def _partition_failed(event: Event) -> str:
    refused = event.get("refused_to_leo")
    why = "" if refused is None else f": it refuses to cut to {_n(refused)}, below its HW"
    return f"replica stopped at LEO {_n(event.get('leo'))}, HW {_n(event.get('hw'))}{why}"


def _replica_sample(event: Event) -> str:
    return (
        f"replica {event.get('replica_id')} LEO {_n(event.get('leo'))} of {_n(event.get('leader_leo'))}, "
        f"HW {_n(event.get('hw'))}, {event.get('expected_state')}"
    )


def _local_sample(event: Event) -> str:
    return f"own LEO {_n(event.get('leo'))}, HW {_n(event.get('hw'))}, follows node {event.get('fetch_leader_id')}"


def _clock_sample(event: Event) -> str:
    err = (event.get("err_us") or 0) / 1000
    return f"clock of node {event.get('subject_node_id')} is {event.get('offset_us') / 1000:+,.1f} ms (±{err:,.1f})"


def _export_gap(event: Event) -> str:
    return f"events {event.get('dropped_first_seq')} to {event.get('dropped_last_seq')} were dropped"


def _decision(event: Event) -> str:
    outcome = event.get("outcome")
    if event.get("decision") == "silent":
        return str(outcome)
    if event.get("decision") == "controller_elected":
        return f"{outcome} decides from here"
    return f"decides: {event.get('decision')}" + (f": {outcome}" if outcome else "")


def _snapshot(event: Event) -> str:
    return f"stands: ISR {nodes_text(event.get('new_isr') or ())}, leader {event.get('new_leader')}"


def _reign(event: Event) -> str:
    who, cause = f"controller {event.get('controller_id')}", event.cause
    if event.get("phase") == "begin":
        how = ": it took the key from a dead one" if cause == "key_taken" else ""
        return f"{who} decides from here, token {event.get('token')}{how}"
    why = {
        "hand_over": "it handed over",
        "deposed": "its key ended",
        "store_went_back": "its store went back in time",
    }.get(cause, cause)
    return f"{who} decides no more: {why}"


def _store(event: Event) -> str:
    phase = event.get("phase")
    if phase == "back":
        return f"the store is back after {(event.get('closed_ms') or 0) / 1000:,.1f} s; decisions go on"
    why = {
        "away": "the store does not answer",
        "full": "the store has no space",
        "went_back": "the store went back in time",
    }.get(str(phase), f"the store: {phase}")
    return f"{why}: nothing is decided"


def _group_change(event: Event) -> str:
    old, new = event.get("old_state"), event.get("new_state")
    became = f"is {'still ' if event.is_repeated else ''}{new}" if old == new else f"{old} -> {new}"
    epochs = f"epoch {event.get('group_epoch')}"
    if event.get("target_epoch") != event.get("group_epoch"):
        epochs += f", target of epoch {event.get('target_epoch')}"
    members = event.get("n_members") or 0
    return f"group {event.get('group_id')} {became}, {epochs}, {members} {'member' if members == 1 else 'members'}"


def _member_change(event: Event) -> str:
    who = f"member {event.get('member_id')} of group {event.get('group_id')}"
    if event.get("instance_id") is not None:
        who = f"{who} ({event.get('instance_id')})"
    phase = str(event.get("phase"))
    if event.is_repeated and phase in ("assigned", "revoking"):
        asked = f", is to give up {_count(event.get('revoking'))}" if phase == "revoking" else ""
        return f"{who} still has {_count(event.get('assigned'))}{asked}"
    verb = {
        "joined": "joins",
        "assigned": "is assigned",
        "revoking": "is to give up",
        "away": "is away for a while",
        "fenced": "is fenced: it did not give up its partitions in time",
        "gone": "is gone",
    }.get(phase, phase)
    if phase == "revoking":
        return f"{who} {verb} {_count(event.get('revoking'))}, keeps {len(event.get('assigned') or ())}"
    if phase == "joined":
        return f"{who} {verb}" + (f" with {_count(event.get('assigned'))}" if event.get("assigned") else "")
    return f"{who} {verb}" + (f" {_count(event.get('assigned'))}" if phase == "assigned" else "")


def _group_offsets(event: Event) -> str:
    committed = event.get("committed")
    where = "has nothing committed" if committed is None else f"has committed {_n(committed)}"
    refused = event.get("n_error") or {}
    why = ", ".join(f"{_n(number)} with {name}" for name, number in sorted(refused.items()))
    return f"group {event.get('group_id')} {where}" + (f", commits refused: {why}" if why else "")


def _coordinator_load(event: Event) -> str:
    keys, load_ms = event.get("n_keys") or 0, event.get("load_ms") or 0
    return f"coordinator answers after {load_ms / 1000:,.3f} s: {_n(event.get('bytes'))} bytes read, {_n(keys)} keys"


def _transaction_change(event: Event) -> str:
    name, cause = event.get("transactional_id"), event.cause
    if name is None:
        count = event.get("n_coalesced") or 0
        return f"{_n(count)} short {'transaction' if count == 1 else 'transactions'} committed"
    if cause == "marker_refused":
        return f"this partition calls the transaction of {name} over, and its coordinator waits for it"
    verb = {
        "init": "has an identity",
        "begun": "has a transaction open for long",
        "repeated": "still has a transaction open",
        "committed": "commits",
        "aborted": "aborts",
        "timeout": "took too long and is aborted",
        "fenced": "is fenced, its transaction is aborted",
        "completed": "has all markers",
        "expired": "is forgotten",
    }.get(cause, cause)
    many = event.get("n_partitions") or 0
    where = f", {many} {'partition' if many == 1 else 'partitions'}" if many else ""
    return f"transactional id {name} {verb}: {_producer(event)}{where}"


def _transaction_open(event: Event) -> str:
    since_us = event.get("held_since_us")
    held = "" if since_us is None else f" for {max(0, event.raw_us - since_us) / 1_000_000:,.1f} s"
    why = {
        "inherited": ", as this leader found it",
        "hanging": ": longer than any producer may ask for, so that its coordinator may not know it",
    }.get(str(event.cause), "")
    first, hw = event.get("first_offset"), event.get("hw")
    return f"{_producer(event)} holds the LSO at {_n(first)}{held}, HW {_n(hw)}{why}"


def _transaction_decided(event: Event) -> str:
    verb = "commits" if event.get("outcome") == "commit" else "aborts"
    held = f"the LSO was held back for {(event.get('held_ms') or 0) / 1_000:,.1f} s"
    if event.get("first_offset") is None:
        count = event.get("n_coalesced") or 0
        kind = f"short {'transaction' if count == 1 else 'transactions'}"
        return f"{_n(count)} {kind} {'committed' if verb == 'commits' else 'aborted'}, {held} in all"
    return f"{_producer(event)} {verb}, marker at {_n(event.get('marker_offset'))}: {held}"


def _producer(event: Event) -> str:
    if event.get("producer_id") is None:
        return "a transaction of an unknown producer"
    epoch = "" if event.get("producer_epoch") is None else f" of epoch {event.get('producer_epoch')}"
    return f"producer {event.get('producer_id')}{epoch}"


def _count(partitions: Sequence[str] | None) -> str:
    found = len(partitions or ())
    return f"{found} {'partition' if found == 1 else 'partitions'}"


def _n(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _list(nodes: list[int]) -> str:
    return ("node " if len(nodes) == 1 else "nodes ") + ", ".join(map(str, nodes))


_SENTENCES: dict[str, Callable[[Event], str]] = {
    "ISR_CHANGE": _isr_change,
    "LEADER_CHANGE": _leader_change,
    "EPOCH_START": _epoch_start,
    "TRUNCATION": _truncation,
    "ALTER_PARTITION": _alter_partition,
    "HW_ADVANCE": _hw_advance,
    "NODE_SESSION": _node_session,
    "CONFIG_CHANGE": _config_change,
    "REASSIGNMENT": _reassignment,
    "AUDIT": _audit,
    "PARTITION_FAILED": _partition_failed,
    "REPLICA_SAMPLE": _replica_sample,
    "LOCAL_SAMPLE": _local_sample,
    "CLOCK_SAMPLE": _clock_sample,
    "EXPORT_GAP": _export_gap,
    "CONTROLLER_DECISION": _decision,
    "STATE_SNAPSHOT": _snapshot,
    "CONTROLLER_REIGN": _reign,
    "STORE": _store,
    "GROUP_CHANGE": _group_change,
    "MEMBER_CHANGE": _member_change,
    "GROUP_OFFSETS": _group_offsets,
    "COORDINATOR_LOAD": _coordinator_load,
    "TRANSACTION_CHANGE": _transaction_change,
    "TRANSACTION_OPEN": _transaction_open,
    "TRANSACTION_DECIDED": _transaction_decided,
}
