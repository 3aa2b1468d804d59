"""`evalstats-plugin gate`: decisions, protocols, margins. See `test_hostile_pull_request` too."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hostile_requests import lines, write
from markdown_it import MarkdownIt

import evalstats_plugin as es
from evalstats_plugin.comparisons.gating import Gate
from evalstats_plugin.report.gating import address_of, gate_markdown
from evalstats_plugin.scores.rows import ItemComparison, ItemComparisons

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
Run = Callable[..., "CompletedProcess[str]"]


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        (("--baseline", "models/m1", "-t", "es_bin"), 0, "PASS: no regression of models/m0"),
        (("--baseline", "models/m2", "-t", "es_group"), 3, "REGRESSED: models/m0, models/m1 show"),
        (
            ("--baseline", "models/m1", "-t", "es_bin", "--margin", "0.01", "--non-inferior"),
            4, "INCONCLUSIVE: a drop of more than 0.01",
        ),
        (("--baseline", "models/m9"), 2, ""),
        (("--baseline", "models/m1", "--non-inferior"), 2, ""),
        (("--baseline", "models/m1", "--junit", "out/of/place.xml"), 2, ""),
    ],
)  # fmt: skip
def test_exit_code_and_first_words_agree(
    run: Run, options: tuple[str, ...], code: int, word: str
) -> None:
    """0 passes, 3 regressed, 4 inconclusive, 2 bad input."""
    done = run("gate", LOGS, "-m", "acc", "-q", *options)

    assert code == done.returncode
    assert done.stdout.startswith(word)
    assert (code == 2) == done.stderr.startswith("error: ")
    assert max(map(len, done.stdout.splitlines()), default=0) <= 80


def test_json_holds_decision_sentence_and_rows(run: Run) -> None:
    """The numbers of the rows are those of `compare` over the same family."""
    options = ("--baseline", "models/m2", "-t", "es_group", "-m", "acc", "--format", "json")
    decided = json.loads(run("gate", LOGS, *options).stdout)
    compared = json.loads(run("compare", LOGS, *options, "--family", "run").stdout)

    assert "regressed" == decided["decision"]
    assert decided["sentence"].startswith("REGRESSED: ")
    key = ("task", "difference", "low", "high")
    limits = {(row["model_b"], *(row[k] for k in key)) for row in compared["results"]}
    assert {(row["model"], *(row[k] for k in key)) for row in decided["results"]} == limits


def test_junit_has_a_case_for_each_comparison(run: Run, tmp_path: Path) -> None:
    """A regression is a failure with its numbers."""
    file = tmp_path / "gate.xml"
    options = ("--baseline", "models/m2", "-t", "es_group", "-m", "acc")
    done = run("gate", LOGS, *options, "--junit", file)

    suite = ET.parse(file).getroot()  # noqa: S314 - our own file
    assert 3 == done.returncode
    cases = suite.findall("testcase")
    assert suite.get("tests") == str(len(cases))
    messages = [str(failure.get("message")) for failure in suite.iter("failure")]
    assert suite.get("failures") == str(len(messages))
    assert any(text.startswith("es_group acc -0.6311 [") for text in messages)


def test_junit_is_not_green_where_logs_were_left_out(run: Run, tmp_path: Path) -> None:
    """All rows pass, and the decision is inconclusive: one more case was skipped."""
    logs, file = tmp_path / "logs", tmp_path / "gate.xml"
    shutil.copytree(LOGS / "models__m1", logs / "m1")
    shutil.copytree(LOGS / "models__m2", logs / "m2")
    (logs / "m2" / "results_2030-01-01T00-00-00.000000.json").write_text("{")
    options = ("--baseline", "models/m1", "-t", "es_mc", "-m", "acc", "--skip-broken")
    done = run("gate", logs, *options, "--junit", file)

    suite = ET.parse(file).getroot()  # noqa: S314 - our own file
    assert 4 == done.returncode
    assert (suite.get("tests"), suite.get("skipped")) == ("2", "1")
    (skipped,) = suite.iter("skipped")
    assert "no drop is shown, but logs were left out" in str(skipped.get("message"))


def test_a_comment_shows_what_failed_and_folds_the_rest_away(run: Run) -> None:
    """The sentence, the rows that do not pass, the items lost under them, then what is folded."""
    options = ("--baseline", "models/m2", "--models", "models/m1", "-t", "es_group", "-t", "es_mc")
    done = run("gate", LOGS, *options, "--margin", "0.05", "--format", "markdown")

    first, *blocks = done.stdout.split("\n\n")
    assert first.startswith("**REGRESSED**: models/m1 shows a drop of more than 0.05")
    open_part, folded = done.stdout.split("<details>", 1)
    assert "| pass |" not in open_part
    assert "| regressed |" not in folded
    assert open_part.count("| regressed |") + folded.count("| pass |") == 11
    said, table = blocks[1:3]
    assert said == "models/m1 does worse than models/m2 on 25 items; the 5 that tell most:"
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    assert len(rows) == 5
    assert all(float(of_b) < float(of_a) for _, _, of_a, of_b, *_ in rows)
    assert rows[0] == ["es_sub_a acc", "1", "1", "0", "1+1=", "doc_id 1"]
    assert folded.count("<details>") == 1
    assert done.stdout.count("</details>") == 2


def test_lost_items_lead_to_the_candidates_log(run: Run) -> None:
    """From the working directory; a log outside it, and a bad address, have no link."""
    options = ("--baseline", "models/m2", "--models", "models/m1", "-t", "es_sub_a", "-m", "acc")
    asked = (*options, "--format", "markdown", "--link", "https://a.b/{path}?item={item}")
    log = max((LOGS / "models__m1").glob("results_*")).name
    here = run("gate", "models__m1", "models__m2", *asked, folder=LOGS)
    elsewhere = run("gate", LOGS, *asked, folder=LOGS / "models__m0")
    bad = ("javascript:{path}", "https://a.b/", "https://a.b/{path})", "https://a.b/{path} x")

    for k in re.findall(r"\[doc_id (\d+)\]", here.stdout):
        assert f"| [doc_id {k}](https://a.b/models__m1/{log}?item={k}) |" in here.stdout
    assert here.stdout.count("](https://a.b/models__m1/") == 5
    assert "does worse" in elsewhere.stdout
    assert "https" not in elsewhere.stdout
    for link in bad:
        refused = run("gate", LOGS, *options, "--link", link)
        assert (refused.returncode, "is no address of a log" in refused.stderr) == (2, True)


_PIECES = (
    "](", ")", "[", "]", "(", "|", "\\", "`", "<", ">", "\n", "\u202e", "\x1b[31m", "![x](",
    "https://evil.example/", "@ann", "javascript:", "<img src=x>", "</details>", "é", " ", "a",
    "\ud800", "..", "/", "{path}", '"', "'", "*", "_", "~~", "$", "#1", "www.evil.example", "&#40;",
)  # fmt: skip
_HARMLESS = {
    "table", "thead", "tbody", "tr", "th", "td", "a", "href", "style", "em", "strong", "code", "s",
}  # fmt: skip


class _Rendered(HTMLParser):
    """Addresses, and the names of elements and attributes, of a document."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.names: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {tag, *(name for name, _ in attrs)}
        self.addresses += [str(value) for name, value in attrs if name in ("href", "src")]


