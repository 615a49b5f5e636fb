"""Every error raised by standfast: a fact, then a remedy.

Errors are named for the state of the world and grouped by who must act: the caller, the model's side, or the
store's side. Where the OpenAI Agents SDK raises a built-in (TypeError, ValueError, RuntimeError), ours inherits it
too, so that an `except` written for the SDK keeps working.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Protocol, TypedDict, Unpack, get_type_hints


class StandfastError(Exception):
    """Base of every error raised by standfast. `what` happened, and the `remedy`."""

    run_data: Any = None
    """Progress of the run at its failure (`RunErrorDetails`), if there was a run."""

    def __init__(self, what: str = "", remedy: str = "", *, message: str = "") -> None:
        what = what or message  # the SDK's errors take their text under this name
        super().__init__(what, remedy)
        self.what, self.remedy = what, remedy

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would call the class with `args`, which fits no subclass that takes other arguments. What a run had
        # done stays behind: it holds agents and functions, and an error must be able to leave its process.
        kept = {name: value for name, value in self.__dict__.items() if name != "run_data"}
        return _rebuilt, (type(self), self.args, kept)

    @property
    def message(self) -> str:
        """The whole text, under the name the SDK's errors use."""
        return str(self)

    def __str__(self) -> str:
        ending = "" if self.what.endswith((".", "!", "?")) else "."
        return f"{self.what}{ending} {self.remedy}" if self.remedy else self.what


def _rebuilt(kind: type[StandfastError], args: tuple[Any, ...], facts: dict[str, Any]) -> StandfastError:
    """Restore a pickled error without calling its class."""
    error = kind.__new__(kind, *args)
    error.args = args  # a TimeoutError is an OSError, and that takes them only when it is called
    error.__dict__.update(facts)
    return error


AgentsException = StandfastError
"""The name the OpenAI Agents SDK gives the base of its errors."""


class CallerError(StandfastError):
    """The calling program must change something."""


class ModelError(StandfastError):
    """The model, or its provider, did something from which a run cannot continue."""


class StoreError(StandfastError):
    """A session store or run store failed, or cannot tell whether a request succeeded."""

    is_lasting: bool = False
    """True if a retry cannot help before an operator acts: a wrong password, a newer layout."""


# --- sessions: what the caller must change ---------------------------------------------------------------------------


class InvalidLimitError(CallerError, ValueError):
    """A limit that is not a whole number of zero or more (A2)."""


class InvalidSessionIdError(CallerError, ValueError):
    """A session id other than a non-empty string storable by this store (A18)."""


class InvalidNameError(CallerError, ValueError):
    """A configured table name that is not an identifier, or two equal names (A15)."""


class ItemNotStorableError(CallerError, TypeError):
    """An item that is not a JSON object, or would not read back equal (A17). Nothing of its batch was stored."""


class SessionClosedError(CallerError, RuntimeError):
    """Use after close (A19)."""

    def __init__(
        self, what: str = "the session was closed", remedy: str = "Open a new session object for this id."
    ) -> None:
        super().__init__(what, remedy)


class WrongLoopError(CallerError, RuntimeError):
    """A loop-bound client given by the caller is used from another event loop (A22)."""


class AppendGapError(CallerError, ValueError):
    """An append that starts behind its writer's last item (B1). Nothing was written."""


class UnknownSchemeError(CallerError, ValueError):
    """A store URL with an unregistered scheme."""


class UndoFileError(CallerError, ValueError):
    """An undo file cannot be written, or a given file is not a usable undo file."""


class NotFoundError(CallerError, LookupError):
    """A generation, position or run missing from this store."""


class ExportFileError(CallerError, ValueError):
    """A file is not an exported session, was cut or changed, or exists at the target of an export."""


class AbilityMissingError(CallerError, TypeError):
    """Use of an ability that the session does not declare (part B)."""


class SealKeyError(CallerError):
    """A key of an encrypted session is missing, or differs from the key of the stored data; nothing was changed."""


class SessionErasedError(CallerError):
    """An encrypted session whose key was destroyed on purpose. Its content is unreadable for ever."""


class ReadBudgetError(CallerError, RuntimeError):
    """A history holds more records than one read was allowed to take (`max_scan_items`)."""


