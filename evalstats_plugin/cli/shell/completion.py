"""``evalstats-plugin completion``: what a shell needs to complete commands, options and files."""

from __future__ import annotations

import os
from collections.abc import Mapping

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

VARIABLE = "_EVALSTATS_PLUGIN_COMPLETE"
SHELLS = ("bash", "zsh", "fish")

_SOURCED = {
    "bash": 'eval "$(evalstats-plugin completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(evalstats-plugin completion zsh)"     # in ~/.zshrc, after compinit',
    "fish": "evalstats-plugin completion fish | source    # in ~/.config/fish/config.fish",
}


class _Completing(ShellComplete):
    """Completes files too: most of what our commands take is a file or a folder."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        if args and args[-1] == "--method":
            names = [*_methods(args[0]), "auto"]
            return [CompletionItem(name) for name in names if name.startswith(incomplete)]
        found: list[CompletionItem[str]] = super().get_completions(args, incomplete)
        if found or incomplete.startswith("-"):
            return found
        return [CompletionItem(incomplete, type="file")]


class _Bash(_Completing, BashComplete):
    pass


class _Zsh(_Completing, ZshComplete):
    pass


class _Fish(_Completing, FishComplete):
    pass


def complete_files_too() -> None:
    """Let click complete as this module says."""
    for shell in (_Bash, _Zsh, _Fish):
        add_completion_class(shell)


def summaries(commands: Mapping[str, str], incomplete: str) -> list[CompletionItem[str]]:
    """Return the commands that begin so, without loading them."""
    return [
        CompletionItem(name, help=summary)
        for name, summary in sorted(commands.items())
        if name.startswith(incomplete)
    ]


def _methods(command: str) -> list[str]:
    from evalstats_plugin.comparisons.methods import PAIRED, UNPAIRED
    from evalstats_plugin.plugins import load_plugins
    from evalstats_plugin.scores.methods import INTERVALS

    tables = (PAIRED, UNPAIRED) if command == "compare" else (INTERVALS,)
    return [name for table in tables for name in load_plugins(()).methods(table)]


@click.command(
    epilog="\b\nTo have it in every session:\n" + "\n".join(f"  {x}" for x in _SOURCED.values())
)
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    """Print the shell-completion script for commands, options and files.

    SHELL is bash, zsh or fish; by default the one of the environment variable SHELL.
    """
    shell = shell or os.path.basename(os.environ.get("SHELL", ""))  # noqa: PTH119 - a name
    makers: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}
    if shell not in makers:
        found = f"SHELL is {shell!r}" if shell else "no SHELL is set"
        msg = f"{found}, expected one of {', '.join(SHELLS)}: name it, as in `completion bash`"
        raise click.UsageError(msg)
    root = ctx.find_root().command
    click.echo(makers[shell](root, {}, "evalstats-plugin", VARIABLE).source())
