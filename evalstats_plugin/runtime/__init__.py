"""Infrastructure for every package: files, worker processes, devices, lazy loading.

* `files`: JSON, signed Parquet, files that are opened once;  `writing`: atomic writes
* `workers`: parallel maps (processes, Dask) and progress reports
* `torch`: devices, Cholesky factors, Pólya–Gamma draws
* `untrusted`: text from logs, made harmless for terminals, tables, documents and paths
* `lazy`: names that load on first use; a clear error where torch is missing
"""

from __future__ import annotations

from dataclasses import dataclass

VERSION = "0.3.0"


@dataclass(frozen=True, kw_only=True)
class ChainLength:
    """Number of Markov chains and of their draws."""

    chains: int = 4
    draws: int = 1000
    """Draws kept of each chain."""
    warm_up: int = 300
    """Draws discarded of each chain, during which samplers adapt."""