@pytest.fixture(scope="module")
def decided() -> Gate:
    """Give a decision."""
    return es.gate(es.read(LOGS, task="es_bin", metric="acc"), baseline="models/m1", rng=0)


@pytest.mark.parametrize("part", range(4))
def test_links_of_a_comment_are_ours_whatever_logs_hold(part: int, decided: Gate) -> None:
    """Rendered: one link for each item, to an address of ours, and no other element."""
    for seed in range(40 * part, 40 * part + 40):
        _links_are_ours(np.random.default_rng(seed), decided)


def _links_are_ours(rng: np.random.Generator, decided: Gate) -> None:
    def drawn() -> str:
        return "".join(rng.choice(_PIECES, int(rng.integers(1, 8))))

    folder = drawn().replace("/", "-").replace("\x00", "")
    rows = tuple(
        ItemComparison(
            task=drawn(), metric="acc", item=drawn(), model_a=drawn(), model_b=drawn(), score_a=1,
            score_b=0, difference=-1, outcome="lost", question=drawn(), where=drawn(),
            log_b=f"{folder}/log.json",
        )
        for _ in range(3)
    )  # fmt: skip
    lost = ItemComparisons(rows, n_flipped=3, counts=())
    link = "https://our.example/{path}/{item}"
    comment = gate_markdown(decided, "", [lost], link)
    table = comment[comment.index("| Task | Item") : comment.index("<details>")]
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    html = parser.render(table)
    page = _Rendered(html)
    expected = [url for row in rows if (url := address_of(link, row.log_b, row.item))]
    upward = [part.strip() in ("", ".", "..") for part in (folder, *(row.item for row in rows))]

    assert page.addresses == expected
    assert len(expected) == (0 if upward[0] else 3 - sum(upward[1:]))
    assert all(url.startswith("https://our.example/") for url in expected)
    assert not any({"..", "."} & set(url.split("/")) for url in expected)
    assert html.count("<td") == 6 * len(rows)
    assert page.names <= _HARMLESS


