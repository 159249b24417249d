"""The compiled copy of the simulator: when it is made again, and that the modules it names exist."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType


def compiled() -> ModuleType:
    """The script, which is not part of the package."""
    spec = importlib.util.spec_from_file_location("compiled", Path(__file__).with_name("compiled.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("compiled", module)
    spec.loader.exec_module(module)
    return module


def test_every_module_that_is_translated_exists() -> None:
    """A renamed module would be left out silently, and the copy would be slow."""
    script = compiled()

    assert [name for name in script.MODULES if not (script.SOURCES / name).is_file()] == []


def test_any_change_of_a_source_needs_a_new_copy(tmp_path: Path) -> None:
    """One more byte, another name or one file less gives another stamp."""
    script = compiled()
    (tmp_path / "one.py").write_text("1")
    stamps = [script.stamp(tmp_path)]
    (tmp_path / "one.py").write_text("12")
    stamps.append(script.stamp(tmp_path))
    (tmp_path / "one.py").rename(tmp_path / "two.py")
    stamps.append(script.stamp(tmp_path))
    (tmp_path / "two.py").unlink()
    stamps.append(script.stamp(tmp_path))

    assert len(set(stamps)) == 4


def test_a_copy_of_these_sources_is_used_as_it_is(tmp_path: Path) -> None:
    """A copy of the same sources is not compiled again."""
    script = compiled()
    (tmp_path / "made-from").write_text(script.stamp())

    assert script.make(tmp_path) == tmp_path
    assert [path.name for path in tmp_path.iterdir()] == ["made-from"]


def test_no_interpreted_class_of_the_simulator_inherits_from_a_translated_one() -> None:
    """mypyc refuses such a class when it is imported, and then nothing of the copy can be used."""
    translated = {name.removesuffix(".py").replace("/", ".") for name in compiled().MODULES}
    script = (
        "import strandline_sim.runs.run, sys; print(*(name for name in sys.modules if name.startswith('strandline.')))"
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
