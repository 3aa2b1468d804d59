"""What every package stands on: files, workers, devices, lazy loading. Knows no evaluations.

* `files`: atomic writes, JSON, signed Parquet
* `workers`: several processes, Dask, Ray, progress
* `torch`: devices, Pólya–Gamma draws, Cholesky factors
* `lazy`: names that load on first use; what needs torch says so
"""

VERSION = "0.1.0"
