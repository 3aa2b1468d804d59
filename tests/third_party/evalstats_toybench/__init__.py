"""Reads and annotates the logs of toybench, an imaginary harness; adds a method and a command."""

import json

from evalstats_plugin import Method, hookimpl
from evalstats_plugin.data.measure import Measure


def _load(path):
    if path.suffix != ".toy":
        return None
    data = json.loads(path.read_bytes())
    return data if "toybench" in data else None


def _responses(data, path):
    import numpy as np

    from evalstats_plugin import Responses, Source

    return [
        Responses(
            model=data["model"],
            measure=Measure(task=data["toybench"], metric="accuracy"),
            item_ids=np.array(list(data["answers"])),
            scores=np.array([[float(right)] for right in data["answers"].values()]),
            source=Source(path=path, harness="toybench"),
        )
    ]


@hookimpl
def evalstats_find_logs(files):
    return {file.path: [] for file in files if file.path.suffix == ".toy"}


@hookimpl
def evalstats_read_log(log):
    if log.path.suffix != ".toy" or b'"toybench"' not in log.head:
        return None
    return _responses(json.loads(log.read_bytes()), log.path)


@hookimpl
def evalstats_metrics():
    from evalstats_plugin.data.measure import Scale
    from evalstats_plugin.data.metrics import StockMetric

    return [StockMetric("smiles", Scale(0.0, 5.0, unit="points"), harness="toybench")]


@hookimpl
def evalstats_read_results(results):
    from pathlib import Path

    return _responses(results, Path()) if "toybench" in results else None


@hookimpl
def evalstats_read_contests(log, columns):
    from evalstats_plugin.data.tables import record_table
    from evalstats_plugin.ranking.contests.assembly import contests_from_table

    data = _load(log.path)
    if data is None:
        return None
    return contests_from_table(record_table(data["pairs"], str(log.path)), columns)


@hookimpl
def evalstats_read_texts(log, items):
    from evalstats_plugin.hookspecs import ItemText

    data = _load(log.path)
    if data is None:
        return None
    asked = items.get(data["toybench"], ())
    return {(data["toybench"], i): ItemText(f"How much is {i}?", where=f"line {i}") for i in asked}


@hookimpl
def evalstats_annotate_log(path, annotation, output):
    from evalstats_plugin.runtime.writing import write_bytes

    data = _load(path)
    if data is None:
        return None
    data.pop("evalstats", None)
    if annotation is not None:
        data["evalstats"] = annotation.block()
    return write_bytes(output, json.dumps(data).encode())


@hookimpl
def evalstats_annotate_results(results, annotation):
    return {**results, "evalstats": annotation.block()} if "toybench" in results else None


@hookimpl
def evalstats_methods():
    return [
        Method(
            name="toy-everything",
            family="binary",
            function="evalstats_toybench:everything",
            summary="the interval that is always right",
            source="this package",
        ),
        Method(
            name="toy-anything",
            family="paired",
            function="evalstats_toybench:anything",
            summary="any difference is possible",
            source="this package",
            question="comparison",
        ),
    ]


def everything(successes, n, *, confidence_level):
    """From 0 to 1: covers with probability 1 at any level."""
    from evalstats_plugin.stats.interval import Interval

    return Interval(0.0 * successes * confidence_level, n / n)


def anything(counts, *, confidence_level):
    """From -1 to 1, at any level."""
    from evalstats_plugin.stats.interval import Interval

    everything_is_possible = 0.0 * counts.n * confidence_level + 1
    return Interval(-everything_is_possible, everything_is_possible)


@hookimpl
def evalstats_commands():
    from evalstats_plugin.hookspecs import Command

    return [Command("toy", "Say hello.", "evalstats_toybench.hello:toy")]


@hookimpl
def evalstats_harness_commands():
    from evalstats_plugin.hookspecs import Command

    return [Command("toy", "Ask the toy model.", "evalstats_toybench.hello:drive")]


@hookimpl
def evalstats_exporters():
    from evalstats_plugin.hookspecs import Exporter

    return [Exporter("toy", "a log of toybench", "evalstats_toybench:write_toy")]


def write_toy(responses, output, *, loud=False):
    """Write the last responses; louder in capitals."""
    from evalstats_plugin.runtime.writing import write_bytes

    *left, r = responses
    answers = dict(zip(r.item_ids.tolist(), r.scores[:, 0].tolist(), strict=True))
    model = r.model.upper() if loud else r.model
    log = {"toybench": r.task, "model": model, "answers": answers}
    written = write_bytes(output, json.dumps(log).encode())
    return [written], [f"{len(left)} more responses are not held"]


@hookimpl
def evalstats_generator(model):
    if model != "toy/first":
        return None
    return lambda _text: "[[A]]"
