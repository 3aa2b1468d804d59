"""The registry of metrics: scale, direction and aggregation of those that harnesses come with.

`STOCK` is a table, read from top to bottom: the first line that fits a harness, task and metric is
the one that counts. `with_stock` puts what it says into a measure where the log says nothing;
plugins add lines (hook ``evalstats_metrics``), and ``evalstats-plugin plugins --metrics`` prints
all. A metric that harnesses and tasks put on several scales (ROUGE: of 1 or of 100) has no scale
here: its scores show which (`data.scales`).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from evalstats_plugin.data.measure import SHARE, Measure, Scale

Better = Literal["higher", "lower", "unknown"]

Item = Literal["score", "labels", "texts", "log-likelihood", "probabilities", "none"]
"""What a log holds of each item: its score; a gold and a predicted label; a reference and an
answer; a log-likelihood (with a number of words or bytes); probabilities of choices; or nothing."""


@dataclass(frozen=True, slots=True)
class StockMetric:
    """A line of the registry; names are patterns with ``*`` and ``?``."""

    metric: str
    """Name without lm-eval's filter; several are separated by blanks."""
    scale: Scale | None = None
    """None where it has several, or none that is known."""
    better: Better = "higher"
    aggregation: str = "mean"
    item: Item = "score"
    harness: str = "*"
    task: str = "*"

    def fits(self, metric: str, harness: str, task: str) -> bool:
        """Whether the line is about this metric."""
        if self.harness not in ("*", harness):
            return False
        names = any(_matches(metric, name) for name in self.metric.split())
        return names and _matches(task, self.task)


def _matches(name: str, pattern: str) -> bool:
    # Most differ before the first wildcard, which is faster than a regular expression.
    start = _WILDCARD.split(pattern, maxsplit=1)[0]
    if start == pattern or not name.startswith(start):
        return name == pattern
    return pattern == start + "*" or fnmatchcase(name, pattern)


_WILDCARD = re.compile(r"[*?[]")


PERCENT = Scale(0.0, 100.0, unit="percent")
DIFFERENCE = Scale(-1.0, 1.0, unit="share")
PERCENT_DIFFERENCE = Scale(-100.0, 100.0, unit="percent")
LOG_LIKELIHOOD = Scale(-math.inf, 0.0, unit="nats")
NATS = Scale(0.0, math.inf, unit="nats")
BITS = Scale(0.0, math.inf, unit="bits")
PERPLEXITY = Scale(1.0, math.inf, unit="perplexity")
ERRORS = Scale(0.0, math.inf, unit="errors")
BRIER = Scale(0.0, 2.0, unit="points")
"""Sum of squares over the choices."""

_LM, _INSPECT, _HELM, _LIGHT = "lm_eval", "inspect_ai", "helm", "lighteval"

_M = StockMetric

