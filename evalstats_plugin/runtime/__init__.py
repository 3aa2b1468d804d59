"""Infrastructure for every package: files, worker processes, devices, lazy loading.

* `files`: atomic writes, JSON, signed Parquet;  `opened`: files that are opened once
* `workers`: parallel maps (processes, Dask) and progress reports
* `torch`: devices, Cholesky factors, Pólya–Gamma draws
* `untrusted`: text from logs, made harmless for terminals, tables, documents and paths
* `lazy`: names that load on first use; a clear error where torch is missing
"""

VERSION = "0.2.0"
