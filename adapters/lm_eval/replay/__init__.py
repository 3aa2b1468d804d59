"""Logged answers run through lm-eval once more: rescoring."""
