"""Make tables of two public judged sets: a row for each answer, with a judge's score and people's.

    python tests/generate/judged_sets.py LLM_SUMMEVAL DIALSUMMEVAL FOLDER

The first two are clones of github.com/DAMO-NLP-SG/LLM_summeval (SummEval's expert ratings of the
coherence of twelve models' summaries of 100 articles, with those of GPT-4 and GPT-3.5) and
github.com/kite99520/DialSummEval (people's ratings of the consistency of fourteen models' summaries
of 100 dialogues, with QuestEval's). What is written to the folder may not be passed on.
"""

import csv
import json
import re
import sys
from pathlib import Path

JUDGES = {"gpt4": "gpt-4-0314", "gpt35": "gpt-3.5-turbo-0301"}
MODELS = (8, 9, 10, 11, 12, 13, 14, 15, 17, 20, 22, 23)
GRADE = re.compile(r"\b([1-5])(?:\.0)?\b(?!\s*(?:sentences|points|to))")


def lines_of(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def mean(values):
    return sum(values) / len(values)


def summeval(repository):
    yield ["model", "task", "item", *JUDGES, "label", "length"]
    for model in MODELS:
        given = {}
        for judge, folder in JUDGES.items():
            place = repository / "eval_model_generations" / folder / f"eval_M{model}_generations"
            for answer in lines_of(place / "coherence_rts.txt"):
                grades = GRADE.findall(answer["resp"])
                given[judge, answer["id"]] = grades[-1] if grades else ""
        file = repository / "model_output_annotations" / f"M{model}_outputs_annotations.jsonl"
        for one in lines_of(file):
            label = mean([each["coherence"] for each in one["expert_annotations"]])
            judged = [given.get((judge, one["id"]), "") for judge in JUDGES]
            yield [f"M{model}", "coherence", one["id"], *judged, label, len(one["decoded"])]


def dialsummeval(repository):
    yield ["model", "task", "item", "questeval", "label", "length"]
    results = repository / "reproduce" / "analysis" / "models_eval_new"
    people = lines_of(repository / "annotation_campus" / "human_judgment.jsonl")

    def plain(text):
        return re.sub(r"\W", "", text.lower())

    # Results have no ids: the order is that of the first model's summaries.
    summaries = (results / "A" / "summs.txt").read_text("utf-8").splitlines()
    place = {plain(text): k for k, text in enumerate(summaries)}
    order = {one["id"]: place[plain(one["summary"])] for one in people if one["model_id"] == "A"}
    for one in people:
        scores = (results / one["model_id"] / "questeval.txt").read_text().split()
        label = mean([each["consistency"] for each in one["annotations"]])
        score = scores[order[one["id"]]]
        yield [
            one["model_id"], "consistency", one["id"], score, label, len(one["summary"])
        ]  # fmt: skip


if __name__ == "__main__":
    first, second, folder = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("summeval", summeval(first)), ("dialsummeval", dialsummeval(second))):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
