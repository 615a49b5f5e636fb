"""The edge: one folder or file for each kind of store."""
