"""The meaning of "may import" for import-linter: a closed list, so that a new package is forbidden by default.

Protects: the table of docs/ARCHITECTURE.md. import-linter's own contracts list what is forbidden, and would neither
know a new package nor accept the name of one that does not exist yet.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


def _is_in(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


class MayImport(Contract):
    """`package` may import itself, the modules of `may_import`, and third-party modules except those in `never`.

    - package: the package that the rule is for; a package without files keeps every rule.
    - may_import: the project's modules it may import, each with all below it; the bare root is always allowed.
    - apart: packages below it that have rules of their own.
    - never: third-party modules, or modules of the standard library, that it must not import.
    - standard_library_only: whether it must import nothing that has to be installed.
    """

    type_name = "may_import"

    package = fields.StringField()
    may_import = fields.SetField(subfield=fields.StringField())
    apart = fields.SetField(subfield=fields.StringField(), required=False)
    never = fields.SetField(subfield=fields.StringField(), required=False)
    standard_library_only = fields.BooleanField(required=False, default=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Compare every direct import of the package with the lists."""
        apart: Any = self.apart or ()
        importers = sorted(m for m in graph.modules if _is_in(m, [str(self.package)]) and not _is_in(m, apart))
        broken = [
            (importer, imported, reason)
            for importer in importers
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if (reason := self._why_not(imported))
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken, "graph": graph})

    def _why_not(self, imported: str) -> str:
        roots: list[str] = self.session_options["root_packages"]
        if _is_in(imported, roots):
            allowed: Any = self.may_import
            return "" if imported in roots or _is_in(imported, [str(self.package), *allowed]) else "not in may_import"
        never: Any = self.never or ()
        if _is_in(imported, never):
            return "in never"
        if self.standard_library_only and imported.split(".")[0] not in sys.stdlib_module_names:
            return "not of the standard library"
        return ""

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line per import that is not allowed, with file and line."""
        for importer, imported, reason in check.metadata["broken"]:
            details = check.metadata["graph"].get_import_details(importer=importer, imported=imported)
            lines = ", ".join(str(detail["line_number"]) for detail in details)
            output.print_error(f"{importer} imports {imported} (line {lines}): {reason}", bold=False)
