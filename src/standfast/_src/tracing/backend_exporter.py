"""Exporter of traces and spans over HTTP, in the format of the OpenAI Agents SDK.

Nothing is sent unless the program adds a processor for it, such as `add_trace_processor(default_processor())`.
"""

from __future__ import annotations

import json
import os
import time
from functools import cache
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from standfast._src.base.logs import logger
from standfast._src.tracing.processors import BatchTraceProcessor, TracingExporter
from standfast._src.tracing.trace_records import Span, Trace

ENDPOINT = "https://api.openai.com/v1/traces/ingest"
REQUEST_S = 60.0
RETRIED_STATUSES = frozenset({408, 409, 429})


class BackendSpanExporter(TracingExporter):
    """Posts traces and spans as JSON to an endpoint, with a key.

    `export` waits for the server and never raises: a batch that is refused is logged and dropped. Requests are repeated
    `max_retries` times, after `base_delay` seconds that double up to `max_delay`, where the server may take them later.
    """

    def __init__(
        self,
        api_key: str | None = None,
        organization: str | None = None,
        project: str | None = None,
        endpoint: str = ENDPOINT,
        max_retries: int = 3,
        base_delay: float = 1.0,
        max_delay: float = 30.0,
    ) -> None:
        self._api_key, self._organization, self._project = api_key, organization, project
        self.endpoint, self.max_retries = endpoint, max_retries
        self.base_delay, self.max_delay = base_delay, max_delay

    def set_api_key(self, api_key: str) -> None:
        """Set the key."""
        self._api_key = api_key

    @property
    def api_key(self) -> str | None:
        """Key: as given, else `OPENAI_API_KEY`."""
        return self._api_key or os.environ.get("OPENAI_API_KEY")

    @api_key.setter
    def api_key(self, api_key: str | None) -> None:
        self._api_key = api_key

    @property
    def organization(self) -> str | None:
        """Organization: as given, else `OPENAI_ORG_ID`."""
        return self._organization or os.environ.get("OPENAI_ORG_ID")

    @property
    def project(self) -> str | None:
        """Project: as given, else `OPENAI_PROJECT_ID`."""
        return self._project or os.environ.get("OPENAI_PROJECT_ID")

    def export(self, items: list[Trace | Span[Any]]) -> None:
        """Post a batch, with one request for each key of its traces."""
        by_key: dict[str | None, list[dict[str, Any]]] = {}
        for item in items:
            if exported := item.export():
                by_key.setdefault(item.tracing_api_key or self.api_key, []).append(exported)
        for key, batch in by_key.items():
            if key is None:
                logger.warning("%d traces and spans are not exported: there is no API key for traces", len(batch))
            else:
                self._post(json.dumps({"data": batch}, default=str).encode("utf-8", "replace"), key)

    def close(self) -> None:
        """Do nothing: each request has a connection of its own."""

    def _post(self, body: bytes, key: str) -> None:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "OpenAI-Beta": "traces=v1"}
        named = {"OpenAI-Organization": self.organization, "OpenAI-Project": self.project}
        headers |= {name: value for name, value in named.items() if value}
        delay = self.base_delay
        for attempt in range(self.max_retries + 1):
            try:
                urlopen(Request(self.endpoint, body, headers, method="POST"), timeout=REQUEST_S).close()
                return
            except HTTPError as error:
                refused: object = error.code
                error.close()
                if error.code < 500 and error.code not in RETRIED_STATUSES:
                    break
            except (URLError, OSError) as error:
                refused = type(error).__name__
            if attempt < self.max_retries:
                time.sleep(delay)
                delay = min(delay * 2, self.max_delay)
        logger.error("a batch of traces and spans was not exported: %s", refused)


@cache
def default_exporter() -> BackendSpanExporter:
    """Return the exporter of this process; `set_tracing_export_api_key` sets the key."""
    return BackendSpanExporter()


@cache
def default_processor() -> BatchTraceProcessor:
    """Return the processor of this process for `default_exporter`. A program has to add it."""
    return BatchTraceProcessor(default_exporter())
