"""``evalstats-plugin completion``: the script by which a shell completes what is typed."""

from __future__ import annotations

import os

import click
from click.shell_completion import get_completion_class

from evalstats_plugin.runtime.untrusted import echo

SHELLS = ("bash", "zsh", "fish")

_SOURCED = {
    "bash": 'eval "$(evalstats-plugin completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(evalstats-plugin completion zsh)"     # in ~/.zshrc, after compinit',
    "fish": "evalstats-plugin completion fish | source    # in ~/.config/fish/config.fish",
}


@click.command(
    epilog="\b\nTo have it in every session:\n" + "\n".join(f"  {x}" for x in _SOURCED.values())
)
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    """Print the script that completes commands, options, their values and files in a shell.

    SHELL is bash, zsh or fish; by default the one of the environment variable SHELL.
    """
    shell = shell or os.path.basename(os.environ.get("SHELL", ""))  # noqa: PTH119 - a name
    maker = get_completion_class(shell) if shell in SHELLS else None
    if maker is None:
        found = f"SHELL is {shell!r}" if shell else "no SHELL is set"
        msg = f"{found}: name one of {', '.join(SHELLS)}, as in `completion bash`"
        raise click.UsageError(msg)
    root = ctx.find_root().command
    echo(maker(root, {}, "evalstats-plugin", "_EVALSTATS_PLUGIN_COMPLETE").source())
