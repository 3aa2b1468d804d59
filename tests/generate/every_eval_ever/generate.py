"""Make fixtures/logs/every_eval_ever: exported by us, and laid out as that project's converters do.

``python tests/generate/every_eval_ever/generate.py`` (from the root). The second kind follows
what github.com/evaleval/every_eval_ever writes for lm-eval (one aggregate file a task; two metrics
of one name; no id of a result; the instances hold the first metric alone) and for Inspect ("task -
scorer" as the name; the metric in the description; epochs in the metadata).
"""

import hashlib
import json
import os
import shutil
import uuid
from pathlib import Path

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
OUT = FIXTURES / "logs" / "every_eval_ever" / "0.3.0"
VERSION = "0.3.0"
MODEL = {
    "name": "acme/tiny-1b",
    "id": "acme/tiny-1b",
    "developer": "acme",
    "additional_details": {"deployment_type": "unknown", "model_availability": "unknown"},
}
SOURCE = {
    "source_name": "a harness",
    "source_type": "evaluation_run",
    "source_organization_name": "unknown",
    "evaluator_relationship": "first_party",
}


def exported() -> None:
    """Export a few tasks of lm-eval's and Inspect's fixtures."""
    from evalstats_plugin import read
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.logs.exporting import export

    os.environ["SOURCE_DATE_EPOCH"] = "1795000000"
    os.chdir(FIXTURES)
    lm_eval = read("logs/lm_eval/0.4.13/out", task=["es_odd", "es_bin", "es_ppl"])
    inspect = read("logs/inspect_ai/0.3.285/models", task=["arith_epochs", "reading", "graded"])
    chosen = [r for r in (*lm_eval, *inspect) if r.model in ("models/m0", "mockllm/alpha")]
    export(ResponseSet(tuple(chosen)), OUT / "exported", to="every-eval-ever")


def result(name, metric, score, **details):
    """Return an evaluation result as converters lay it out."""
    return {
        "evaluation_name": name,
        "source_data": {"dataset_name": name, "source_type": "other"},
        "metric_config": {
            "evaluation_description": metric,
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": 0.0,
            "max_score": 1.0,
        },
        "score_details": {"score": score, **details},
    }


def instance(evaluation_id, name, item, score, **more):
    """Return one instance as converters lay it out."""
    question = {"raw": f"What is {item} + {item}?", "reference": [str(2 * item)]}
    digest = hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()
    return {
        "schema_version": VERSION,
        "evaluation_id": evaluation_id,
        "model_id": MODEL["id"],
        "evaluation_name": name,
        "sample_id": str(item),
        "sample_hash": digest,
        "interaction_type": "single_turn",
        "input": {**question, "formatted": None, "choices": None},
        "output": {"raw": [str(2 * item) if score else "?"], "reasoning_trace": None},
        "messages": None,
        "answer_attribution": [],
        "evaluation": {"score": score, "is_correct": score == 1.0},
        "error": None,
        "metadata": None,
        **more,
    }


def write(task, library, results, instances):
    """Write one aggregate file and its instances, compactly, as pydantic does."""
    evaluation_id = f"{task}/{MODEL['id']}/1790000000"
    number = str(uuid.UUID(bytes=hashlib.sha256(task.encode()).digest()[:16], version=4))
    folder = Path("data", task, "acme", "tiny-1b")
    lines = "".join(json.dumps(i) + "\n" for i in instances(evaluation_id)).encode()
    aggregate = {
        "schema_version": VERSION,
        "evaluation_id": evaluation_id,
        "evaluation_timestamp": "1790000000",
        "retrieved_timestamp": "1795000000.25",
        "source_metadata": SOURCE,
        "eval_library": {"name": library, "version": "unknown"},
        "model_info": MODEL,
        "evaluation_results": results,
    }
    inside = OUT / "converted" / folder
    inside.mkdir(parents=True)
    if lines:
        aggregate["detailed_evaluation_results"] = {
            "format": "jsonl",
            "file_path": (folder / f"{number}_samples.jsonl").as_posix(),
            "hash_algorithm": "sha256",
            "checksum": hashlib.sha256(lines).hexdigest(),
            "total_rows": lines.count(b"\n"),
        }
        (inside / f"{number}_samples.jsonl").write_bytes(lines)
    (inside / f"{number}.json").write_text(json.dumps(aggregate))


def converted() -> None:
    """Write what converters of other harnesses' logs would."""
    right = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0]
    error = {"uncertainty": {"standard_error": {"value": 0.14, "method": "bootstrap"}}}
    write(
        "sums",
        "lm_eval",
        [result("sums", "acc_norm", 0.75), result("sums", "acc", 8 / 12, **error)],
        lambda e: [instance(e, "sums", i, s) for i, s in enumerate(right)],
    )
    takes = [(i, epoch) for epoch in (1, 2, 3) for i in range(6)]
    scores = [float((i + epoch) % 3 > 0) for i, epoch in takes]
    write(
        "carrying",
        "inspect_ai",
        [
            result("carrying - match", "accuracy", sum(scores) / len(scores)),
            result("carrying - match", "pass_at_2", 1.0),
        ],
        lambda e: [
            instance(e, "carrying", i, s, metadata={"stop_reason": "stop", "epoch": str(epoch)})
            for (i, epoch), s in zip(takes, scores, strict=True)
        ],
    )
    write("leaderboard", "unknown", [result("leaderboard", "accuracy", 0.612)], lambda _: [])


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    exported()
    converted()
