"""Every claim can fail: each verb in a small scene, and every claim of every scenario file when changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from strandline_sim.scenario.language import ScenarioFailed, parse, shipped
from strandline_sim.scenario.run import VERBS, carry_out, run_text
from strandline_sim.scenario.stage import Stage

FILES = shipped()
SCENE = (
    "strandline-scenario 1\nnodes A B C\ntopic lines replicas=A,B,C min-isr=2\n"
    "produce A m0\nproduce A m1 acks=1\ndeliver B->A A->B\ncrash C\nproduce B m2\nfetch A as=B label=all\n"
)
"""A leads m0 m1, B has both, C is down; m0 waits, m1 is acked, m2 was refused."""

CASES = [
    ("expect-log A m0@0 m1@0", "the log of A"),
    ("expect-log A m0..m1@0", "the log of A"),
    ("expect-log C empty", "the log of C"),
    ("expect-log A m1@0 from=1", "the log of A"),
    ("expect-log A = B", "the log of"),
    ("expect-log-start A=0 B=0", "the log start of"),
    ("expect-producer-ids A=none", "the first producer id of A"),
    ("expect-read all m0@0 m1@0", "what was read from all"),
    ("expect-hw A=0 B=0", "the hw of"),
    ("expect-leo A=2 B=2", "the leo of"),
    ("expect-lso A=0 B=0", "the lso of"),
    ("expect-remote A B=0 C=none", "the remote leo of"),
    ("expect-isr ctl=A,B,C A=C,B,A", "the isr at"),
    ("expect-elr none", "the elr"),
    ("expect-leader A epoch=0", "the leader"),
    ("expect-active ctl epoch=1", "the "),
    ("expect-position ctl=1:8 A=1:8 C=1:8", "the position of"),
    ("expect-epochs A 0@0", "the epochs of A"),
    ("expect-state A=leads B=fetching C=down", "the state of"),
    ("expect-error m2 NOT_LEADER_OR_FOLLOWER", "the answer to m"),
    ("expect-acks m0=waiting m1=acked@1 m2=refused", "m"),
    ("expect-txn P=none", "the transaction of P"),
    ("expect-offsets G 0=none 1=none", "the offset of G"),
    ("expect-invariant I5 holds", "I5"),
    ("expect-invariant all hold", ""),
]
TWISTS = {
    "expect-log A m0@0 m1@0": ["expect-log A m0@0", "expect-log A m0@0 m1@1", "expect-log A m1@0 m0@0"],
    "expect-log A m0..m1@0": ["expect-log A m0..m2@0", "expect-log A empty"],
    "expect-log C empty": ["expect-log C m0@0"],
    "expect-log A m1@0 from=1": ["expect-log A m1@0 from=0", "expect-log A m1@0 from=2"],
    "expect-log A = B": ["expect-log A = C", "expect-log A = B = C"],
    "expect-log-start A=0 B=0": ["expect-log-start A=1", "expect-log-start A=0 B=1"],
    "expect-producer-ids A=none": ["expect-producer-ids A=0"],
    "expect-read all m0@0 m1@0": [
        "expect-read all m0@0", "expect-read all empty", "expect-read all m0..m1@1", "expect-read all UNKNOWN_TOPIC_ID",
    ],
    "expect-hw A=0 B=0": ["expect-hw A=1", "expect-hw A=0 B=1"],
    "expect-leo A=2 B=2": ["expect-leo A=1", "expect-leo A=2 B=3"],
    "expect-lso A=0 B=0": ["expect-lso A=1", "expect-lso A=0 B=1"],
    "expect-remote A B=0 C=none": ["expect-remote A B=2", "expect-remote A C=0", "expect-remote A B=none"],
    "expect-isr ctl=A,B,C A=C,B,A": ["expect-isr ctl=A,B", "expect-isr ctl=none", "expect-isr A=A,B,C,D"],
    "expect-elr none": ["expect-elr C"],
    "expect-leader A epoch=0": ["expect-leader B", "expect-leader none", "expect-leader A epoch=1"],
    "expect-active ctl epoch=1": ["expect-active none", "expect-active c1", "expect-active ctl epoch=2"],
    "expect-position ctl=1:8 A=1:8 C=1:8": [
        "expect-position ctl=1:9", "expect-position ctl=2:8", "expect-position A=1:7", "expect-position A=none",
    ],
    "expect-epochs A 0@0": ["expect-epochs A 0@1", "expect-epochs A 0@0 1@2", "expect-epochs A empty"],
    "expect-state A=leads B=fetching C=down": [
        "expect-state A=follows", "expect-state B=truncating", "expect-state C=none",
    ],
    "expect-error m2 NOT_LEADER_OR_FOLLOWER": ["expect-error m2 NONE", "expect-error m0 NONE"],
    "expect-acks m0=waiting m1=acked@1 m2=refused": [
        "expect-acks m0=acked", "expect-acks m1=acked@0", "expect-acks m1=lost", "expect-acks m2=waiting",
    ],
    "expect-txn P=none": ["expect-txn P=Empty@1000:0"],
    "expect-offsets G 0=none 1=none": ["expect-offsets G 0=0", "expect-offsets G 0=none 1=5"],
    "expect-invariant I5 holds": ["expect-invariant I5 broken"],
    "expect-invariant all hold": [],
}  # fmt: skip


def test_every_claim_verb_is_here() -> None:
    """Every verb that makes a claim has a case below."""
    assert {claim.split()[0] for claim, _ in CASES} == {name for name in VERBS if name.startswith("expect-")}


@pytest.mark.parametrize(("claim", "about"), CASES)
def test_a_claim_holds_and_its_twists_fail(claim: str, about: str) -> None:
    """A true claim passes and prints nothing; a false one fails at its line, with the expected and actual value."""
    assert run_text(SCENE + claim + "\n", "scene", compare=False).outputs[10] == []
    for twisted in TWISTS[claim]:
        with pytest.raises(ScenarioFailed) as caught:
            run_text(SCENE + twisted + "\n", "scene", compare=False)
        failed = caught.value
        assert (failed.line, failed.expected.startswith(about)) == (10, True)
        assert failed.actual != failed.expected
        assert str(failed).splitlines()[2].strip() == "^"


def test_all_hold_fails_when_a_property_is_broken() -> None:
    """The first sentence of each violation is in the message; only the property can be claimed broken, by its name."""
    broken = SCENE + "fetch A as=B offset=2\nfetch A as=C\nfetch A as=C offset=2\n"
    with pytest.raises(ScenarioFailed) as caught:
        run_text(broken + "expect-invariant all hold\n", "scene", compare=False)

    assert caught.value.actual.startswith("I3: C, in the ISR of A, has nothing at offset 0")
    run_text(broken + "expect-invariant I3 broken\nexpect-invariant I1 holds\n", "scene", compare=False)
    with pytest.raises(ScenarioFailed):
        run_text(broken + "expect-invariant I3 holds\n", "scene", compare=False)
    with pytest.raises(ScenarioFailed):
        run_text(broken + "expect-invariant I1 broken\n", "scene", compare=False)


def twisted(claim: str) -> str:
    """Another claim, which is false if this one is true."""
    verb, *words = claim.split("#")[0].split()
    if verb == "expect-log" and "=" in words:
        return f"expect-log {words[0]} nothing-like-this@99"
    if verb == "expect-read":
        return f"{verb} {words[0]} {'m99@99' if words[1] != 'm99@99' else 'empty'}"
    if verb in ("expect-log", "expect-epochs"):
        kept = [word for word in words if word != "empty"]
        options = [word for word in kept if word.startswith("from=")]
        return " ".join([verb, *(w for w in kept if w not in options), "99@99", *options])
    if verb == "expect-invariant":
        return (
            f"{verb} I0 broken"
            if words[0] == "all"
            else f"{verb} {words[0]} {'holds' if words[1] == 'broken' else 'broken'}"
        )
    if verb in ("expect-elr", "expect-leader"):
        return f"{verb} {'nobody' if words[0] != 'nobody' else 'none'}"
    if verb == "expect-error":
        return f"{verb} {words[0]} {'UNKNOWN_SERVER_ERROR' if words[1] == 'NONE' else 'NONE'}"
    left, _, right = words[-1].partition("=")
    if verb == "expect-isr":
        other = "none" if right != "none" else "nobody"
    elif right.isdecimal():
        other = str(int(right) + 1)
    elif verb == "expect-remote":
        other = "77"
    else:
        other = "down" if verb == "expect-state" and right != "down" else "lost" if right != "lost" else "waiting"
    return " ".join([verb, *words[:-1], f"{left}={other}"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_claim_of_a_file_is_idle(path: Path) -> None:
    """Where a file claims something, the opposite fails."""
    text = path.read_text(encoding="utf-8")
    script, stage = parse(text, path.name), Stage()
    for command in script.commands:
        if command.text.startswith("expect-"):
            (line,) = parse(f"strandline-scenario 1\n{twisted(command.text)}\n", "twisted").commands
            with pytest.raises(ScenarioFailed) as caught:
                carry_out(stage, script, line)
            assert caught.value.actual, command.text
        carry_out(stage, script, command)


def test_every_file_claims_something_of_logs_or_marks() -> None:
    """Every file makes at least one claim about its run."""
    for path in FILES:
        claims = re.findall(r"^(expect-\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(claims) & {"expect-log", "expect-hw", "expect-leo", "expect-isr", "expect-leader"}, path.stem
