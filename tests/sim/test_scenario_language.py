"""The format of a scenario file, and how a run reports where it failed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from strandline_sim.scenario.language import NotReadable, ScenarioFailed, parse, rewritten
from strandline_sim.scenario.run import VERBS, run_text

HEAD = "strandline-scenario 1\n"
SCENE = HEAD + "nodes A B\ntopic lines replicas=A,B\n"


def scene(*commands: str) -> str:
    """Two nodes, A leads; the output of the commands is filled in, so that only the added lines can fail."""
    return run_text(SCENE + "\n".join(commands) + "\n", "scene", compare=False).text()


def failure(text: str, *, compare: bool = True) -> ScenarioFailed:
    """How a scenario fails."""
    with pytest.raises(ScenarioFailed) as caught:
        run_text(text, "incident.scenario", compare=compare)
    return caught.value


@pytest.mark.parametrize("text", ["", "nodes A\n", "strandline-scenario 2\nnodes A\n"])
def test_the_first_line_names_the_language_and_its_version(text: str) -> None:
    """A file of another kind or version is rejected at line 1."""
    failed = failure(text)

    assert failed.line == 1
    assert "strandline-scenario 1" in failed.expected


def test_output_belongs_to_the_command_above_it() -> None:
    """Indented lines are the command's; a comment or an empty line ends them."""
    script = parse(HEAD + "# a story\n\nshow  # all of it\n  one\n\ttwo\n\nmessages\n", "f")

    assert [(c.line, c.words[0].text, c.expected) for c in script.commands] == [
        (4, "show", ("one", "two")),
        (8, "messages", ()),
    ]


@pytest.mark.parametrize("gap", ["", "# note\n", "\n"])
def test_output_under_no_command_is_refused(gap: str) -> None:
    """Indented text is output or invalid; it cannot occur alone."""
    with pytest.raises(ScenarioFailed) as caught:
        parse(HEAD + ("show\n" if gap else "") + gap + "  lost\n", "f")
    assert caught.value.actual == "indented text"


def test_rewriting_changes_output_and_nothing_else() -> None:
    """Comments, blanks and commands stay byte for byte; a second rewrite changes nothing more."""
    text = HEAD + "# top\n\nshow   A\n  old\n  lines\n\n# between\nmessages\n# end\n"
    script = parse(text, "f")
    once = rewritten(script, {4: ["new"], 9: ["a", "b"]})

    assert once == HEAD + "# top\n\nshow   A\n  new\n\n# between\nmessages\n  a\n  b\n# end\n"
    assert rewritten(parse(once, "f"), {}) == once
    assert rewritten(script, {}) == text


def test_an_unknown_verb() -> None:
    """File, line, caret under the verb, and the verbs that begin alike."""
    failed = failure(SCENE + "delivr B->A\n", compare=False)

    assert (failed.name, failed.line, failed.actual) == ("incident.scenario", 4, "'delivr'")
    assert "deliver" in failed.expected
    assert str(failed).splitlines()[1:3] == ["    delivr B->A", "    ^"]


def test_a_wrong_verb_is_found_before_anything_is_played() -> None:
    """A wrong verb is found before anything is played, also late in a file, after a wrong output or claim."""
    failed = failure(SCENE + "expect-leo A=7\n  never printed\n\ndelivr B->A\n")

    assert isinstance(failed, NotReadable)
    assert (failed.line, failed.actual) == (7, "'delivr'")


def test_a_missing_node() -> None:
    """The caret is under the name, also within a list; the existing nodes are listed."""
    one = failure(SCENE + "crash X\n", compare=False)
    listed = failure(SCENE + "alter A isr=A,X\n", compare=False)

    assert "a node (A, B)" in one.expected
    assert str(listed).splitlines()[2].index("^") - 4 == len("alter A isr=A,")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("take-over c1", "a controller that does not hold the key"),
        ("take-over c9", "a controller (c1, c2)"),
        ("resume-controller c1", "a controller that is paused"),
        ("pause-controller c2 soon", "at-key, or nothing more"),
        ("store gone", "one of away, back, full, lag, lose-answer, lose-request"),
        ("crash ctl", "a node: of several controllers"),
        ("restart ctl", "a node: of several controllers"),
        ("expect-active c2", "the active controller is c2"),
    ],
)
def test_what_several_controllers_cannot_do(command: str, expected: str) -> None:
    """The refusal of a command that makes no sense says what would."""
    failed = failure(SCENE.replace("nodes", "controllers c1 c2\nnodes", 1) + command + "\n", compare=False)

    assert expected in failed.expected


