"""Assembly of a reply from a stream of events.

`StreamAssembler` reads every event of a model's stream, typed or plain, and at the end returns the result that
`get_response` would have. It does not wait and does not keep deltas: it uses the terminal event, and the finished items
if a provider leaves them out of it. A stream that does not end with `response.completed` is an error.
"""

from __future__ import annotations

from standfast._src.base.errors import ModelBehaviorError, ResponseFailedError, StreamCutError
from standfast._src.items.items import ModelResponse, read, to_plain
from standfast._src.items.usage import Usage

QUIET_EVENTS = frozenset({"response.created", "response.in_progress", "response.queued"})
"""Events that come before anything of the reply itself: after these alone, asking again repeats nothing."""

_FAILED = {"response.failed": "failed", "response.incomplete": "incomplete", "error": "failed"}
_TELLING = QUIET_EVENTS | _FAILED.keys() | {"response.completed", "response.output_item.done"}
# Events to inspect. All remaining ones, nearly the whole stream, only show that output has begun.


class StreamAssembler:
    """Collects one stream. `output_begun` says whether anything of the reply itself has been seen yet."""

    __slots__ = ("_done", "_response", "output_begun", "response_id")

    def __init__(self) -> None:
        self._response: object = None
        self._done: list[tuple[int, object]] = []
        self.output_begun = False
        self.response_id: str | None = None

    @property
    def complete(self) -> bool:
        """True after the terminal event; later events are ignored."""
        return self._response is not None

    def feed(self, event: object) -> None:
        """Read the next event; raise ResponseFailedError at a failed or incomplete end of the reply."""
        kind = event.get("type") if type(event) is dict else getattr(event, "type", None) or read(event, "type")
        if self._response is not None:
            return
        if kind not in _TELLING:
            self.output_begun = True
        elif kind in QUIET_EVENTS:
            self._note_id(event)
        elif kind == "response.completed":
            self._finish(event)
        elif kind in _FAILED:
            self._note_id(event)
            raise self._failure(kind, event)
        else:
            self.output_begun = True
            index = read(event, "output_index")
            self._done.append((index if isinstance(index, int) else len(self._done), read(event, "item")))

    def result(self, *, preserve_raw_usage: bool = False) -> ModelResponse:
        """Return the whole reply; raise StreamCutError if the stream ended without a terminal event."""
        response = self._response
        if response is None:
            raise StreamCutError(
                "the model's stream ended without response.completed",
                "Nothing of the reply was kept. Run again, or set a retry policy: retry_policies.network_error().",
            )
        # Some gateways send the items only one by one, and an empty list at the end.
        output = list(read(response, "output") or ()) or [item for _, item in sorted(self._done, key=_place)]
        usage = read(response, "usage")
        return ModelResponse(
            output,
            Usage.from_provider(usage),
            self.response_id,
            read(response, "_request_id"),
            to_plain(usage) if preserve_raw_usage and usage is not None else None,
            model=read(response, "model"),
        )

    def _note_id(self, event: object) -> None:
        found = read(read(event, "response"), "id")
        if isinstance(found, str) and found:
            self.response_id = found

    def _finish(self, event: object) -> None:
        response = read(event, "response")
        if response is None:
            raise ModelBehaviorError(
                "response.completed came without a response", "Check the model's stream: the event must carry one."
            )
        self._response = response
        self.response_id = None  # a provider that keeps no responses says so at the end, whatever it said before
        self._note_id(event)

    def _failure(self, kind: str, event: object) -> ResponseFailedError:
        response = read(event, "response")
        error = read(response, "error") or (event if kind == "error" else None)
        return reply_failed(
            response, _FAILED[kind], error=error, response_id=self.response_id, output_begun=self.output_begun
        )


def reply_failed(
    response: object,
    status: str,
    *,
    error: object,
    response_id: str | None,
    request_id: str | None = None,
    output_begun: bool = False,
) -> ResponseFailedError:
    """Build the error for a reply that its provider ended as failed or incomplete."""
    details = read(response, "incomplete_details")
    code = read(error, "code") or read(details, "reason")
    words = ": ".join(str(part) for part in (code, read(error, "message")) if part)
    return ResponseFailedError(
        f"the provider ended the reply as {status}" + (f" ({words})" if words else ""),
        "Nothing of the reply was kept. Look at the code; for a reply cut at max_output_tokens raise max_tokens."
        if status == "incomplete"
        else "Nothing of the reply was kept. Look at the code; run again if it is a passing one.",
        status=status,
        code=code if isinstance(code, str) else None,
        response_id=response_id,
        request_id=request_id or read(response, "_request_id"),
        output_begun=output_begun,
    )


def _place(entry: tuple[int, object]) -> int:
    return entry[0]
