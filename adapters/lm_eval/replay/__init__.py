"""Rescoring: logged responses of lm-eval scored again, without a model."""
