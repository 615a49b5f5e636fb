"""What attacks share."""

from tests.helpers.stores import session

__all__ = ["session"]
