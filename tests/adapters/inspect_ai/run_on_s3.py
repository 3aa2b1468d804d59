"""Runs Inspect with logs in a bucket, for test_hooks."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

TASK = f"{Path(__file__).with_name('demo_tasks.py')}@sums"
MODELS = ["mockllm/a", "mockllm/b"]
BUCKET = "evals"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1", "EVALSTATS_ANNOTATE": "intervals,compare",
}  # fmt: skip


def _facts(log: Any) -> dict[str, Any]:
    from inspect_ai.log import read_eval_log

    written = read_eval_log(log.location)
    return {
        "comparisons": len(log.metadata["evalstats"]["comparisons"]),
        "same": [log.metadata, log.tags, log.etag]
        == [written.metadata, written.tags, written.etag],
        "samples": len(written.samples or ()),
    }


def main(folder: Path) -> None:
    """Write down what the returned logs hold, and whether the stored ones hold the same."""
    os.environ.update(ENVIRONMENT)
    import boto3
    from botocore.loaders import JSONFileLoader
    from moto.server import ThreadedMotoServer

    # Each of many clients would parse megabytes of descriptions of the service.
    load = cache(JSONFileLoader().load_file)
    JSONFileLoader.load_file = lambda _, path: load(path)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ["AWS_ENDPOINT_URL"] = f"http://{host}:{port}"
    boto3.client("s3").create_bucket(Bucket=BUCKET)

    from inspect_ai import eval_set

    _, logs = eval_set(TASK, model=MODELS, log_dir=f"s3://{BUCKET}/set", display="log")
    manifest = boto3.client("s3").get_object(Bucket=BUCKET, Key="set/logs.json")["Body"].read()
    listed = [entry["tags"] for entry in json.loads(manifest).values()]
    facts = {"logs": [_facts(log) for log in logs], "listed": listed}
    (folder / "facts.json").write_text(json.dumps(facts))
    server.stop()
