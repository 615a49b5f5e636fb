"""What a Redis server refuses is an error with a remedy, in whatever words its release says it."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from standfast._src.sessions.backends.redis.redis_errors import refused_error

NOT_ALLOWED, RENAMED = "Let this user run", "has renamed this command"


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("ACL failure in script: User u has no permissions to run the 'set' command", NOT_ALLOWED),
        (
            "The user executing the script can't run this command or subcommand script: bd6f, on @user_script:1.",
            NOT_ALLOWED,
        ),
        ("The user executing the script can't access at least one of the keys", NOT_ALLOWED),
        ("Unknown command called from script script: on @user_script:1.", RENAMED),
        ("Unknown Redis command called from script script: ffce, on @user_script:1.", RENAMED),
        ("unknown command 'EVALSHA', with args beginning with: '0123' '1' 'OOM'", RENAMED),
        ("WRONGTYPE Operation against a key holding the wrong kind of value script: c0f4", "key_prefix"),
    ],
)
def test_a_refusal_has_its_remedy_in_the_words_of_redis_7_0_and_of_valkey(said: str, remedy: str) -> None:
    error = refused_error(ResponseError(said))
    assert remedy in error.remedy
    assert error.is_lasting  # asked again it would be refused again
