"""The ledger of campaigns, and the compiled copy of the simulator that they run."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import compiled
import ledger
import pytest
import seeds_onward


def row(first: int, broken: dict[str, list[int]] | None = None, profile: str = "swarm") -> ledger.Row:
    """Ten seeds."""
    return ledger.Row(profile, first, 10, "abc1234", 99, broken or {}, "2026-11-23")


def test_rows_are_read_as_they_were_appended(tmp_path: Path) -> None:
    """Appending keeps what is there, and reading gives the same values back."""
    path = tmp_path / "campaigns.jsonl"
    rows = [row(0), row(10, {"I5": [12]})]
    for each in rows:
        ledger.append(each, path)

    assert ledger.read(path) == rows


def test_the_next_seed_is_behind_all_rows_of_its_profile() -> None:
    """Rows of other profiles do not count."""
    rows = [row(0), row(10), row(50, profile="trim")]

    assert ledger.next_seed(rows, "swarm") == 20
    assert ledger.next_seed(rows, "minority") == 0


def test_a_seed_is_clean_as_its_newest_row_says() -> None:
    """A seed that broke and was run again after the cure is clean; one that broke later is not."""
    rows = [row(0, {"I5": [3]}), row(0, {"I1": [4]})]

    assert ledger.clean_seeds(rows, "swarm") == set(range(10)) - {4}


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    """Half a line, and a line with another field, are refused by file and line."""
    path = tmp_path / "campaigns.jsonl"
    ledger.append(row(0), path)
    whole = path.read_text()
    for wrong in (whole[:20], whole.replace("events", "evnts")):
        path.write_text(whole + wrong)
        with pytest.raises(ledger.LedgerDamaged, match=r"campaigns\.jsonl, line 2: .*run again"):
            ledger.read(path)


def test_seeds_run_onward_until_the_ledger_holds_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows follow one another without a gap, the last one holds only what was missing, and nothing runs after that."""
    monkeypatch.setattr(seeds_onward, "CHUNK", 2)
    path = tmp_path / "campaigns.jsonl"
    rows = list(seeds_onward.onward("calm", 3, 1, "abc1234", path))

    assert [list(each.span) for each in rows] == [[0, 1], [2]]
    assert all(each.events > 0 and not each.broken for each in rows)
    assert ledger.read(path) == rows
    assert list(seeds_onward.onward("calm", 3, 1, "abc1234", path)) == []


def test_a_broken_seed_is_written_and_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule of history breaks an invariant; its row names the seeds, and no further chunk is run."""
    monkeypatch.setattr(seeds_onward, "CHUNK", 3)
    path = tmp_path / "campaigns.jsonl"
    rows = list(seeds_onward.onward("high-watermark", 100, 1, "abc1234", path))

    assert len(rows) == 1
    assert rows[0].broken
    assert ledger.read(path) == rows


# The compiled copy of the simulator: when it is made again, and that the modules it names exist.


def test_every_module_that_is_translated_exists() -> None:
    """A renamed module would be left out silently, and the copy would be slow."""
    assert [name for name in compiled.MODULES if not (compiled.SOURCES / name).is_file()] == []


def test_any_change_of_a_source_needs_a_new_copy(tmp_path: Path) -> None:
    """One more byte, another name or one file less gives another stamp."""
    (tmp_path / "one.py").write_text("1")
    stamps = [compiled.stamp(tmp_path)]
    (tmp_path / "one.py").write_text("12")
    stamps.append(compiled.stamp(tmp_path))
    (tmp_path / "one.py").rename(tmp_path / "two.py")
    stamps.append(compiled.stamp(tmp_path))
    (tmp_path / "two.py").unlink()
    stamps.append(compiled.stamp(tmp_path))

    assert len(set(stamps)) == 4


def test_a_copy_of_these_sources_is_used_as_it_is(tmp_path: Path) -> None:
    """A copy of the same sources is not compiled again."""
    (tmp_path / "made-from").write_text(compiled.stamp())

    assert compiled.make(tmp_path) == tmp_path
    assert [path.name for path in tmp_path.iterdir()] == ["made-from"]


def test_no_interpreted_class_of_the_simulator_inherits_from_a_translated_one() -> None:
    """mypyc refuses such a class when it is imported, and then nothing of the copy can be used."""
    translated = {name.removesuffix(".py").replace("/", ".") for name in compiled.MODULES}
    script = (
        "import strandline_sim.runs.run, strandline_sim.runs.trace, sys; "
        "print(*(name for name in sys.modules if name.startswith('strandline')))"
    )
    ran = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    wrong = [
        f"{name}.{defined.__name__} from {base.__module__}"
        for name in set(ran.stdout.split()) - translated
        for defined in vars(importlib.import_module(name)).values()
        if isinstance(defined, type) and defined.__module__ == name
        for base in defined.__mro__[1:]
        if base.__module__ in translated
    ]

    assert wrong == []