STOCK: tuple[StockMetric, ...] = (
    # lm-eval: metrics of its own, then of its tasks.
    _M("acc acc_norm acc_bytes acc_mutual_info acc_all", SHARE, harness=_LM),
    _M("em", PERCENT, harness=_LM, task="scrolls_quality"),
    _M("exact_match em", SHARE, harness=_LM),
    _M("mc1 mc2", SHARE, harness=_LM),
    _M("bleu_max rouge?_max rouge??_max", PERCENT, harness=_LM),
    _M("bleu_acc rouge?_acc rouge??_acc bleurt_acc", SHARE, harness=_LM),
    _M("bleu_diff rouge?_diff rouge??_diff", PERCENT_DIFFERENCE, harness=_LM),
    _M("bleurt_max bleurt_diff bleurt", None, harness=_LM),
    _M("word_perplexity byte_perplexity", PERPLEXITY, "lower", "weighted_perplexity",
       "log-likelihood", _LM),
    _M("bits_per_byte", BITS, "lower", "bits_per_byte", "log-likelihood", _LM),
    _M("perplexity", PERPLEXITY, "lower", "perplexity", "log-likelihood", _LM),
    _M("likelihood", None, "higher", "mean", "log-likelihood", _LM),
    _M("likelihood_diff", None, "lower", "mean", "log-likelihood", _LM),
    _M("pct_stereotype pct_male_preferred", SHARE, "unknown", harness=_LM),
    _M("brier_score", BRIER, "lower", "brier_score", "probabilities", _LM),
    _M("mcc", DIFFERENCE, "higher", "matthews_corrcoef", "labels", _LM),
    _M("f1", SHARE, harness=_LM),
    _M("bleu", PERCENT, "higher", "bleu", "texts", _LM),
    _M("chrf", PERCENT, "higher", "chrf", "texts", _LM),
    _M("chrf++", PERCENT, "higher", "chrf++", "texts", _LM),
    _M("ter", ERRORS, "lower", "ter", "texts", _LM),
    _M("eqbench percent_parseable", PERCENT, harness=_LM),
    _M("prompt_level_*_acc inst_level_*_acc", SHARE, harness=_LM),
    _M("pass_at_* pass@* math_verify extraction_rate partial_accuracy ?_accuracy", SHARE,
       harness=_LM),
    _M("numerical_match non_greedy_accuracy consistency_rate options_consistency_rate", SHARE,
       harness=_LM),
    _M("per_option_accuracy_? acc_ambig acc_disambig accuracy_amb accuracy_disamb", SHARE,
       harness=_LM),
    _M("*_bias bias_score_ambig bias_score_disambig amb_bias_score* disamb_bias_score*",
       DIFFERENCE, "unknown", harness=_LM),
    _M("qa_f1_score rouge_score code_sim_score classification_score retrieval_score count_score",
       SHARE, harness=_LM, task="longbench*"),
    _M("verifiable_reward flexible_f1 recall precision", SHARE, harness=_LM),
    _M("bypass", None, "higher", "bypass", "none", _LM),
    # Inspect: scorers, whose grades C, I, P and N are 1, 0, 1/2 and 0; then its metrics.
    _M("match includes pattern choice multiple_choice exact answer math f1", SHARE,
       harness=_INSPECT),
    _M("model_graded_qa model_graded_fact", SHARE, harness=_INSPECT),
    _M("accuracy */accuracy", SHARE, harness=_INSPECT),
    _M("perplexity */perplexity", PERPLEXITY, "lower", "perplexity", "log-likelihood", _INSPECT),
    _M("krippendorff_alpha */krippendorff_alpha", Scale(-math.inf, 1.0), "higher", "other",
       "labels", _INSPECT),
    _M("std var stderr */std */var */stderr */bootstrap_stderr", ERRORS, "unknown", "other", "none",
       _INSPECT),
    # HELM
    _M("exact_match* quasi_exact_match* prefix_exact_match* quasi_prefix_exact_match*", SHARE,
       harness=_HELM),
    _M("*_equivalent* final_number_exact_match* ifeval_*_accuracy* classification_*", SHARE,
       harness=_HELM),
    _M("f1_score* rouge_* bleu_* RR@* NDCG@*", SHARE, harness=_HELM),
    _M("ece_* selective_*", SHARE, "unknown", "other", "none", _HELM),
    _M("bits_per_byte*", BITS, "lower", "other", "log-likelihood", _HELM),
    _M("perplexity*", PERPLEXITY, "lower", "other", "log-likelihood", _HELM),
    _M("logprob*", LOG_LIKELIHOOD, "higher", "mean", "log-likelihood", _HELM),
    _M("wildbench_score* *_judge_score*", None, harness=_HELM),
    # lighteval
    _M("em qem pem pqem loglikelihood_acc* acc acc_norm* mcq_* exact_match*", SHARE,
       harness=_LIGHT),
    _M("extractive_match maj@* pass@* avg@* g-pass@* mG-Pass@* prompt_level_*_acc", SHARE,
       harness=_LIGHT),
    _M("f1 f1_score* loglikelihood_f1 recall@* mrr mc1 mc2 truthfulqa_mc?", SHARE,
       harness=_LIGHT),
    _M("rouge1 rouge2 rougeL rougeLsum rouge_t5*", None, harness=_LIGHT),
    _M("bleu bleu_1 bleu_4", None, "higher", "mean", "texts", _LIGHT),
    _M("chrf chrf++", PERCENT, "higher", "chrf", "texts", _LIGHT),
    _M("ter", ERRORS, "lower", "ter", "texts", _LIGHT),
    _M("word_perplexity byte_perplexity ppl", PERPLEXITY, "lower", "weighted_perplexity",
       "log-likelihood", _LIGHT),
    _M("bits_per_byte", BITS, "lower", "bits_per_byte", "log-likelihood", _LIGHT),
    _M("target_perplexity", PERPLEXITY, "lower", "perplexity", "log-likelihood", _LIGHT),
    _M("mcc", DIFFERENCE, "higher", "mcc", "labels", _LIGHT),
    # DeepEval: shares of an answer's opinions that are wrong, and pass below the threshold.
    _M("Bias,score Hallucination,score Misuse,score Toxicity,score", SHARE, "lower",
       harness="deepeval"),
    # Names that mean the same in whatever harness or table.
    _M("acc accuracy acc_norm exact_match em correct is_correct passed pass resolved success "
       "win_rate", SHARE),
    _M("pass@* pass^* maj@*", SHARE),
    _M("mcc matthews_corrcoef", DIFFERENCE, "higher", "mcc", "labels"),
    _M("brier brier_score", None, "lower"),
    _M("loss nll cross_entropy", NATS, "lower"),
    _M("perplexity ppl word_perplexity byte_perplexity", PERPLEXITY, "lower"),
    _M("bits_per_byte bpb", BITS, "lower"),
    _M("logprob log_likelihood loglikelihood", LOG_LIKELIHOOD),
    _M("wer cer ter error_rate mae mse rmse", ERRORS, "lower"),
    _M("latency* duration* runtime* seconds* cost* n_tokens* num_tokens* *_tokens",
       Scale(0.0, math.inf), "unknown"),
)  # fmt: skip
"""What is known of metrics by name; a log's own word and the user's go first."""


