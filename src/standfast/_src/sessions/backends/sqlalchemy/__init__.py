"""Sessions in a database supported by SQLAlchemy."""
