"""Infrastructure for every package: files, worker processes, devices, lazy loading.

* `files`: atomic writes, JSON, signed Parquet
* `workers`: parallel maps (processes, Dask, Ray) and progress reports
* `torch`: devices, Cholesky factors, Pólya–Gamma draws
* `lazy`: names that load on first use; a clear error where torch is missing
"""

VERSION = "0.1.0"
