"""One worker of the voice demo: serves the page, and carries calls between a browser and the agent.

    python worker.py PORT WORKERS STATE

It keeps nothing that matters: the call is saved in SQLite as it happens. When this process is killed, the page calls
the other worker with the same run id, which goes on with the call.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from desk import SENTENCES, desk
from phone_line import carry_phone
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from standfast import SQLiteSession
from standfast.realtime import RealtimePlaybackTracker, RealtimeRunner, RealtimeSession

HERE = Path(__file__).parent


class Setup:
    """What a worker is told when it starts."""

    def __init__(self, port: int, ports: list[int], state: Path) -> None:
        self.port, self.ports, self.state = port, ports, state
        self.model: dict[str, Any] = json.loads((state / "model.json").read_text(encoding="utf-8"))

    def is_own_page(self, origin: str | None) -> bool:
        """Whether a browser says that a page of one of the workers asks."""
        return origin in {f"http://{host}:{port}" for host in ("127.0.0.1", "localhost") for port in self.ports}

    def page(self) -> str:
        """The page, with the addresses of the workers in it."""
        workers = [f"ws://127.0.0.1:{port}" for port in [self.port, *(p for p in self.ports if p != self.port)]]
        config = json.dumps({"workers": workers, "sentences": SENTENCES})
        text = (HERE / "page.html").read_text(encoding="utf-8")
        return text.replace(
            '<script type="module">',
            f'<script id="config" type="application/json">{config}</script>\n<script type="module">',
            1,
        )


async def entered(setup: Setup, run_id: str, tracker: RealtimePlaybackTracker, **settings: Any) -> RealtimeSession:
    """The call of that name: a new one, or one that another worker has left."""
    runner = RealtimeRunner(desk(), config={"lease_ttl_s": 2.0})
    session = SQLiteSession(run_id, str(setup.state / "calls.db"))
    options: Any = {**setup.model, "playback_tracker": tracker, "initial_model_settings": settings}
    live = await runner.run(session=session, run_id=run_id, model_config=options)
    return await live.enter()


# --- a browser -------------------------------------------------------------------------------------------------------


async def browser(websocket: WebSocket) -> None:
    """Carry one call from the page.

    A browser lets every page open this websocket, and names the page in `Origin`. Others are refused: a stranger's page
    could talk to the agent and approve its calls.
    """
    setup: Setup = websocket.app.state.setup
    if not setup.is_own_page(websocket.headers.get("origin")):
        return await websocket.close(1008)  # before it is accepted: the browser sees HTTP 403
    await websocket.accept()
    tracker = RealtimePlaybackTracker()
    live = await entered(setup, websocket.query_params["run_id"], tracker)
    telling = asyncio.create_task(Telling(websocket, live).run())
    try:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                break
            if message.get("bytes"):
                await live.send_audio(message["bytes"])
            elif message.get("text") and not await _obey(json.loads(message["text"]), live, tracker):
                break
    except WebSocketDisconnect:
        pass
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        await live.close()
        with suppress(RuntimeError, WebSocketDisconnect):  # the page may have gone first
            await websocket.close(1000)


async def _obey(message: dict[str, Any], live: RealtimeSession, tracker: RealtimePlaybackTracker) -> bool:
    """Do what the page asks for; whether the call goes on."""
    match message["type"]:
        case "played":
            tracker.on_play_ms(message["item"], 0, message["ms"])
        case "text":
            await live.send_message(message["text"])
        case "approve":
            await live.approve_tool_call(message["call_id"])
        case "reject":
            await live.reject_tool_call(message["call_id"])
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)  # nothing is saved now, nobody is told
        case "hang_up":
            return False
    return True


class Telling:
    """Shows a page what happens in a call."""

    def __init__(self, websocket: WebSocket, live: RealtimeSession) -> None:
        self._websocket, self._live = websocket, live
        self._asked: set[str] = set()

    async def run(self) -> None:
        """Until the call ends."""
        live = self._live
        await self._send("state", pid=os.getpid(), text=f"{live.state}, call {live.run_id}")
        await self._approvals()
        await self._history()
        async for event in live:
            match event.type:
                case "audio":
                    data = base64.b64encode(event.audio.data).decode("ascii")
                    await self._send("audio", item=event.item_id, data=data)
                case "audio_interrupted":
                    await self._send("interrupted", item=event.item_id)
                    await self._history()
                case "history_updated" | "history_added" | "agent_end":
                    await self._history()
                case "tool_approval_required":
                    await self._approvals()
                case "tool_end":
                    await self._send("log", text=f"{event.tool.name}: {event.output}")
                    await self._approvals()
                case "connection_lost" | "reconnected" | "error":
                    await self._send("log", text=event.type)

    async def _approvals(self) -> None:
        waiting = {one.call_id: one for one in self._live.pending_approvals}
        for call_id in self._asked - waiting.keys():
            await self._send("decided", call_id=call_id)
        for call_id, one in waiting.items():
            shown = {"arguments": one.arguments, "values": one.prepared_arguments}
            await self._send("approval", call_id=call_id, tool=one.tool.name, **shown)
        self._asked = set(waiting)

    async def _history(self) -> None:
        await self._send("history", items=[self._shown(item) for item in self._live.history])

    def _shown(self, item: Any) -> dict[str, str]:
        if item.type == "function_call":
            output = f" = {item.output}" if item.output is not None else " …"
            return {"role": "tool", "who": "tool", "heard": f"{item.name}({item.arguments}){output}", "unheard": ""}
        words = [getattr(part, "transcript", None) or getattr(part, "text", None) for part in item.content]
        heard = " ".join(word for word in words if word)
        generated = self._live.generated(item.item_id) or ""  # also what a worker before this one was told
        unheard = generated[len(heard) :].strip()
        who = {"user": "You", "assistant": "Desk"}.get(item.role, item.role)
        return {"role": item.role, "who": who, "heard": heard, "unheard": unheard}

    async def _send(self, kind: str, **fields: Any) -> None:
        await self._websocket.send_json({"type": kind, **fields})


# --- the rest --------------------------------------------------------------------------------------------------------


async def page(request: Request) -> Response:
    """The one page."""
    return HTMLResponse(request.app.state.setup.page())


async def worklets(request: Request) -> Response:
    """The code that runs in the browser's audio thread."""
    return FileResponse(HERE / "worklets.js", media_type="text/javascript")


