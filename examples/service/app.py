"""What clients see: messages, streams, decisions, conversations, and errors that say what to do."""

from __future__ import annotations

import asyncio
import hmac
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from service.errors import refusal
from service.gate import Gate
from service.hooks import DECIDED, SignatureError, check_signature
from service.settings import Settings, agent_named
from service.streams import stream
from service.worker import Worker
from standfast import (
    Agent,
    CallerError,
    NotFoundError,
    OutcomeUnknownError,
    RunClaimedError,
    RunHandedOverError,
    RunView,
    SessionBusyError,
    StandfastError,
    StoreTimeoutError,
    StoreUnavailableError,
)

NAME = r"^[A-Za-z0-9_.@-]{1,200}$"  # not \w, which is every letter of Unicode
Name = Annotated[str, Path(pattern=NAME)]
"""Ids of conversations and runs: what needs no quoting in an address or a header."""


class Message(BaseModel):
    """What somebody says. The id is the client's: sent again, it is the same message."""

    id: str = Field(pattern=NAME)
    text: str = Field(min_length=1, max_length=100_000)


class Decision(BaseModel):
    """What a person decided about a call that waits."""

    call: str
    type: Literal["call.decided"] | None = None
    """Must be said where decisions are signed: requests of both directions are signed with one secret."""
    run: str | None = None
    """Must be said where decisions are signed, and is then what is signed: the address of a request is not."""
    approve: bool
    arguments: str
    """As they were shown to whoever decided."""
    prepared_arguments: str | None = None
    """The values that the tool will get, as they were shown, where they differ from the arguments."""
    by: str = Field(min_length=1)
    reason: str | None = None


class Cancelling(BaseModel):
    """Who gives a run up."""

    by: str = Field(min_length=1)


class NotAllowedError(CallerError):
    """A request without the token of the service."""


# --- who may ask -----------------------------------------------------------------------------------------------------


def worker_of(request: Request) -> Worker:
    """The worker that this process is."""
    worker: Worker = request.app.state.worker
    return worker


Here = Annotated[Worker, Depends(worker_of)]


def check_token(worker: Here, authorization: Annotated[str, Header()] = "") -> None:
    """Refuse who does not have the token. In a service of yours: who is this, and is it their conversation?"""
    token = worker.settings.token
    if token and not hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode()):
        raise NotAllowedError("the token of this service is missing", "Send it as `Authorization: Bearer …`.")


async def check_decider(request: Request, worker: Here, authorization: Annotated[str, Header()] = "") -> None:
    """Refuse a decision that is not signed, if there is a secret; else the token decides."""
    if worker.settings.hook_secret:
        check_signature(worker.settings.hook_secret, request.headers, await request.body())
    else:
        check_token(worker, authorization)


open_routes, routes = APIRouter(), APIRouter(dependencies=[Depends(check_token)])

# --- messages and their runs -----------------------------------------------------------------------------------------


@routes.post("/conversations/{conversation}/messages", status_code=202)
async def say(conversation: Name, message: Message, worker: Here) -> dict[str, Any]:
    """Take a message. 202 says that it is saved and will be answered, whatever becomes of this worker."""
    return shown(await worker.begin(conversation, message.id, message.text))


