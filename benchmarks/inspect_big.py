"""Reading and annotating a big Inspect log: 20,000 samples of 24 messages each, 400 MB."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SAMPLES = 20_000
MESSAGES = 24
CHARACTERS = 1200
"""Of each message."""

_FLUSH = 200
_WORDS = 8000

_READ = """
import sys, time
from evalstats_plugin import read
begin = time.perf_counter()
(found,) = read(sys.argv[1]).responses
seconds = time.perf_counter() - begin
# Not ru_maxrss: a child inherits its parent's.
with open("/proc/self/status") as status:
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
print(len(found.item_ids), seconds, int(peak) / 1024)
"""


class _Text:
    """Text that compresses about as well as people's."""

    def __init__(self) -> None:
        self.rng = random.Random(0)  # noqa: S311 - words, not secrets
        letters = "abcdefghijklmnopqrstuvwxyz"
        self.words = [
            "".join(self.rng.choices(letters, k=self.rng.randint(2, 10))) for _ in range(_WORDS)
        ]

    def of(self, characters: int) -> str:
        """Return so many characters."""
        return " ".join(self.rng.choices(self.words, k=characters // 5))[:characters]


def write_log(path: Path, samples: int = SAMPLES, messages: int = MESSAGES) -> None:
    """Write a log through Inspect's own recorder, sample by sample."""
    import anyio

    anyio.run(_write, path, samples, messages)


async def _write(path: Path, samples: int, messages: int) -> None:
    from inspect_ai.log import EvalConfig, EvalDataset, EvalPlan, EvalSpec, EvalStats
    from inspect_ai.log._condense import condense_sample
    from inspect_ai.log._recorders.eval import EvalRecorder

    ids = list(range(1, samples + 1))
    spec = EvalSpec(
        created="2026-11-20T00:00:00+00:00",
        task="big",
        task_id="task",
        run_id="run",
        eval_id="eval",
        dataset=EvalDataset(name="big", samples=samples, sample_ids=ids),
        model="mockllm/big",
        config=EvalConfig(epochs=1),
    )
    recorder = EvalRecorder(".")
    await recorder.log_init(spec, str(path), clean=True)
    await recorder.log_start(spec, EvalPlan())
    text = _Text()
    right = 0
    for i in ids:
        ok = text.rng.random() < 0.6
        right += ok
        await recorder.log_sample(spec, condense_sample(_sample(i, text, messages, ok=ok)))
        if i % _FLUSH == 0:
            await recorder.data[recorder._log_file_key(spec)].write_buffered_samples()
    results, reductions = _results(samples, right)
    await recorder.log_finish(spec, "success", EvalStats(), results, reductions, header_only=True)


def _sample(number: int, text: _Text, messages: int, *, ok: bool) -> Any:
    from inspect_ai.event import ModelEvent
    from inspect_ai.log import EvalSample
    from inspect_ai.model import (
        ChatMessageAssistant,
        ChatMessageUser,
        GenerateConfig,
        ModelOutput,
        ModelUsage,
    )
    from inspect_ai.scorer import Score

    said: list[Any] = [
        (ChatMessageAssistant if j % 2 else ChatMessageUser)(
            content=text.of(CHARACTERS), id=f"{number}-{j}"
        )
        for j in range(messages)
    ]
    events: list[Any] = [
        ModelEvent(
            model="mockllm/big",
            input=said[:j],
            tools=[],
            tool_choice="auto",
            config=GenerateConfig(),
            output=ModelOutput.from_content("mockllm/big", said[j].text),
        )
        for j in range(1, messages, 2)
    ]
    score = Score(value="C" if ok else "I", answer="42" if ok else "7", explanation=text.of(300))
    return EvalSample(
        id=number,
        epoch=1,
        input=said[0].text,
        target="42",
        messages=said,
        output=ModelOutput.from_content("mockllm/big", said[-1].text),
        scores={"match": score},
        metadata={
            "passage": f"p{number // 5:05d}",
            "category": f"c{number % 7}",
            "source_text": text.of(1500),
        },
        events=events,
        uuid=f"u{number}",
        model_usage={
            "mockllm/big": ModelUsage(input_tokens=1000, output_tokens=500, total_tokens=1500)
        },
    )


def _results(samples: int, right: int) -> tuple[Any, Any]:
    from inspect_ai.log import (
        EvalMetric,
        EvalResults,
        EvalSampleReductions,
        EvalSampleScore,
        EvalScore,
    )

    p = right / samples
    metrics = {
        "accuracy": EvalMetric(name="accuracy", value=p),
        "stderr": EvalMetric(name="stderr", value=(p * (1 - p) / (samples - 1)) ** 0.5),
    }
    score = EvalScore(
        name="match", scorer="match", scored_samples=samples, unscored_samples=0, metrics=metrics
    )
    reductions = [EvalSampleScore(value=1.0, sample_id=i) for i in range(1, samples + 1)]
    return (
        EvalResults(total_samples=samples, completed_samples=samples, scores=[score]),
        [EvalSampleReductions(scorer="match", samples=reductions)],
    )


_ANNOTATE = """
import sys, time
from evalstats_plugin import annotate
start = time.perf_counter()
annotate(sys.argv[1], in_place=True, items=sys.argv[2])
print(time.perf_counter() - start)
with open("/proc/self/status") as status:
    print(next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM")))
"""


def _annotated(path: Path, items: str) -> tuple[float, float]:
    """Return seconds and peak megabytes of annotating in a process of its own, start-up apart."""
    done = subprocess.run(
        [sys.executable, "-c", _ANNOTATE, path, items], capture_output=True, text=True, check=True
    )
    seconds, peak = done.stdout.split()
    return round(float(seconds), 2), round(float(peak), 1)


def run(samples: int = SAMPLES) -> dict[str, float]:
    """Return seconds and memory of reading scores, annotating the header, and the items.

    Annotating reads the scores first, which is in its figures.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.eval"
        write_log(path, samples)
        done = subprocess.run(
            [sys.executable, "-c", _READ, path], capture_output=True, text=True, check=True
        )
        items, seconds, peak = done.stdout.split()
        header_seconds, header_peak = _annotated(path, "no")
        items_seconds, items_peak = _annotated(path, "columns")
        return {
            "megabytes": round(path.stat().st_size / 1e6),
            "items": int(items),
            "seconds": round(float(seconds), 2),
            "peak_mb": round(float(peak), 1),
            "annotate_seconds": header_seconds,
            "annotate_peak_mb": header_peak,
            "annotate_items_seconds": items_seconds,
            "annotate_items_peak_mb": items_peak,
        }
