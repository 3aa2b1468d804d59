"""``evalstats-plugin adapt run lm-eval``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalstats_plugin.adapters.lm_eval.layout import load_results, section
from evalstats_plugin.adapters.lm_eval.run_harness import check_harness, quiet_harness
from evalstats_plugin.cli.adapt import options
from evalstats_plugin.cli.shell.options import command, takes, under
from evalstats_plugin.cli.shell.running import Output, output
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.runtime.untrusted import echo

if TYPE_CHECKING:
    from evalstats_plugin.adapters.lm_eval.adaptive.run import Model


_BATCH = 8
"""Items per round: enough for a model to work in batches, few enough to choose well."""

_ASKING = (
    "num_fewshot", "apply_chat_template", "fewshot_as_multiturn", "system_instruction",
    "gen_kwargs",
)  # fmt: skip

_SCORING = ("bootstrap_iters", "confirm_run_unsafe_code")

_run, _as_there = under("What is run"), under("As in lm-eval")
_COUNT = click.IntRange(min=0)


@dataclass(frozen=True, kw_only=True)
class LmEvalOptions(options.Planning):
    """The test, and what lm-eval runs."""

    model: str = _run("As in lm-eval.", default="hf")
    model_args: str = _run(
        "As in lm-eval: pretrained=…, or JSON.",
        "--model_args", "--model-args", default="", metavar="ARGS",
    )  # fmt: skip
    tasks: str = _run("Tasks or groups.", required=True, metavar="NAME,…")
    output_path: Path = _run(  # noqa: RUF009 - a field
        "Folder of the log.", "--output_path", "--output-path", required=True,
        type=click.Path(path_type=Path), metavar="DIR",
    )  # fmt: skip
    state: Path | None = options.state(  # noqa: RUF009 - a field
        "a file in the folder of the log,"
    )
    include_path: str | None = _as_there(
        "Folder of your own tasks.", "--include_path", "--include-path", metavar="DIR"
    )
    metadata: str = _as_there(
        "For tasks that are made to measure, such as RULER.", default="", metavar="ARGS"
    )
    num_fewshot: int | None = _as_there(
        "Examples in a prompt; the same as in a run of all items.",
        "--num_fewshot", "--num-fewshot", type=_COUNT, metavar="N",
    )  # fmt: skip
    apply_chat_template: str | None = _as_there(
        "Lay the model's chat template over the prompt, or the one named.",
        "--apply_chat_template", "--apply-chat-template", is_flag=False, flag_value="true",
        metavar="[NAME]",
    )  # fmt: skip
    fewshot_as_multiturn: bool = _as_there(
        "Examples as turns of a chat.",
        "--fewshot_as_multiturn/--no-fewshot_as_multiturn", default=True,
    )  # fmt: skip
    system_instruction: str | None = _as_there(
        "Before every prompt.", "--system_instruction", "--system-instruction", metavar="TEXT"
    )
    gen_kwargs: str | None = _as_there(
        "temperature=0,…, or JSON.", "--gen_kwargs", "--gen-kwargs", metavar="ARGS"
    )
    batch_size: str = _as_there(
        "Batch size.", "--batch_size", "--batch-size", default="1", metavar="N|auto"
    )
    max_batch_size: int | None = _as_there(
        "With batch size auto.", "--max_batch_size", "--max-batch-size", metavar="N"
    )
    device: str | None = _as_there("Such as cuda:0 or cpu.", metavar="NAME")
    bootstrap_iters: int = _as_there(
        "Resamples of lm-eval's own standard errors.",
        "--bootstrap_iters", "--bootstrap-iters", default=100000, type=_COUNT, metavar="N",
    )  # fmt: skip
    confirm_run_unsafe_code: bool = _as_there(
        "Let tasks run the code that the model writes.",
        "--confirm_run_unsafe_code", "--confirm-run-unsafe-code", default=False,
    )  # fmt: skip


@command(name="lm-eval")
@takes("asked", LmEvalOptions)
@output("trace")
def lm_eval(*, asked: LmEvalOptions, output: Output) -> None:
    """Run tasks of lm-eval adaptively, in rounds on one loaded model.

    Writes lm-eval's ordinary results and samples files, of the items asked, and annotates them
    with the ability and the predicted score on all items. Groups are tested as their tasks. Run the
    same command again to go on with a test that was stopped.
    """
    from evalstats_plugin.adapters.lm_eval.adaptive import run
    from evalstats_plugin.adapters.lm_eval.reader import model_identity
    from evalstats_plugin.adaptive.records import RECORD
    from evalstats_plugin.logs.annotating import annotate

    name = options.name_of(asked, ("model", "model_args", "tasks", "bank", *_ASKING))
    state = asked.state or asked.output_path / f"adaptive_{name}.answers"
    plan = asked.plan(batch=_BATCH, state=state)
    plan.load()  # report problems of the bank before lm-eval's slow import
    with quiet_harness():
        check_harness()
        model = _model(asked)
        names = [name.strip() for name in asked.tasks.split(",") if name.strip()]
        if not names:
            msg = f"--tasks {asked.tasks!r} names no task"
            raise SelectionError(f"{msg}: write it like --tasks arc_easy,mmlu")
        metadata = {**model.arguments, **run.arguments_of(asked.metadata)}
        tasks = run.Tasks.load(names, asked.include_path, metadata)
        rounds = run.Rounds(tasks, plan, model)
        try:
            answered = rounds.session.n
            options.tell_forecast(plan, rounds.bank, answered, output)
            lm = model.load()
            with options.telling(quiet=output.quiet) as on_round:
                rounds.run(lm, on_round)
            written = rounds.finish(lm, asked.output_path)
            annotate(written, in_place=True)
        except BaseException as error:
            rounds.close()
            if isinstance(error, KeyboardInterrupt) and rounds.session.n:
                kept = f"{rounds.session.n} answers are kept in {state}"
                echo(f"{kept}: the same command goes on from there", err=True)
            raise
        rounds.close(done=asked.state is None)
    data = load_results(LogFile(written)) or {}
    shown = (model_identity(data)[0], ", ".join(data["configs"]), str(written))
    options.show_test(asked, output, section(data, RECORD), shown)


def _model(asked: LmEvalOptions) -> Model:
    from evalstats_plugin.adapters.lm_eval.adaptive.run import Model, arguments_of

    size = asked.batch_size
    template = asked.apply_chat_template
    given = {
        "apply_chat_template": template is not None and (template == "true" or template),
        "gen_kwargs": arguments_of(asked.gen_kwargs or "") or None,
    }
    return Model(
        name=asked.model,
        arguments=arguments_of(asked.model_args),
        settings={
            "batch_size": int(size) if size.isdigit() else size,
            "max_batch_size": asked.max_batch_size,
            "device": asked.device,
        },
        asking={name: given.get(name, getattr(asked, name)) for name in _ASKING},
        scoring={name: getattr(asked, name) for name in _SCORING},
    )
