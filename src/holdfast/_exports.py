"""Every public name, and where it lives: the one table that `import holdfast` resolves names from.

To make something public, write it with a docstring, add its name under its module in `PUBLIC`, and run
`./dev names`: that writes the `__init__` modules, the alias modules and `docs/reference/names.md`. Nothing here
imports anything, so `import holdfast` costs next to nothing and brings in no package that the program does not use.
"""

from __future__ import annotations

PUBLIC: dict[str, tuple[str, ...]] = {
    "errors": (
        "HoldfastError",
        "AgentsException",
        "CallerError",
        "ModelError",
        "StoreError",
        "InvalidLimitError",
        "InvalidSessionIdError",
        "InvalidNameError",
        "ItemNotStorableError",
        "SessionClosedError",
        "WrongLoopError",
        "AppendGapError",
        "NotFoundError",
        "AbilityMissingError",
        "SessionConflictError",
        "SessionBusyError",
        "LeaseLostError",
        "StoreTimeoutError",
        "OutcomeUnknownError",
        "StoreFullError",
        "StoreUnavailableError",
        "StoreReadOnlyError",
        "NotADatabaseError",
        "SchemaTooNewError",
        "CorruptRecordError",
    ),
    "sessions.protocol": (
        "TResponseInputItem",
        "Session",
        "SessionABC",
        "SessionSettings",
        "Ability",
        "abilities",
        "Head",
        "Position",
        "Generation",
        "Page",
        "SessionInfo",
        "SessionPage",
        "CorruptRecord",
        "Lease",
        "CanAppend",
        "CanReplace",
        "CanRewind",
        "CanFork",
        "CanLease",
        "CanPage",
        "CanList",
        "CanReportCorrupt",
        "HasTimes",
    ),
    "sessions.memory": ("InMemorySession", "InMemoryStore"),
}
"""Module (below `holdfast`) to the names it gives to `holdfast`."""

PACKAGES: tuple[str, ...] = ("sessions",)
"""Packages that offer the public names of their own modules too: `from holdfast.sessions import Session`."""

ALIASES: dict[str, tuple[str, ...]] = {
    "memory": ("Session", "SessionABC", "SessionSettings"),
    "memory.session": ("Session", "SessionABC"),
    "memory.session_settings": ("SessionSettings",),
    "memory.sqlite_session": (),
    "memory.openai_conversations_session": (),
    "memory.openai_responses_compaction_session": (),
    "memory.util": (),
    "extensions": (),
    "extensions.memory": (),
    "extensions.memory.advanced_sqlite_session": (),
    "extensions.memory.async_sqlite_session": (),
    "extensions.memory.dapr_session": (),
    "extensions.memory.encrypt_session": (),
    "extensions.memory.mongodb_session": (),
    "extensions.memory.redis_session": (),
    "extensions.memory.sqlalchemy_session": (),
}
"""Module paths that the OpenAI Agents SDK documents, to the public names found there. Programs that import them
keep working when `agents` becomes `holdfast`. They are real modules, written by `./dev names`, so that type checkers
and editors see them."""

_MEANWHILE = "Meanwhile use SQLiteSession, or any class with the methods of holdfast.Session."

PLANNED: dict[str, str] = {
    "AdvancedSQLiteSession": _MEANWHILE,
    "AsyncSQLiteSession": _MEANWHILE,
    "DaprSession": _MEANWHILE,
    "EncryptedSession": _MEANWHILE,
    "MongoDBSession": _MEANWHILE,
    "OpenAIConversationsSession": _MEANWHILE,
    "OpenAIResponsesCompactionSession": _MEANWHILE,
    "RedisSession": _MEANWHILE,
    "SQLAlchemySession": _MEANWHILE,
}
"""Names that the SDK has and holdfast does not have yet, with what to use meanwhile: asking for one says so, instead
of looking like a typing error. A name leaves this table when it enters `PUBLIC`."""

EXTRAS: dict[str, str] = {
    "openai": "openai",
    "starlette": "testing",
    "uvicorn": "testing",
    "hypothesis": "conformance",
    "pytest": "conformance",
    "pytest_asyncio": "conformance",
}
"""Third-party package to the extra of holdfast that installs it."""


def homes(module: str) -> dict[str, str]:
    """The names that lazy module `module` offers, each with the module it lives in (both below `holdfast`)."""
    everything = {name: home for home, names in PUBLIC.items() for name in names}
    if module == "":
        return everything
    if module in PACKAGES:
        return {name: home for name, home in everything.items() if home.startswith(f"{module}.")}
    return {name: everything[name] for name in ALIASES[module]}
