"""Sessions in a database that SQLAlchemy reaches."""
