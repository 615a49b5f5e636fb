"""What a client of the service does: send again until it is taken, and go on watching where it was cut off.

    SERVICE_TOKEN=… python -m service.client http://localhost:8000 ada "Please pay my invoice."

Of several addresses, with commas between them, it stays with one until that fails.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
import urllib.parse
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

AGAIN_S = 0.2


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event. `id` is None for words, which are shown and not kept."""

    kind: str
    data: Any
    id: str | None = None


class RefusedError(Exception):
    """The service refused a request; `status`, and what it said."""

    def __init__(self, status: int, said: Any) -> None:
        super().__init__(status, said)
        self.status, self.said = status, said


class Client:
    """Talks to any of these workers."""

    def __init__(self, *addresses: str, token: str = "", patience_s: float = 60.0) -> None:
        self._addresses = deque(urllib.parse.urlsplit(one).netloc for one in addresses)
        self._headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
        self._patience_s = patience_s

    def say(self, conversation: str, text: str, message_id: str) -> Any:
        """Send a message. It may be sent again, by this or another client: it stays one message."""
        return self.post(f"/conversations/{conversation}/messages", {"id": message_id, "text": text})

    def post(self, path: str, body: object, headers: dict[str, str] | None = None) -> Any:
        """Send this until a worker takes or refuses it."""
        return self._asked("POST", path, json.dumps(body).encode(), headers)

    def get(self, path: str) -> Any:
        """Ask for this until a worker answers."""
        return self._asked("GET", path, None, None)

    def _asked(self, method: str, path: str, body: bytes | None, headers: dict[str, str] | None) -> Any:
        end = time.monotonic() + self._patience_s
        while True:
            try:
                with closing(self._connection()) as link:
                    link.request(method, path, body, self._headers | (headers or {}))
                    answer = link.getresponse()
                    said = json.loads(answer.read() or b"null")
            except (OSError, http.client.HTTPException, ValueError):  # a worker that died, or is not there yet
                if time.monotonic() > end:
                    raise
            else:
                if answer.status < 400:
                    return said
                if answer.status != 503 or time.monotonic() > end:
                    raise RefusedError(answer.status, said)
            self._turn()

    def events(self, run: str, after: str | None = None) -> Iterator[Event]:
        """Every event of a run, at whichever worker, until it has ended; raises RefusedError for a wrong `after`."""
        while True:
            for event in self.cut_off(run, after):
                if event.kind == "trouble" and not event.data["again"]:
                    raise RefusedError(422, event.data)
                after = event.id or after
                yield event
                if event.kind == "run_ended":
                    return
            self._turn()

    def cut_off(self, run: str, after: str | None = None) -> Iterator[Event]:
        """The events that one worker sends until the connection ends, for whatever reason."""
        headers = self._headers | ({"last-event-id": after} if after else {})
        try:
            with closing(self._connection()) as link:
                link.request("GET", f"/runs/{run}/events", headers=headers)
                answer = link.getresponse()
                if answer.status >= 400 and answer.status != 503:
                    raise RefusedError(answer.status, json.loads(answer.read()))
                yield from _parsed(answer)
        except (OSError, http.client.HTTPException):
            pass

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._addresses[0], timeout=self._patience_s)

    def _turn(self) -> None:
        """Turn to the next worker, and not at once: perhaps all of them are being replaced."""
        self._addresses.rotate(-1)
        time.sleep(AGAIN_S)


def _parsed(answer: http.client.HTTPResponse) -> Iterator[Event]:
    fields: dict[str, str] = {}
    while line := answer.readline().decode():
        name, _, value = line.rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif "data" in fields:
            yield Event(fields["event"], json.loads(fields["data"]), fields.get("id"))
            fields = {}
        else:
            fields = {}


def main() -> None:
    """Say something, and show what becomes of it."""
    addresses, conversation, text = sys.argv[1:]
    token = os.environ.get("SERVICE_TOKEN", "")
    client, message_id = Client(*addresses.split(","), token=token), uuid.uuid4().hex
    client.say(conversation, text, message_id)
    for event in client.events(message_id):
        print(event.kind, json.dumps(event.data), flush=True)


if __name__ == "__main__":
    main()
