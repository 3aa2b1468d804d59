"""Item response models: how able is each model, how hard is each item?

Tensors in, tensors out; this folder and its siblings `ranking/` and `hierarchical/` are the only
importers of torch. A model fits ``P(right) = c + (1 - c) / (1 + exp(-a (θ - b)))`` with ability θ,
difficulty b, discrimination a of either sign and guessing c.
"""
