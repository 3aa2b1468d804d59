"""Estimators of item response models; tensors in, tensors out (torch)."""
