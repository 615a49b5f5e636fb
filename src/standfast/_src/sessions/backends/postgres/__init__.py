"""Sessions in PostgreSQL."""
