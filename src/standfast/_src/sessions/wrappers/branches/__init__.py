"""Branches, turns and what they cost: the SDK's `AdvancedSQLiteSession`, on top of SQLite sessions."""
