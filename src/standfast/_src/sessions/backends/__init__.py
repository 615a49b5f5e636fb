"""Adapters to databases and services, one folder or file for each kind of store."""