# --- sessions: what the store's side must change ---------------------------------------------------------------------


class SessionConflictError(StoreError):
    """The session is not what the caller expected; nothing was written (B1, B2, B3, B5)."""

    def __init__(self, what: str = "", remedy: str = "", *, expected: object = None, actual: object = None) -> None:
        super().__init__(what, remedy)
        # Whatever was compared: heads, which are known only above this layer.
        self.expected: Any = expected
        self.actual: Any = actual


class SessionBusyError(StoreError):
    """Another holder kept the session's lease for longer than the wait (B7, C13)."""

    def __init__(
        self, what: str, remedy: str = "", *, holder: str | None = None, since: datetime | None = None
    ) -> None:
        super().__init__(what, remedy)
        self.holder = holder
        """Holder of the lease, for people: host, process and run; None if unknown."""
        self.since = since
        """Since when, by the store's clock; None if that is not known."""


class LeaseLostError(StoreError):
    """A write with a lease that another holder has taken over; nothing was written (B7)."""


class StoreTimeoutError(StoreError, TimeoutError):
    """The deadline passed before the request left: nothing was done and nothing will be (A13)."""


class OutcomeUnknownError(StoreError):
    """The acknowledgement of a request was lost: the request took effect whole or not at all, and a repeat is safe
    (A6).
    """


class StoreFullError(StoreError):
    """The store has no room. Earlier history is as it was (A6)."""


class StoreUnavailableError(StoreError):
    """The store cannot be opened or reached."""


class StoreReadOnlyError(StoreUnavailableError):
    """The store can be read but not written."""

    is_lasting = True


class NotADatabaseError(StoreUnavailableError):
    """The file is not a database; it was left unchanged."""

    is_lasting = True


class SchemaTooNewError(StoreUnavailableError):
    """A newer standfast has changed this store's layout; the store was left unchanged."""

    is_lasting = True


class StoreNotFoundError(StoreUnavailableError, FileNotFoundError):
    """The store does not exist, and a read-only request does not create one."""

    is_lasting = True


class CorruptRecordError(StoreError):
    """A corrupt stored record prevents the operation; nothing was changed (A14, B5)."""


class SealBrokenError(StoreError):
    """A record of an encrypted session that must be known was altered, or is not sealed; nothing was changed."""

    is_lasting = True


class PartialBatchError(StoreError):
    """Part of a failed append is stored in a foreign session and could not be removed (C7)."""

    def __init__(self, what: str = "", remedy: str = "", *, removed: Iterable[dict[str, Any]] = ()) -> None:
        super().__init__(what, remedy)
        self.removed: list[dict[str, Any]] = list(removed)
        """Items that were popped and could not be put back, in order."""


class CompactionError(StoreError):
    """A compaction did not happen; the history is as it was, unless `history` says otherwise (C9)."""

    history: list[dict[str, Any]] | None = None
    """The whole history, where a plain session failed in the middle of being replaced and could not be restored."""


class CompactionRefusedError(CompactionError, ValueError):
    """A compaction with unusable settings or an unusable result; nothing was replaced (C9, D8)."""


# --- runs ------------------------------------------------------------------------------------------------------------


class UserError(CallerError):
    """Use of standfast in a way that cannot work."""


class SettingTypeError(CallerError, TypeError):
    """An unknown setting, or settings of an unreadable type."""


class InvalidSettingError(CallerError, ValueError):
    """A setting without a possible meaning: a timeout of zero, a negative delay, an image without a source."""


class MaxTurnsExceeded(CallerError):
    """Use of all `max_turns` of a run without a final output."""


class UsageLimitExceeded(CallerError):
    """Stop of a run before a request or a call beyond its limit (F9).

    The run continues under a higher limit: `Runner.resume`, or `Runner.run(agent, error.run_state, ...)`.
    """

    def __init__(self, what: str, remedy: str = "", *, limit: str = "") -> None:
        super().__init__(what, remedy)
        self.limit = limit
        """The name of the limit: a field of `UsageLimits`, or the key of a budget."""


class BudgetExceeded(UsageLimitExceeded):
    """Stop of a run before a request beyond a budget, shared by all processes on its store (F10).

    The run continues when the budget has more: a new day, or a higher limit.
    """


