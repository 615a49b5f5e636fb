"""A loopback provider and the real `openai` client, for the tests of this folder that speak to one."""

from tests.helpers.loopback_fixtures import client, server

__all__ = ["client", "server"]
