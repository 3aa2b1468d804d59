"""``evalstats-plugin adapt run lm-eval``."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.adapters.lm_eval.layout import load_results
from evalstats_plugin.adapters.lm_eval.run_harness import check_harness, quiet_harness
from evalstats_plugin.cli.adapt import options
from evalstats_plugin.cli.shell import options as shell_options
from evalstats_plugin.cli.shell import output
from evalstats_plugin.cli.shell.commands import Sectioned
from evalstats_plugin.errors import SelectionError

if TYPE_CHECKING:
    from evalstats_plugin.adapters.lm_eval.adaptive.run import Model


_BATCH = 8
"""Items per round: enough for a model to work in batches, few enough to choose well."""

_ASKING = (
    "num_fewshot", "apply_chat_template", "fewshot_as_multiturn", "system_instruction",
    "gen_kwargs",
)  # fmt: skip

_SCORING = ("bootstrap_iters", "confirm_run_unsafe_code")

_SECTIONS = {
    "What is run": ("bank", "model", "model_args", "tasks", "output_path", "state"),
    "As of lm-eval": (
        "include_path", "metadata", *_ASKING, "batch_size", "max_batch_size", "device", *_SCORING,
    ),
    **options.SECTIONS,
}  # fmt: skip


@click.command("lm-eval", cls=Sectioned, sections=_SECTIONS)
@click.option("--model", default="hf", show_default=True, help="As of lm-eval.")
@click.option(
    "--model_args", "--model-args", default="", metavar="ARGS",
    help="As of lm-eval: pretrained=…, or JSON.",
)  # fmt: skip
@click.option("--tasks", required=True, metavar="NAME,…", help="Tasks or groups.")
@click.option("--include_path", "--include-path", metavar="DIR", help="Folder of own tasks.")
@click.option(
    "--metadata", default="", metavar="ARGS", help="For tasks that are made to measure, as RULER."
)
@click.option(
    "--num_fewshot", "--num-fewshot", type=click.IntRange(min=0), metavar="N",
    help="Examples in a prompt; the same as in a run of all items.",
)  # fmt: skip
@click.option(
    "--apply_chat_template", "--apply-chat-template", is_flag=False, flag_value="true",
    metavar="[NAME]", help="Lay the model's chat template over the prompt, or the one named.",
)  # fmt: skip
@click.option(
    "--fewshot_as_multiturn/--no-fewshot_as_multiturn", default=True, show_default=True,
    help="Examples as turns of a chat.",
)  # fmt: skip
@click.option(
    "--system_instruction", "--system-instruction", metavar="TEXT", help="Before every prompt."
)
@click.option("--gen_kwargs", "--gen-kwargs", metavar="ARGS", help="temperature=0,…, or JSON.")
@click.option("--batch_size", "--batch-size", default="1", show_default=True, metavar="N|auto")
@click.option("--max_batch_size", "--max-batch-size", type=int, metavar="N", help="With auto.")
@click.option("--device", metavar="NAME", help="Such as cuda:0 or cpu.")
@click.option(
    "--bootstrap_iters", "--bootstrap-iters", type=click.IntRange(min=0), default=100000,
    show_default=True, metavar="N", help="Resamples of lm-eval's own standard errors.",
)  # fmt: skip
@click.option(
    "--confirm_run_unsafe_code", "--confirm-run-unsafe-code", is_flag=True,
    help="Let tasks run the code that the model writes.",
)  # fmt: skip
@click.option(
    "--output_path", "--output-path", required=True, type=click.Path(path_type=Path),
    metavar="DIR", help="Folder of the log.",
)  # fmt: skip
@options.state("a file in the folder of the log,")
@options.planning
@output.figure_option("trace")
@shell_options.form
@shell_options.quiet
@click.pass_context
def lm_eval(ctx: click.Context, **chosen: Any) -> None:
    """Run tasks of lm-eval adaptively, in rounds on one loaded model.

    Writes lm-eval's ordinary results and samples files, of the items asked, and annotates them
    with the ability and the predicted score on all items. Groups are tested as their tasks. The
    same command again takes a test that was killed up where it was.
    """
    from evalstats_plugin.adapters.lm_eval.adaptive import run
    from evalstats_plugin.logs.annotating import annotate

    output.check_figure(chosen, "trace")
    state = chosen["state"] or chosen["output_path"] / f"adaptive_{_name(chosen)}.answers"
    plan = options.plan_of(chosen, batch=_BATCH, state=state)
    plan.load()  # report problems of the bank before lm-eval's slow import
    with quiet_harness():
        check_harness()
        model = _model(chosen)
        names = _names(chosen["tasks"])
        metadata = {**model.arguments, **run.arguments_of(chosen["metadata"])}
        tasks = run.Tasks.load(names, chosen["include_path"], metadata)
        rounds = run.Rounds(tasks, plan, model)
        try:
            answered = rounds.session.n
            options.tell_forecast(plan, rounds.bank, answered, quiet=chosen["quiet"])
            lm = model.load()
            with options.telling(quiet=chosen["quiet"]) as on_round:
                rounds.run(lm, on_round)
            written = rounds.finish(lm, chosen["output_path"])
            annotate(written, in_place=True)
        except BaseException as error:
            rounds.close()
            if isinstance(error, KeyboardInterrupt) and rounds.session.n:
                kept = f"{rounds.session.n} answers are kept in {state}"
                click.echo(f"{kept}: the same command goes on from there", err=True)
            raise
        rounds.close(done=chosen["state"] is None)
    _show(ctx, chosen, written)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise SelectionError(f"--tasks {text!r} found, expected names of tasks, commas between")
    return names


def _model(chosen: dict[str, Any]) -> Model:
    from evalstats_plugin.adapters.lm_eval.adaptive.run import Model, arguments_of

    size: str = chosen["batch_size"]
    template = chosen["apply_chat_template"]
    given = {
        "apply_chat_template": template is not None and (template == "true" or template),
        "gen_kwargs": arguments_of(chosen["gen_kwargs"] or "") or None,
    }
    return Model(
        name=chosen["model"],
        arguments=arguments_of(chosen["model_args"]),
        settings={
            "batch_size": int(size) if size.isdigit() else size,
            "max_batch_size": chosen["max_batch_size"],
            "device": chosen["device"],
        },
        asking={name: given.get(name, chosen[name]) for name in _ASKING},
        scoring={name: chosen[name] for name in _SCORING},
    )


def _name(chosen: dict[str, Any]) -> str:
    """Hash what distinguishes tests whose state files are in one folder."""
    names = ("model", "model_args", "tasks", "bank", *_ASKING)
    text = json.dumps([chosen[name] for name in names])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _show(ctx: click.Context, chosen: dict[str, Any], written: Path) -> None:
    from evalstats_plugin.adapters.lm_eval.adaptive.run import found_in
    from evalstats_plugin.adapters.lm_eval.reader import model_identity

    data = load_results(written) or {}
    task = ", ".join(data["configs"])
    names = (model_identity(data)[0], task, str(written))
    options.show_test(ctx, chosen, found_in(data) or {}, names)