class ModelBehaviorError(ModelError):
    """The model answered with something unusable: an unknown tool, a reused call id, a reply that does not parse."""


class ModelReplyError(ModelBehaviorError):
    """An incomplete or malformed reply: `status` is "failed", "incomplete", "cut" or "malformed".

    Known ids are kept, so that a caller can ask the server for the outcome. `output_begun`: a part of the reply was
    already passed on.
    """

    def __init__(
        self,
        what: str = "",
        remedy: str = "",
        *,
        status: str = "failed",
        response_id: str | None = None,
        request_id: str | None = None,
        code: str | None = None,
        output_begun: bool = False,
    ) -> None:
        super().__init__(what, remedy)
        self.status, self.code, self.output_begun = status, code, output_begun
        self.response_id, self.request_id = response_id, request_id


class _ReplyFacts(TypedDict, total=False):
    """Keyword arguments of a `ModelReplyError`."""

    response_id: str | None
    request_id: str | None
    code: str | None
    output_begun: bool


class StreamCutError(ModelReplyError):
    """End of a model's stream before the reply was complete."""

    def __init__(self, what: str = "", remedy: str = "", *, status: str = "cut", **facts: Unpack[_ReplyFacts]) -> None:
        super().__init__(what, remedy, status=status, **facts)


class ResponseFailedError(ModelReplyError):
    """End of a reply as failed or incomplete by the provider: `status`, `code`, and `response_id` if known."""


class ModelRefusalError(ModelError):
    """Refusal by the model without a `model_refusal` handler to take over."""

    def __init__(self, refusal: str) -> None:
        super().__init__(f"the model refused: {refusal}", "Handle it with error_handlers={'model_refusal': ...}.")
        self.refusal = refusal


class ModelTimeoutError(ModelError, TimeoutError):
    """Timeout of an attempt of a model call after `ModelSettings.timeout`."""

    def __init__(self, timeout_seconds: float) -> None:
        super().__init__(
            f"the model did not answer within {timeout_seconds} s", "Raise ModelSettings.timeout or set a retry policy."
        )
        self.timeout_seconds = timeout_seconds


class ToolTimeoutError(StandfastError, TimeoutError):
    """A tool with `timeout_behavior='raise_exception'` took too long."""

    def __init__(self, tool_name: str, timeout_seconds: float) -> None:
        super().__init__(
            f"tool {tool_name!r} did not return within {timeout_seconds} s",
            "Raise its timeout, or let the model see it with timeout_behavior='error_as_result'.",
        )
        self.tool_name, self.timeout_seconds = tool_name, timeout_seconds


class MCPToolCancellationError(StandfastError):
    """An MCP tool call was cancelled from inside."""


class MCPServerError(UserError):
    """An MCP server cannot be reached, was lost, took too long, or does not speak the protocol."""

    outcome_unknown = False
    """True if a call may have taken effect although no answer to it came."""


class _NamedGuardrail(Protocol):
    """Guardrail as seen by an error; the real class belongs to a higher layer."""

    def get_name(self) -> str: ...


class _GuardrailResult(Protocol):
    """Verdict of a guardrail: `InputGuardrailResult` or `OutputGuardrailResult`."""

    @property
    def guardrail(self) -> _NamedGuardrail: ...


class GuardrailTripped(StandfastError):
    """Base of the four tripwire errors."""


class InputGuardrailTripwireTriggered(GuardrailTripped):
    """An input guardrail tripped: the input is kept, nothing else of the run is (C6)."""

    def __init__(self, guardrail_result: _GuardrailResult) -> None:
        name = guardrail_result.guardrail.get_name()
        super().__init__(f"input guardrail {name!r} tripped", "Look at guardrail_result.output.output_info.")
        self.guardrail_result: Any = guardrail_result  # programs look into its `output`


class OutputGuardrailTripwireTriggered(GuardrailTripped):
    """An output guardrail tripped: the final message was dropped, earlier turns are kept (C6)."""

    def __init__(self, guardrail_result: _GuardrailResult) -> None:
        name = guardrail_result.guardrail.get_name()
        super().__init__(f"output guardrail {name!r} tripped", "Look at guardrail_result.output.output_info.")
        self.guardrail_result: Any = guardrail_result  # programs look into its `output`


