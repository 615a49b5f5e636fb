"""Commands suggested by the terminal and the inspector, for pasting into a shell: every word is quoted."""

from __future__ import annotations

from shlex import quote


def command_line(command: str, *words: str, options: str = "") -> str:
    """Write a command that a person may paste into a shell: every word is quoted as data.

    Ids come from models and from users: one that is not quoted is shell code. `options` is the only text that is not.
    """
    quoted = " ".join(quote(word) for word in words)
    # A word that begins with a dash would be an option of the command; behind `--` none is.
    given = (options, "--", quoted) if any(word.startswith("-") for word in words) else (quoted, options)
    return " ".join(("standfast", command, *(part for part in given if part)))


def store_command(command: str, store: str, *words: str, options: str = "") -> str:
    """Write a command about a store, with the password left out of the store's URL."""
    from standfast._kits.operators.store_url import without_password

    return command_line(command, without_password(store), *words, options=options)


def undo_command(store: str, session_id: str, generation: str) -> str:
    """Write the command that restores a generation of a session."""
    return store_command("sessions undo", store, session_id, options=f"--to={quote(generation)}")


def resume_command(store: str, run_id: str) -> str:
    """Write the command to continue a run of a store."""
    return store_command("runs resume", store, run_id, options="--agent MODULE:NAME")
