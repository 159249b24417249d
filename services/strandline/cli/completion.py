"""`strandline completion`: the script that teaches a shell to complete the command's words.

Invariant: printing only; nothing is written into the user's files.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    """Shells that have a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="Shell of the script.")] = Shell.BASH,
) -> None:
    """Print a shell completion script.

    For bash: strandline completion bash > ~/.local/share/bash-completion/completions/strandline
    """
    from typer._completion_shared import get_completion_script

    typer.echo(get_completion_script(prog_name="strandline", complete_var="_STRANDLINE_COMPLETE", shell=shell.value))
