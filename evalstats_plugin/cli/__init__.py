"""The command line: parse, call, print. Each command is loaded when it is run."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

import click

from evalstats_plugin.cli.shell.options import LazyGroup, Sections, offers
from evalstats_plugin.errors import EvalStatsError
from evalstats_plugin.runtime import VERSION
from evalstats_plugin.runtime.untrusted import echo_message, escape_on, printable

SECTIONS: Sections = {
    "Check logs": offers("report", check="Check logs before you believe their numbers."),
    "Confidence intervals": {
        **offers(
            report="Report every score with a confidence interval.",
            pool="Pool models and tasks in a hierarchical model: scores borrow from each other.",
        ),
        **offers(
            "report", noise="Say by how much two runs of one model differ, and what would help."
        ),
        **offers(
            judge="Estimate human scores from a judge on all items and human labels on a few."
        ),
    },
    "Comparisons": offers(
        table="Show models and tasks in one table, for people and papers (LaTeX).",
        compare="Compare models on the same items (paired).",
        gate="Decide whether models may be released: PASS, REGRESSED or INCONCLUSIVE.",
        rank="Rank models or items from pairwise comparisons.",
        power="Plan a comparison: power, items and epochs for a difference.",
    ),
    "Item response theory": offers(
        irt="Fit item response models: abilities of models, difficulties of items.",
        adapt="Test adaptively: ask a model only the most informative items.",
    ),
    "Output": {
        **offers(
            "table",
            paper="Write a folder for a paper: tables, figures, methods and numbers (LaTeX).",
        ),
        **offers(
            "annotate",
            annotate="Write intervals and comparisons into the harness's own results files.",
            export="Export item scores as CSV, Parquet or Every Eval Ever.",
        ),
    },
    "Installation": offers(
        "plugins",
        plugins="List the installed adapters and methods.",
        completion="Print the script for completion in the shell.",
    ),
}


class _Main(LazyGroup):
    """Adds the commands of plugins, and turns our errors into exit code 2."""

    def sections(self, ctx: click.Context) -> Sections:
        from evalstats_plugin.plugins import load_plugins

        try:
            plugins = load_plugins(ctx.params.get("no_plugin") or ())
            taken = [name for part in SECTIONS.values() for name in part]
            added = plugins.commands(taken).values()
        except EvalStatsError as error:
            echo_message("error", error)
            ctx.exit(2)
        theirs = {c.name: (c.function, c.summary) for c in added}
        return {**SECTIONS, "From plugins": theirs} if theirs else SECTIONS

    def main(self, *args: Any, **settings: Any) -> Any:
        escape_on(sys.stdout, sys.stderr)
        return super().main(*args, **settings)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except EvalStatsError as error:
            echo_message("error", error)
            ctx.exit(2)
        except click.ClickException as error:
            # Shells put names of files on the command line, and click repeats them.
            error.message = printable(error.message)  # pyrefly: ignore[read-only]
            raise
        except KeyboardInterrupt:
            echo_message("error", "interrupted")
            ctx.exit(130)
        except BrokenPipeError:
            raise  # whoever read the output has enough of it, which click knows
        except OSError as error:
            where = error.filename or "standard output"
            echo_message("error", f"{where}: {error.strerror or error}")
            ctx.exit(2)
        finally:
            from evalstats_plugin.plugins import load_plugins

            # Plugins may have failed while others went on.
            with suppress(EvalStatsError):
                for failure in load_plugins(ctx.params.get("no_plugin") or ()).failures.values():
                    echo_message("warning", failure)


def _be_strict(ctx: click.Context, _option: click.Parameter, value: bool | None) -> None:  # noqa: FBT001 - as click calls it
    from evalstats_plugin.plugins import STRICT_VARIABLE

    if value:
        before = os.environ.get(STRICT_VARIABLE, "")
        os.environ[STRICT_VARIABLE] = "1"
        ctx.call_on_close(lambda: os.environ.update({STRICT_VARIABLE: before}))


@click.group(
    cls=_Main, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True
)
@click.version_option(VERSION, prog_name="evalstats-plugin")
@click.option(
    "--no-plugin",
    metavar="NAME",
    multiple=True,
    help="Do not load a plugin; may be repeated. '*': none but those of evalstats-plugin itself.",
)
@click.option(
    "--strict-plugins",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_be_strict,
    help="Stop where a plugin fails, instead of going on without it and naming it.",
)
@click.option(
    "--no-config",
    is_flag=True,
    envvar="EVALSTATS_NO_CONFIG",
    show_envvar=True,
    help="Ignore option defaults in pyproject.toml and ~/.config/evalstats-plugin.toml.",
)
@click.option(
    "--jobs",
    type=int,
    metavar="N",
    help="Number of processes for logs, bootstraps and folds; -1 for all cores.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Address of a running Dask scheduler that does this work instead, such as "
    "tcp://host:8786; its workers must find the logs under the same paths.",
)
@click.pass_context
def main(
    ctx: click.Context,
    no_plugin: tuple[str, ...],
    jobs: int | None,
    scheduler: str | None,
    *,
    no_config: bool,  # noqa: ARG001 - read where a command is found, which comes first
) -> None:
    """Statistics for LLM evaluation results that a harness already logged.

    Every command has its own help: `evalstats-plugin report --help`.
    """
    ctx.obj = no_plugin
    if jobs is not None or scheduler is not None:
        from evalstats_plugin.runtime.workers import workers

        ctx.with_resource(workers(-1 if jobs is None else jobs, scheduler=scheduler))
    if os.environ.get("NO_COLOR"):
        ctx.color = False