async def sentence(request: Request) -> Response:
    """A prepared sentence as PCM."""
    place = int(request.path_params["place"])
    return FileResponse(request.app.state.setup.state / f"sentence{place}.pcm", media_type="application/octet-stream")


async def phone(websocket: WebSocket) -> None:
    """Carry one call from a carrier. A carrier names no page, so a browser is refused.

    On the internet a carrier has to prove who it is: check its signature, or put a secret into the address.
    """
    setup: Setup = websocket.app.state.setup
    if "origin" in websocket.headers:
        return await websocket.close(1008)
    await carry_phone(websocket, lambda run_id, tracker, **settings: entered(setup, run_id, tracker, **settings))


def application(setup: Setup) -> Starlette:
    """The worker as a web application."""
    made = Starlette(
        routes=[
            Route("/", page),
            Route("/worklets.js", worklets),
            Route("/sentences/{place:int}", sentence),
            WebSocketRoute("/call", browser),
            WebSocketRoute("/phone", phone),
        ]
    )
    made.state.setup = setup
    return made


if __name__ == "__main__":
    here, others, folder = int(sys.argv[1]), [int(port) for port in sys.argv[2].split(",")], Path(sys.argv[3])
    uvicorn.run(application(Setup(here, others, folder)), host="127.0.0.1", port=here, log_level="warning")
