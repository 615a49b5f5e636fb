"""In-memory sessions and saved runs."""