class ToolInputGuardrailTripwireTriggered(GuardrailTripped):
    """A tool input guardrail asked to end the run."""

    def __init__(self, guardrail: _NamedGuardrail, output: object) -> None:
        super().__init__(f"tool input guardrail {guardrail.get_name()!r} tripped", "Look at output.output_info.")
        self.guardrail: Any = guardrail
        self.output: Any = output


class ToolOutputGuardrailTripwireTriggered(GuardrailTripped):
    """A tool output guardrail asked to end the run."""

    def __init__(self, guardrail: _NamedGuardrail, output: object) -> None:
        super().__init__(f"tool output guardrail {guardrail.get_name()!r} tripped", "Look at output.output_info.")
        self.guardrail: Any = guardrail
        self.output: Any = output


class UnfinishedRunError(CallerError):
    """Another run of the conversation has not ended, and must be decided, resumed or given up first (C15)."""


class RunClaimedError(StoreError):
    """A saved run was already taken by another resumer; nothing ran (consume once, C12)."""

    state_is_behind = False
    """True if the session holds more of the run than the state to be resumed knows."""


class RunHandedOverError(StandfastError):
    """This worker shuts down: begun work has ended, the run is saved, and another worker continues it."""

    def __init__(self, what: str, remedy: str = "", *, run_id: str | None = None) -> None:
        super().__init__(what, remedy)
        self.run_id = run_id
        """The run that another worker is to go on with."""


class RunStateError(UserError):
    """An unreadable saved run: truncated, edited, foreign, or of a version unknown to this release (D9)."""


class RunCancelledError(RunStateError):
    """An operator cancelled the run under this worker; the open turn is stored whole (F7)."""

    def __init__(self, what: str, remedy: str = "", *, by: str | None = None) -> None:
        super().__init__(what, remedy)
        self.by = by
        """Name of the operator."""


class OwnerError(UserError):
    """Two owners named for a conversation, or a resumed run given a different owner (D1)."""


class ApprovalError(UserError):
    """A decision about a call that is not waiting for a decision, or has changed since the question."""


class ChangedCallError(ApprovalError, ModelBehaviorError):
    """A decision about another call with the same id: a model has used an id for two calls."""


class AlreadyDecidedError(ApprovalError):
    """Another operator decided about this call first; their decision holds, and nothing was changed."""

    def __init__(
        self, what: str, remedy: str = "", *, approved: bool = False, by: str | None = None, at: datetime | None = None
    ) -> None:
        super().__init__(what, remedy)
        self.approved, self.by, self.at = approved, by, at


class SendOutcomeUnknownError(ModelError):
    """Loss of the answer to a stateful request; a repeat could double a turn (D5)."""


# --- voice calls -----------------------------------------------------------------------------------------------------


class RealtimeStateError(CallerError, RuntimeError):
    """Use of a voice session in the wrong state: not entered, entered twice, closed (E1)."""


class ConnectionLostError(ModelError, ConnectionError):
    """Loss of a voice call's connection without a replacement, by failure or by setting (E13)."""

    code: int | None = None
    """The close code, where there was one."""


class ConnectionRefusedByServerError(ModelError, ConnectionError):
    """A realtime server did not take the connection, or not its settings (E1)."""


class SlowConsumerError(CallerError):
    """End of an iterator of a voice session that fell too far behind; the session continues (E12)."""


class CloseTimeoutError(StandfastError, TimeoutError):
    """A voice session was closed while code that cannot be stopped was still running (E2)."""


def _name_the_public_module() -> None:
    """Set `__module__` of these errors to `standfast`, the public import path.

    A traceback then shows a path that the reader can import. `typing.get_type_hints` looks annotations that are texts
    up in the module that `__module__` names, so those of this module are resolved before.
    """
    errors = {kind for kind in globals().values() if isinstance(kind, type) and issubclass(kind, StandfastError)}
    resolved = {kind: get_type_hints(kind) for kind in errors}
    for kind, hints in resolved.items():
        own = vars(kind).get("__annotations__", {})
        kind.__annotations__ = {name: hints[name] for name in own}
        kind.__module__ = __name__.partition(".")[0]


_name_the_public_module()
