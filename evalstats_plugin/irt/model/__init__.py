"""Item response models: curves, data, the fitted model and its file, masks, simulation."""
