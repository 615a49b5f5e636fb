"""Branches, turns and their costs: the SDK's `AdvancedSQLiteSession`, on top of SQLite sessions."""