@routes.get("/conversations/{conversation}")
async def history(
    conversation: Name,
    worker: Here,
    before: str | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> dict[str, Any]:
    """What was said, the latest page first; `before` asks for the page before it."""
    session = await worker.store.find(conversation)
    try:
        page = await session.page(before=before, limit=limit)
    finally:
        await session.close()
    open_runs = (await worker.store.runs(session_id=conversation, status="paused")).runs
    return {"items": page.items, "before": page.before, "waiting": [run.run_id for run in open_runs]}


@routes.get("/runs/{run}")
async def look(run: Name, worker: Here) -> dict[str, Any]:
    """How a run stands, and what it came to."""
    return shown(await worker.store.run(run))


@routes.get("/runs/{run}/events")
async def watch(
    run: Name, worker: Here, last_event_id: Annotated[str | None, Header()] = None, after: str | None = None
) -> StreamingResponse:
    """A run as server-sent events, behind the one that was seen last."""
    view = await worker.store.run(run)
    assert view.session_id is not None  # every run of this service is in a conversation
    events = stream(worker, run, view.session_id, last_event_id or after)
    return StreamingResponse(events, media_type="text/event-stream", headers={"cache-control": "no-store"})


@open_routes.post("/runs/{run}/decisions", status_code=202, dependencies=[Depends(check_decider)])
async def decide(run: Name, decision: Decision, worker: Here) -> dict[str, Any]:
    """Take a decision; the same one again changes nothing."""
    if decision.run != run and (worker.settings.hook_secret or decision.run is not None):
        # Whoever has seen a signed approval could send it to another run, in which a call has the same id.
        raise SignatureError(
            f"the decision is about run {decision.run!r} and was sent to run {run!r}",
            "Say in its body which run it is.",
        )
    if worker.settings.hook_secret and decision.type != DECIDED:
        raise SignatureError("the signed body does not say that it is a decision", f"Give it the type {DECIDED!r}.")
    view = await worker.decide(
        run,
        decision.call,
        approve=decision.approve,
        arguments=decision.arguments,
        prepared_arguments=decision.prepared_arguments,
        by=decision.by,
        reason=decision.reason,
    )
    return shown(view)


@routes.post("/runs/{run}/cancel")
async def cancel(run: Name, cancelling: Cancelling, worker: Here) -> dict[str, Any]:
    """Give a run up, wherever it is at work."""
    return shown(await worker.cancel(run, by=cancelling.by))


def shown(view: RunView) -> dict[str, Any]:
    """A run, for a client."""
    waiting = [
        {
            "call": one.call_id,
            "tool": one.tool,
            "arguments": one.arguments,
            "prepared_arguments": one.prepared_arguments,
        }
        for one in view.waiting
    ]
    return {
        "run": view.run_id,
        "conversation": view.session_id,
        "status": view.status,
        "doing": view.doing,
        "waiting": waiting,
        "output": view.output,
        "settled_by": view.settled_by,
        "cancelled_by": view.cancelled_by,
        "events": f"/runs/{view.run_id}/events",
    }


# --- the addresses themselves ----------------------------------------------------------------------------------------

# FastAPI's own would be open to all.


@routes.get("/openapi.json", include_in_schema=False)
async def schema(request: Request) -> JSONResponse:
    """Every address, and what it takes."""
    application: FastAPI = request.app
    return JSONResponse(application.openapi())


@routes.get("/docs", include_in_schema=False)
async def page() -> HTMLResponse:
    """The same as a page. Its script comes from a server of FastAPI's choice."""
    return get_swagger_ui_html(openapi_url="/openapi.json", title="standfast service")


# --- health ----------------------------------------------------------------------------------------------------------


@open_routes.get("/health")
async def health() -> dict[str, str]:
    """Whether this process answers; if it does not, start another."""
    return {"status": "alive"}


@open_routes.get("/ready")
async def ready(worker: Here) -> dict[str, str]:
    """Whether to send requests here: the store answers, and this worker does not stop."""
    if worker.stopping.is_set():
        raise RunHandedOverError("this worker stops", "Send requests to another.")
    async with asyncio.timeout(5):
        return {"status": "ready", "store": (await worker.store.layout()).name}


# --- errors ----------------------------------------------------------------------------------------------------------

STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (NotAllowedError, 401),
    (SignatureError, 401),
    (NotFoundError, 404),
    (SessionBusyError, 503),
    (RunClaimedError, 503),
    (RunHandedOverError, 503),
    (StoreUnavailableError, 503),
    (StoreTimeoutError, 503),
    (OutcomeUnknownError, 503),
    (TimeoutError, 503),
    (ValueError, 422),
    (StandfastError, 409),
)
"""The first that fits. 503 comes with Retry-After: the same request again, in a moment, and to any worker."""


async def refused(request: Request, error: Exception) -> JSONResponse:
    """Whatever standfast raised."""
    status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
    what = getattr(error, "what", "") or str(error) or type(error).__name__
    return refusal(status, type(error).__name__, what, getattr(error, "remedy", "Send it again."))


async def malformed(request: Request, error: Exception) -> JSONResponse:
    """A body or a name that does not fit."""
    assert isinstance(error, RequestValidationError)
    wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
    return refusal(422, "InvalidRequest", wrong, "/docs shows what each address takes.")


async def not_there(request: Request, error: Exception) -> JSONResponse:
    """An address or a method that does not exist."""
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, "InvalidRequest", error.detail, "/docs shows which addresses there are.")


# --- the application -------------------------------------------------------------------------------------------------


def on_sigterm(worker: Worker) -> None:
    """Let the worker stop as soon as SIGTERM comes, before the server that hears it too waits for its requests."""
    if threading.current_thread() is not threading.main_thread():
        return  # in a test; a server's loop is in the main thread
    loop, server = asyncio.get_running_loop(), signal.getsignal(signal.SIGTERM)

    def heard(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(worker.stop)
        if callable(server):
            server(number, frame)

    signal.signal(signal.SIGTERM, heard)


def make_app(settings: Settings | None = None, agent: Agent[Any] | None = None) -> FastAPI:
    """The application: with what the environment says, or with these."""
    settings = settings or Settings.of()
    answering = agent or agent_named(settings.agent)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        settings.check_access()
        worker = app.state.worker = Worker(settings, answering)
        on_sigterm(worker)
        worker.start()
        try:
            yield
        finally:
            await worker.close()

    app = FastAPI(title="standfast service", lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    app.add_middleware(Gate, hosts=settings.hosts)
    app.include_router(open_routes)
    app.include_router(routes)
    for kind in (StandfastError, TimeoutError):
        app.add_exception_handler(kind, refused)
    app.add_exception_handler(RequestValidationError, malformed)
    app.add_exception_handler(HTTPException, not_there)
    return app


app = make_app()
