"""A loopback provider and the real `openai` client for every test of this folder."""

from tests.helpers.loopback_fixtures import client, server

__all__ = ["client", "server"]