def test_a_full_store_takes_no_change_until_it_has_space() -> None:
    """The change waits, no controller serves meanwhile, and it is made when there is space again."""
    text = SCENE.replace("nodes", "controllers c1 c2\nnodes", 1)
    text += "store full\nelect B\nexpect-leader A\nexpect-active none\nstore back\ntick 3s\nexpect-leader B\n"
    run_text(text + "expect-active c1 epoch=1\nexpect-invariant all hold\n", "full", compare=False)


def test_a_claim_that_does_not_hold() -> None:
    """The expected and the actual value, with the caret under the value; rewriting does not make the claim true."""
    failed = failure(SCENE + "expect-leo A=0 B=2\n", compare=False)

    assert (failed.expected, failed.actual) == ("the leo of B is 2", "the leo of B is 0")
    assert str(failed).splitlines()[2].index("^") - 4 == len("expect-leo A=0 B=")


def test_output_that_differs() -> None:
    """The line is that of the expected output, the caret is at the first character that differs."""
    failed = failure(scene("produce A m0").replace("leo 0->1", "leo 0->2"))

    assert failed.line == 8
    assert (failed.expected, failed.actual) == ("A: leo 0->2", "A: leo 0->1")
    assert str(failed).splitlines()[1:3] == ["    A: leo 0->2", "    " + " " * len("A: leo 0->") + "^"]


