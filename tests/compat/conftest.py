"""What every test of programs written for the SDK needs."""

from tests.helpers.sdk_sessions import close_the_sdks_sessions

__all__ = ["close_the_sdks_sessions"]
