"""Sessions and runs in an SQLite file."""
