"""Numbers of other programs for designs drawn at random: ``fixtures/golden/judges.json``.

``python tests/generate/judges/generate.py``, with statsmodels installed by pip, and R with
clubSandwich, psychotools and BradleyTerry2 by apt-get (r-cran-clubsandwich and so on). No line of
the package is used.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import statsmodels
from statsmodels.stats import contingency_tables, multitest, power, proportion

FOLDER = Path(__file__).parents[3] / "fixtures" / "golden"
SEED = 20261126
DESIGNS = 8
LEVEL = 0.9


def main() -> None:
    """Draw the designs, ask both judges, and write what they say."""
    rng = np.random.default_rng(SEED)
    cases = [*_by_statsmodels(rng), *_by_r(rng)]
    versions = {"statsmodels": statsmodels.__version__, "scipy": scipy.__version__}
    versions |= cases.pop()
    about = "Numbers of other programs for designs drawn at random, by tests/generate/judges."
    whole = {"about": about, "seed": SEED, "versions": versions, "cases": cases}
    (FOLDER / "judges.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(cases)} cases\n")


def _case(judge: str, what: str, design: dict[str, Any], **expected: Any) -> dict[str, Any]:
    return {"judge": judge, "what": what, "design": design, "expected": expected}


def _by_statsmodels(rng: np.random.Generator) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = []
    for _ in range(2 * DESIGNS):
        n_a, n_b = (int(n) for n in rng.integers(5, 200, 2))
        right_a, right_b = (int(rng.binomial(n, rng.uniform(0.1, 0.9))) for n in (n_a, n_b))
        two = {"right_a": right_a, "n_a": n_a, "right_b": right_b, "n_b": n_b}
        two = {name: max(value, 1) for name, value in two.items()}
        limits = {
            name: found
            for name, compare, method in (
                ("newcombe", "diff", "newcomb"),
                ("mn_ratio", "ratio", "score"),
                ("mn_odds", "odds-ratio", "score"),
            )
            # Its score limits of the difference are none: its restricted estimate is off.
            if (found := _limits_of_two(two, compare, method))
        }
        cases.append(_case("statsmodels", "two proportions", two, **_plain(limits)))
        one = {
            name: proportion.proportion_confint(two["right_a"], n_a, 1 - LEVEL, method)
            for name, method in (
                ("wilson", "wilson"), ("agresti_coull", "agresti_coull"),
                ("clopper_pearson", "beta"), ("jeffreys", "jeffreys"), ("wald", "normal"),
            )
        }  # fmt: skip
        cases.append(
            _case(
                "statsmodels", "one proportion", {"right": two["right_a"], "n": n_a}, **_plain(one)
            )
        )
        only = [int(x) for x in rng.integers(0, 30, 2)]
        cases.append(
            _case(
                "statsmodels",
                "McNemar",
                {"only_a": only[0], "only_b": only[1]},
                p_value=float(
                    contingency_tables.mcnemar([[3, only[0]], [only[1], 4]], exact=True).pvalue
                ),
            )
        )
    for _ in range(DESIGNS):
        # Drawn for a test that is gone, so that later designs stay as they are.
        rng.integers(1, 25, (6, 2, 2))
        p = rng.uniform(0, 1, int(rng.integers(2, 12))) ** 3
        adjusted = {
            name: multitest.multipletests(p, method=method)[1].tolist()
            for name, method in (("holm", "holm"), ("benjamini_hochberg", "fdr_bh"))
        }
        cases.append(_case("statsmodels", "p-values", {"p": p.tolist()}, **adjusted))
        effect, n = float(rng.uniform(0.05, 1)), int(rng.integers(4, 300))
        of_t = power.TTestPower()
        cases.append(
            _case(
                "statsmodels",
                "power of t",
                {"effect": effect, "n": n, "alpha": 0.05},
                power=float(of_t.power(effect, n, 0.05)),
            )
        )
    return cases


def _by_r(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Cases, and at their end the versions."""
    designs: dict[str, tuple[str, dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def write(case: str, what: str, text: str, **design: Any) -> None:
            (folder / f"{case}.csv").write_text(text, encoding="utf-8")
            designs[case] = what, design

        for k in range(DESIGNS):
            sizes = rng.integers(1, 12, int(rng.integers(3, 15)))
            cluster = np.repeat(np.arange(len(sizes)), sizes)
            score = (rng.normal(size=len(sizes))[cluster] + rng.normal(size=len(cluster))).round(3)
            rows = "".join(f"{s},c{c}\n" for s, c in zip(score, cluster, strict=True))
            write(f"clusters_{k}", "clusters", f"score,cluster\n{rows}", score=score.tolist(),
                  cluster=cluster.tolist())  # fmt: skip
            rng.integers(1, 25, (5, 2, 2))
            a, b = (
                rng.normal(mean, rng.uniform(0.5, 3), int(rng.integers(3, 40))).round(3)
                for mean in (0, 0.5)
            )
            rows = "".join(f"{s},{m}\n" for m, each in (("a", a), ("b", b)) for s in each)
            write(f"welch_{k}", "Welch", f"score,model\n{rows}", a=a.tolist(), b=b.tolist())
            p = (rng.uniform(0, 1, int(rng.integers(2, 12))) ** 3).round(6)
            write(f"p_values_{k}", "p-values", ",".join(map(str, p)), p=p.tolist())
        for k in range(3):
            theta, b = rng.normal(size=60), rng.normal(size=6)
            right = (rng.random((60, 6)) < 1 / (1 + np.exp(b - theta[:, None]))).astype(int)
            rows = "\n".join(",".join(map(str, row)) for row in right)
            write(f"rasch_{k}", "Rasch", f"a,b,c,d,e,f\n{rows}\n", right=right.tolist())
            rating = rng.normal(size=5)
            wins = [
                (i, j, int(w), 12 - int(w))
                for i in range(5) for j in range(i + 1, 5)
                for w in [rng.binomial(12, 1 / (1 + np.exp(rating[j] - rating[i])))]
            ]  # fmt: skip
            rows = "\n".join(f"p{i},p{j},{w},{v}" for i, j, w, v in wins)
            write(f"contests_{k}", "contests", f"first,second,won,lost\n{rows}\n", wins=wins)
        subprocess.run(["Rscript", Path(__file__).with_name("judges.R"), folder], check=True)
        answers: dict[str, dict[str, Any]] = {}
        versions: dict[str, str] = {}
        for line in (folder / "answers.txt").read_text().splitlines():
            case, what, values = line.split("\t")
            if case == "version":
                versions[what] = values
            else:
                answers.setdefault(case, {})[what] = [float(x) for x in values.split()]
    versions["R"] = str(answers.pop("versions")["R"][0])
    for case in answers:
        if case.startswith("power_"):
            _, n, effect = case.split("_")
            designs[case] = "power of t", {"n": int(n), "effect": float(effect), "alpha": 0.05}
    cases = [
        _case("R", designs[case][0], designs[case][1],
              **{k: v[0] if len(v) == 1 else v for k, v in answers[case].items()})
        for case in sorted(answers)
    ]  # fmt: skip
    return [*cases, versions]


def _limits_of_two(two: dict[str, int], compare: str, method: str) -> tuple[float, float] | None:
    """Limits of b against a; None where statsmodels finds no start for its search."""
    try:
        return proportion.confint_proportions_2indep(
            two["right_b"], two["n_b"], two["right_a"], two["n_a"],
            compare=compare, method=method, alpha=1 - LEVEL,
        )  # fmt: skip
    except ValueError:
        return None


def _plain(limits: dict[str, Any]) -> dict[str, list[float]]:
    return {name: [float(x) for x in pair] for name, pair in limits.items()}


if __name__ == "__main__":
    main()