def test_a_comment_on_few_rows_shows_them_all(run: Run) -> None:
    """A candidate that passes has no items to show."""
    options = ("--baseline", "models/m1", "--models", "models/m2", "-t", "es_group", "-m", "acc")
    shown, folded = run("gate", LOGS, *options, "--format", "markdown").stdout.split("<details>")
    assert shown.count("| pass |") == 4
    assert "does worse" not in shown + folded


def test_of_very_many_rows_a_comment_folds_most_away() -> None:
    """A hundred tasks lost: forty stand open, the sentence names three, nothing is left out."""
    decided = es.gate(es.read(LOGS, task="es_mc", metric="acc"), baseline="models/m2", rng=0)
    (row,) = [row for row in decided if row.model == "models/m0"]
    rows = tuple(replace(row, task=f"task {i}") for i in range(100))
    comment = gate_markdown(replace(decided, rows=rows), "settings")

    shown, folded = comment.split("<details><summary>60 more rows</summary>")
    assert shown.count("| regressed |") == 40
    assert folded.count("| regressed |") == 60
    assert "and 97 more" in shown
    assert "How this was decided" in folded


def test_a_badge_says_the_decision(run: Run, tmp_path: Path) -> None:
    """As an image whose text is the decision, and as JSON for shields.io."""
    options = ("--baseline", "models/m2", "-t", "es_group", "-m", "acc")
    for name in ("badge.svg", "badge.json"):
        assert run("gate", LOGS, *options, "--badge", tmp_path / name).returncode == 3
    image = ET.parse(tmp_path / "badge.svg").getroot()  # noqa: S314 - our own file
    assert image.get("aria-label") == "evals: regressed"
    assert [text.text for text in image.iter("{http://www.w3.org/2000/svg}text")] == [
        "evals", "regressed",
    ]  # fmt: skip
    told = json.loads((tmp_path / "badge.json").read_text())
    assert told["schemaVersion"] == 1
    assert told["message"] == "regressed"
    refused = run("gate", LOGS, *options, "--badge", tmp_path / "badge.png")
    assert refused.returncode == 2
    assert not (tmp_path / "badge.png").exists()


def _tables(folder: Path) -> Path:
    write(folder / "release.csv", lines("release", 9))
    write(folder / "candidate.csv", lines("candidate", 5))
    return folder


def _protocol(folder: Path, text: str) -> Path:
    path = folder / "gate.toml"
    path.write_text(text)
    return path


PINNED = 'baseline = "release"\nbaseline-logs = ["release.csv"]\nmargin = "2%"\n'


def test_a_protocol_decides_and_is_named_everywhere(run: Run, tmp_path: Path) -> None:
    """Its SHA-256 is in the text, JSON, Markdown and JUnit; margins are said in words."""
    logs = _tables(tmp_path)
    protocol = _protocol(tmp_path, PINNED)
    digest = hashlib.sha256(protocol.read_bytes()).hexdigest()
    junit = tmp_path / "gate.xml"

    text, markdown, found = (
        run("gate", "--protocol", protocol, logs / "candidate.csv", "--format", form,
            "--junit", junit, "--overwrite", "-q")
        for form in ("table", "markdown", "json")
    )  # fmt: skip

    assert {3} == {done.returncode for done in (text, markdown, found)}
    words = " ".join(text.stdout.split())
    assert words.startswith("REGRESSED: candidate shows a drop of more than 0.02 against release")
    assert "Acceptable drop: at most 0.02, 2 % of the range 0 to 1." in words
    assert "Least true drop that is detected with 80 % power: " in words
    assert f"Protocol {digest[:12]}" in words
    assert f"Protocol {digest[:12]}" in markdown.stdout
    decided = json.loads(found.stdout)
    assert digest == decided["protocol_sha256"]
    assert 0.02 == decided["results"][0]["margin"]
    told = ET.parse(junit).getroot().find("properties/property")  # noqa: S314 - our own file
    assert told is not None
    assert (told.get("name"), told.get("value")) == ("protocol_sha256", digest)


