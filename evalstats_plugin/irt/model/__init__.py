"""Item response models: curves, data, the fit and its file, masks, simulation."""