def test_output_that_is_missing_or_too_much() -> None:
    """Missing lines and extra lines are both reported."""
    text = scene("produce A m0")
    more = failure(text + "  m0: acked at 0\n")
    fewer = failure(text.replace("  m0: waits\n", ""))

    assert (more.expected, more.actual) == ("m0: acked at 0", "no more output")
    assert (fewer.expected, fewer.actual) == ("no more output", "m0: waits")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("deliver A->B", "a message on A->B"),
        ("controllers c1 c2", "`controllers` once, before the first `nodes`"),
        ("take-over c2", "`controllers` before this"),
        ("store away", "`controllers` before this"),
        ("unregister X", "a node (A, B)"),
        ("expect-position A", "ctl or a node, and its position"),
        ("deliver A=>B", "a link"),
        ("deliver B->A fetsch", "a kind of message"),
        ("deliver A.disk", "a commit under way on A"),
        ("tick 5", "a duration"),
        ("set truncation=fetch", "a rule before the first `nodes`"),
        ("set replica-lag-time-max-ms=1ms", "replica_fetch_wait_max_ms must be below"),
        ("nodes A", "a new name"),
        ("topic other replicas=A", "only one `topic`"),
        ("elect X", "a node (A, B)"),
        ("metadata-to A epoch=9", "metadata of epoch 9 under way to A"),
        ("wipe A", "a node that is down"),
        ("produce A", "a record"),
        ("produce A m acks=2", "one of all, 1, 0"),
        ("expect-error m0 NONE", "a call"),
        ("expect-invariant I99 holds", "all, or one of"),
        ("expect-remote B A=0", "a node that leads"),
        ("expect-log A m0", "a record and its epoch"),
        ("restart ctl lose=99", "fewer than the store's"),
        ("power-off A keep=7", "an offset from 0"),
        ("show A extra", "a node (A, B)"),
        ("produce A m0 akcs=1", "a record (letters, digits, - and _)"),
        ("produce A m0 m0", "a record that was not produced yet"),
        ("produce A m0..m3 batch=0", "a number from 1 on"),
        ("append A m0@0", "a record (letters, digits, - and _)"),
        ("append A m3..m1", "several (m0..m3)"),
        ("hold A->B B", "nothing more"),
        ("release * A->B", "nothing more"),
        ("partition A->B soon", "nothing more"),
        ("deliver B->A fetch twice", "nothing more"),
        ("drop B->A fetch loudly", "nothing more"),
        ("expect-log A =", "a node whose log shall be equal"),
        ("produce A m0..m999999999", "at most 100,000 records in one word"),
        ("expect-log A m0..m999999999@0", "at most 100,000 records in one word"),
        ("produce A m0..m99999999999999999999", "a record (letters, digits, - and _)"),
        ("produce A m0 sequence=3", "producer= beside a sequence"),
        ("tick 999999999m", "a duration of 1440m at most"),
        ("delete-records B before=1", "a node that leads"),
        ("delete-records A", "before=, the first offset that is kept"),
        ("delete-records A 1", "nothing more"),
        ("retention A", "bytes="),
        ("retention B bytes=0", "a node that leads"),
        ("expect-read A empty", "a node that was consumed from"),
        ("expect-log-start A=x", "a number"),
        ("expect-log-start A", "a node and its log start"),
    ],
)
def test_what_is_wrong_is_named(command: str, expected: str) -> None:
    """Every wrong word is answered with the words that are allowed there."""
    failed = failure(SCENE + command + "\n", compare=False)

    assert failed.line == 4
    assert expected in failed.expected


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ("nodes A\npreload A e0x999999999", "at most 100,000 records in one word"),
        ("nodes A\npreload A m0..m999999999@0", "at most 100,000 records in one word"),
        ("nodes A\ntopic lines replicas=A epoch=999999999", "an epoch of 10,000 at most"),
        ("nodes A B\ntopic lines replicas=A\nelect B unclean", "a node with a replica (A)"),
    ],
)
def test_what_is_wrong_in_a_scene_is_named(commands: str, expected: str) -> None:
    """Absurd numbers are rejected before they cost memory or time, and so is an election without effect."""
    assert expected in failure(HEAD + commands + "\n", compare=False).expected


def test_a_producer_counts_on() -> None:
    """Without sequence= its records continue after the last ones, from 0 at the beginning."""
    text = run_text(
        SCENE
        + "produce A a b producer=P\nproduce A c producer=P sequence=2 as=again\nproduce A d producer=P\n"
        "produce A x producer=Q\nproduce A e producer=P sequence=9\nexpect-log A a..b@0 c@0 d@0 x@0\n".replace(
            "a..b@0", "a@0 b@0"
        ),
        "f",
        compare=False,
    ).text()

    assert text.count("OUT_OF_ORDER_SEQUENCE_NUMBER") == 1


READ = SCENE + "produce A m0..m3\nstabilize\n"


def test_old_records_are_deleted_up_to_the_high_watermark() -> None:
    """The leader moves its log start, followers get it with their next fetch, readers below it are out of range."""
    text = run_text(
        READ + "hold B->A\nproduce A m4\ndelete-records A before=latest\nexpect-log-start A=4 B=0\nexpect-log A m4@0\n"
        "consume A offset=3\nexpect-read A OFFSET_OUT_OF_RANGE\nrelease B->A\nstabilize 1s\n"
        "expect-log-start A=4 B=4\nexpect-log B m4@0\nexpect-invariant all hold\n",
        "f",
        compare=False,
    ).text()

    assert "  A: log start 0->4\n" in text


@pytest.mark.parametrize(
    ("left", "start"), [(0, 3), (99, 3), (100, 3), (101, 2), (250, 1), (399, 0), (400, 0), (900, 0)]
)
def test_retention_leaves_what_it_shall(left: int, start: int) -> None:
    """Whole batches are deleted while the rest still holds that many bytes, and never the newest one."""
    run_text(READ + f"retention A bytes={left}\nexpect-log-start A={start}\n", "f", compare=False)


