"""What Inspect loads in every process of its own: our hook, task and metrics, nothing heavy.

Inspect names what it finds here after the import package, ``evalstats_plugin/beta_interval``, in
editable installs and in wheels alike.
"""