@lru_cache(maxsize=4096)
def stock_metric(
    metric: str, harness: str, task: str, more: tuple[StockMetric, ...] = ()
) -> StockMetric | None:
    """Return the line about a metric, those of plugins first; None if there is none.

    >>> stock_metric("rouge1_max", "lm_eval", "truthfulqa_gen").scale.bounds
    (0.0, 100.0)
    """
    return next((m for m in (*more, *STOCK) if m.fits(metric, harness, task)), None)


@lru_cache(maxsize=1024)
def with_stock(measure: Measure, harness: str, more: tuple[StockMetric, ...] = ()) -> Measure:
    """Return a measure with what the registry knows and the log does not say.

    The registry's scale is that of one item's score, so it is of a mean alone: where the log
    aggregates otherwise, or the registry's metric is no mean, only the direction is taken.
    """
    if measure.scale is not None and measure.higher_is_better is not None:
        return measure
    metric = measure.metric.partition(",")[0]
    stock = stock_metric(metric, harness, measure.task, more)
    stock = stock or stock_metric(measure.metric, harness, measure.task, more)
    if stock is None:
        return measure
    if measure.higher_is_better is None and stock.better != "unknown":
        higher = stock.better == "higher"
        measure = replace(measure, higher_is_better=higher, direction_from="registry")
    is_mean = measure.aggregation == "mean" and stock.aggregation == "mean"
    if measure.scale is None and stock.scale is not None and is_mean:
        measure = measure.on(stock.scale, "registry")
    return measure