def test_retention_deletes_nothing_above_the_high_watermark() -> None:
    """Uncommitted records stay, however many there are."""
    run_text(READ + "hold B->A\nproduce A m4..m7\nretention A bytes=0\nexpect-log-start A=4\n", "f", compare=False)


def test_what_a_consumer_read_is_claimed_from_its_offset_on() -> None:
    """The fetch returns whole batches, but is claimed by its label, and one that waits as waiting."""
    run_text(
        SCENE + "produce A m0..m4 batch=5\nstabilize\nconsume A offset=3\nexpect-read A m3@0 m4@0\n"
        "consume A offset=5\nexpect-read A empty\nfetch A offset=5 wait=9s label=late\n"
        "produce A m5\nstabilize 1s\nexpect-read late m5@0\n",
        "f",
        compare=False,
    )
    waiting = failure(SCENE + "fetch A wait=9s label=late\nexpect-read late m0@0\n", compare=False)

    assert waiting.actual == "what was read from late is waiting"


def test_a_loss_that_an_unclean_election_explains_is_reported_and_one_that_acks_1_promised_is_not() -> None:
    """I11 and I16 report what was lost without the cause; they do not count records sent with acks=1."""
    story = (
        HEAD + "nodes A B\ntopic lines replicas=A,B{isr} unclean=on\nhold B->A\nproduce A m0 acks={acks}\ncrash A\n"
        "elect B unclean\nmetadata-to B\nproduce B x\nrelease *\nrestart A\nstabilize 3s\nexpect-log A x@1\n"
    )
    reported = run_text(story.format(isr=" isr=A", acks="all"), "f", compare=False).text()
    unreported = run_text(story.format(isr="", acks="1"), "f", compare=False).text()

    assert "!! I11 is broken: A truncates m0@0" in reported
    assert "!! I16 is broken: m0, acked at offset 0, is in no log" in reported
    assert "m0: acked at 0" in unreported
    assert "!!" not in unreported


def test_no_batch_is_left_half() -> None:
    """Damage and loss of power leave whole batches; the message names the boundary."""
    commands = "set durability=page-cache\nnodes A\ntopic lines replicas=A\nproduce A m0..m5 batch=3\n"
    for last in ("power-off A keep=4", "crash A\ncut-log A to=4"):
        failed = failure(HEAD + commands + last + "\n", compare=False)
        assert "an offset at which a batch begins or ends, such as 3" in failed.expected


def test_a_batch_is_one_request_of_many_records() -> None:
    """A batch is sent and answered once; each record can be named, and a reader in its middle gets all of it."""
    text = run_text(
        SCENE + "produce A m0..m9 batch=10\nstabilize\nexpect-acks m0..m9=acked@0 m7=acked@7\n"
        "expect-log B m0..m9@0\nconsume A offset=5\n",
        "f",
        compare=False,
    ).text()

    assert text.count("acked at") == 1
    assert "  m0..m9: acked at 0\n" in text
    assert "  consumer of A: fetched m0@0 m1@0 " in text


def test_every_verb_explains_itself() -> None:
    """The first line of each verb's function describes the verb; claims are those that begin with expect-."""
    assert [name for name, verb in VERBS.items() if not name.startswith("expect-") and not verb.run.__doc__] == []
    assert {"expect-log", "expect-invariant"} <= set(VERBS)


_PRINT = """
import sys
from strandline_sim.scenario.run import run_text
print(run_text(sys.stdin.read(), "f", compare=False).text())
"""


def test_a_run_does_not_depend_on_hashing() -> None:
    """Under another PYTHONHASHSEED a file prints the same lines."""
    commands = "nodes C\npartition A | B C ctl\ntick 10s\nheal\nstabilize 3s\nproduce A m0\nstabilize 3s\nshow\n"
    text = HEAD + "nodes A B\n" + commands.replace("partition", "topic lines replicas=A,B,C min-isr=2\npartition", 1)
    printed = [
        subprocess.run(
            [sys.executable, "-c", _PRINT],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    ]

    assert printed[0] == printed[1]
    assert "A: leads epoch 0" in printed[0]
