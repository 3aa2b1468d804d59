"""``evalstats-plugin adapt simulate`` and ``replay``: the error of adaptive tests."""

from __future__ import annotations

from dataclasses import dataclass, replace

from evalstats_plugin.cli.adapt.options import RULES, Planning, bank
from evalstats_plugin.cli.shell import shared
from evalstats_plugin.cli.shell.options import Name, Parsed, command, count_in, takes, under
from evalstats_plugin.cli.shell.running import Output, Run, on_logs, output, progress_on_work
from evalstats_plugin.errors import SelectionError

_drawn = under("What is simulated")


def parse_numbers(text: str) -> tuple[int, ...]:
    """Read numbers above 0 with commas between them."""
    numbers = {count_in(part.strip()) for part in text.split(",")}
    if None in numbers:
        msg = f"--items {text!r} is not a list of numbers above 0: write it like --items 10,25,50"
        raise SelectionError(msg)
    return tuple(sorted(filter(None, numbers)))


@dataclass(frozen=True, kw_only=True)
class SimulateOptions:
    """Of what bank, with how many models and items, and by which rules."""

    bank: str = bank()
    items: tuple[int, ...] = _drawn(
        "Test lengths (numbers of items) to evaluate.",
        default="10,25,50,100", type=Parsed(parse_numbers), metavar="N,…",
    )  # fmt: skip
    rule: tuple[str, ...] = _drawn(
        f"{', '.join(RULES)}; may be repeated.  [default: all]",
        default=(), multiple=True, type=Name("rule", RULES), metavar="NAME",
    )  # fmt: skip
    models: int = _drawn("Number of simulated models.", default=200, metavar="N")
    misspecified: float = _drawn(
        "Calibration error of the items as a multiple of their standard errors: 0 none, 2 twice.",
        default=1.0, metavar="F",
    )  # fmt: skip
    confidence_level: float = shared.level()
    seed: int = shared.seed()


@command()
@takes("asked", SimulateOptions)
@output("simulation")
def simulate(*, asked: SimulateOptions, output: Output) -> None:
    """Simulate models: error of the test by number of items and selection rule.

    Models are drawn from the bank: abilities, and items as uncertain as the bank knows them. Real
    models differ in ways no bank knows; `replay` shows what happens on those.
    """
    from evalstats_plugin.adaptive.bank import ItemBank
    from evalstats_plugin.adaptive.simulation import simulate as run_simulation
    from evalstats_plugin.report import adaptive

    bank = ItemBank.load(asked.bank)
    how = {"misspecified": asked.misspecified, "confidence_level": asked.confidence_level}
    with progress_on_work("simulating", quiet=output.quiet):
        results = run_simulation(
            bank, asked.items, asked.rule or RULES[1:], n_models=asked.models, **how, rng=asked.seed
        )
    output.draw({"simulation": lambda: results})
    about = {"bank": asked.bank, "models": asked.models, **how, "seed": asked.seed}
    output.show(results, about, adaptive.ACCURACY)


@command()
@takes("asked", Planning)
@on_logs("tests")
def replay(run: Run, *, asked: Planning) -> None:
    """Simulate adaptive tests on recorded answers.

    PATHS are results files, folders or patterns, of models that the bank need not know. Shows
    beside each predicted score the score over all answers in the log. Models that the bank was made
    of look better than new ones: keep some logs out of it.
    """
    from evalstats_plugin.adaptive.replaying import replay as ask_again
    from evalstats_plugin.report import adaptive

    plan = asked.plan()
    bank = plan.load()
    responses = run.read()
    with progress_on_work("asking", quiet=run.output.quiet):
        results = ask_again(bank, responses.responses, plan)
    run.output.draw({"tests": lambda: results})
    results = replace(results, notes=(*responses.notes, *results.notes))
    run.output.show(results, asked.how(results.rows[0].rule), adaptive.TESTS)
