"""The checks, by what they look at. Importing this package registers them all."""

from importlib import import_module

for _name in (
    "batches",
    "cancellation",
    "corruption",
    "crashes",
    "exactly_once",
    "forks",
    "generated",
    "generations",
    "leases",
    "lifetime",
    "looking",
    "peers",
    "reading",
    "removing",
    "saved_runs",
    "steps",
    "times",
    "values",
    "whole_stores",
):
    import_module(f"{__name__}.{_name}")