@pytest.mark.parametrize(
    ("more", "options", "message"),
    [
        ("marign = 0.1", (), "no key of a protocol is called 'marign'; did you mean margin"),
        ("quiet = true", (), "no key of a protocol is called 'quiet'"),
        ('seed = "0"', (), "seed = '0': give a whole number"),
        ("seed = true", (), "seed = True: give a value"),
        ("seed = 1.0", (), "seed = 1.0: give a whole number"),
        ('non-inferior = "true"', (), "non-inferior = 'true': give true or false"),
        ("metric = [1]", (), "metric = [1]: give a text"),
        ("baseline = ", (), "is not TOML"),
        ('models = ["c*"]', (), "models are named in full"),
        ('models = ["other"]', (), "no model is called 'other'"),
        ("", ("--margin", "50%"), "--margin contradicts the protocol"),
        ("", ("--confidence-level", "0.999"), "does not set confidence-level"),
        ("", ("--models", "candidate"), "does not set models"),
        ("", ("--runs", "latest"), "says runs = 'error'"),
        ("", ("--baseline-logs", "candidate.csv"), "--baseline-logs contradicts"),
    ],
)
def test_a_protocol_is_strict(
    run: Run, tmp_path: Path, more: str, options: tuple[str, ...], message: str
) -> None:
    """Unknown keys, other types, and options that contradict it are refused."""
    logs = _tables(tmp_path)
    protocol = _protocol(tmp_path, f"{PINNED}{more}\n")

    done = run("gate", "--protocol", protocol, logs / "candidate.csv", *options)

    assert 2 == done.returncode
    assert message in " ".join(done.stderr.split())


def test_options_that_agree_with_a_protocol_are_taken(run: Run, tmp_path: Path) -> None:
    """Said again, nothing is contradicted."""
    logs = _tables(tmp_path)
    protocol = _protocol(tmp_path, PINNED)

    options = ("--margin", "2%", "--seed", "0", "--runs", "error", "--baseline", "release")
    assert 3 == run("gate", "--protocol", protocol, logs / "candidate.csv", *options).returncode


def test_a_gate_takes_no_defaults_from_files(run: Run, tmp_path: Path) -> None:
    """Neither of a project nor of the user, and it says so."""
    logs = _tables(tmp_path)
    for name, table in (("pyproject.toml", "tool.evalstats-plugin.gate"), ("u.toml", "gate")):
        (tmp_path / name).write_text(f"[{table}]\nmetric = 'none'\nconfidence-level = 0.999999\n")
    (tmp_path / "u.toml").rename(tmp_path / "evalstats-plugin.toml")
    settings = {"EVALSTATS_NO_CONFIG": "", "XDG_CONFIG_HOME": str(tmp_path)}

    options = ("--baseline", "release", "--columns", "task=task", "--format", "json")
    done = run("gate", logs / "release.csv", logs / "candidate.csv", *options, folder=tmp_path,
               **settings)  # fmt: skip

    assert (3, 0.95) == (done.returncode, json.loads(done.stdout)["evalstats"]["confidence_level"])
    assert "note: gate takes no defaults from files; not used: metric none" in done.stderr


@pytest.mark.parametrize(
    ("margin", "message"),
    [
        ("1", "a margin of 1 is as much as the range 0 to 1 of t score"),
        ("2", "a margin of 2 is as much as the range"),
        ("100%", "a margin of 100% is the whole range"),
        ("2 points", "the margin must be 0 or more"),
        ("1_0%", "the margin must be 0 or more"),
        ("-1%", "the margin must be 0 or more"),
    ],
)
def test_a_margin_that_everything_keeps_is_refused(
    run: Run, tmp_path: Path, margin: str, message: str
) -> None:
    """Two points of a percentage scale, meant for scores from 0 to 1."""
    logs = _tables(tmp_path)
    done = run("gate", logs, "--columns", "task=task", "--baseline", "release", "--margin", margin)

    assert 2 == done.returncode
    assert message in " ".join(done.stderr.split())
