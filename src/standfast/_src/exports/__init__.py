"""Lookup of public names: their table, and modules that load them at first use."""
