"""How many of the OpenAI Agents SDK's own example programs run with standfast, and why the others do not.

    ./dev bench bench_examples --checkout FOLDER [--only basic] [--jobs 2] [--timeout-s 60]

FOLDER is a checkout, or an unpacked source distribution, of the release that is installed: the programs are not in its
wheel, and none of them is kept here. Each program under `examples/` that can be started is started twice, in child
processes: with the SDK, and with `agents` meaning `standfast` at import; nothing else is changed. Both talk to the
loopback provider, which calls the first tool it is shown, once, with arguments made from its schema, and answers in
words or by the output schema. So nothing leaves the machine, and what needs more than a model (a service, a package, a
microphone) runs with neither. A program runs if it ends by itself without an error. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from standfast.testing.loopback import Asked, LoopbackServer, call

LIBRARIES = ("agents", "standfast")
MAIN = re.compile(r"__name__\s*==\s*['\"]__main__['\"]")

LAUNCH = '''
import importlib, importlib.abc, importlib.machinery, runpy, sys

module, library = sys.argv[1:]

class OneImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """`agents` and everything below it is the other library."""

    def find_spec(self, name, path=None, target=None):
        if name == "agents" or name.startswith("agents."):
            return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec):
        return importlib.import_module(library + spec.name.removeprefix("agents"))

    def exec_module(self, module):
        pass

sys.path.insert(0, ".")
if library != "agents":
    sys.meta_path.insert(0, OneImport())
sys.argv[:] = [module]
runpy.run_module(module, run_name="__main__", alter_sys=True)
'''


# --- the provider ----------------------------------------------------------------------------------------------------


def answer(asked: Asked) -> Any:
    """One call of the first tool, then an answer; by the schema where there is one."""
    called = any(item.get("type") == "function_call" or item.get("tool_calls") for item in asked.context)
    tools = [tool.get("function", tool) for tool in asked.body.get("tools") or ()]
    functions = [tool for tool in tools if "name" in tool and isinstance(tool.get("parameters"), dict)]
    if functions and not called and not asked.outputs:
        return call(functions[0]["name"], instance(functions[0]["parameters"]))
    schema = _output_schema(asked.body)
    return json.dumps(instance(schema)) if schema is not None else "The answer is 42."


def _output_schema(body: dict[str, Any]) -> dict[str, Any] | None:
    form = (body.get("text") or {}).get("format") or (body.get("response_format") or {}).get("json_schema") or {}
    found: dict[str, Any] | None = form.get("schema")
    return found


def instance(schema: Any, root: Any = None, depth: int = 0) -> Any:
    """A small value that fits a JSON schema, as far as the schemas of tools and outputs go."""
    root = schema if root is None else root
    if not isinstance(schema, dict) or depth > 12:
        return "x"
    if "$ref" in schema:
        return instance(root.get("$defs", {}).get(schema["$ref"].rpartition("/")[2]), root, depth + 1)
    for choices in ("anyOf", "oneOf", "allOf"):
        if schema.get(choices):
            return instance(schema[choices][0], root, depth + 1)
    if "const" in schema or schema.get("enum"):
        return schema.get("const", (schema.get("enum") or [None])[0])
    match schema.get("type"):
        case "object":
            return {name: instance(part, root, depth + 1) for name, part in schema.get("properties", {}).items()}
        case "array":
            return [instance(schema.get("items"), root, depth + 1) for _ in range(max(1, schema.get("minItems", 1)))]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case "null":
            return None
        case _:
            return "2026-01-01" if schema.get("format") == "date" else "words"


# --- the programs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What became of one program with one library."""

    runs: bool
    reason: str = ""


def programs(checkout: Path, only: str) -> Iterator[str]:
    """Every program that can be started, as a module."""
    for file in sorted((checkout / "examples").rglob("*.py")):
        name = ".".join(file.relative_to(checkout).with_suffix("").parts)
        if only in name and file.name != "run_examples.py" and MAIN.search(file.read_text(encoding="utf-8")):
            yield name


def started(module: str, library: str, checkout: Path, base_url: str, timeout_s: float) -> Outcome:
    """Run one program to its end, or to its time."""
    nowhere = "http://127.0.0.1:9"  # so that a program that wants the network fails at once, with either library
    environment = {
        **{name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ},
        "HOME": str(checkout),
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": base_url,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "EXAMPLES_INTERACTIVE_MODE": "auto",
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), nowhere),
        "NO_PROXY": "127.0.0.1,localhost",
    }
    try:
        done = subprocess.run(
            [sys.executable, "-c", LAUNCH, module, library],
            cwd=checkout,
            env=environment,
            input="Hello\nexit\nquit\n",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(False, f"does not end within {timeout_s:.0f} s (a server, or it waits for somebody)")
    return Outcome(True) if done.returncode == 0 else Outcome(False, reason_of(done.stderr or done.stdout))


def reason_of(text: str) -> str:
    """Why a program failed: the last line that is an error, shortened to what it is about."""
    # Without the lines that Python draws around groups of exceptions.
    lines = [line.strip(" |+-") for line in text.splitlines() if line.strip(" |+-")]
    errors = [line for line in lines if re.match(r"^[\w.]*(Error|Exception|Exit|Tripwire\w*|Interrupt)\b", line)]
    line = (errors or lines or ["it says nothing"])[-1]
    if absent := re.search(r"standfast has no ([^,]+), so there is no", text):
        return f"standfast has no {absent[1]}"
    if missing := re.search(r"No module named '([\w.]+)'", line):
        return f"needs the package {missing[1].partition('.')[0]}"
    if re.search(r"ConnectError|ConnectionError|Connection refused|ProxyError|APIConnectionError|TimeoutError", line):
        return "needs a service that is not there"
    return re.sub(r"/\S+/", "…/", line)[:140].replace("|", "/")


# --- the table -------------------------------------------------------------------------------------------------------


def table(found: dict[str, dict[str, Outcome]]) -> Iterator[str]:
    """The results as Markdown."""
    yield "| folder | programs | run with openai-agents | run with standfast |"
    yield "|---|---:|---:|---:|"
    folders = Counter(_folder(module) for module in found)
    for folder, count in sorted(folders.items()):
        runs = [sum(o[lib].runs for m, o in found.items() if _folder(m) == folder) for lib in LIBRARIES]
        yield f"| {folder} | {count} | {runs[0]} | {runs[1]} |"
    totals = [sum(outcomes[library].runs for outcomes in found.values()) for library in LIBRARIES]
    yield f"| **all** | **{len(found)}** | **{totals[0]}** | **{totals[1]}** |"
    yield ""
    yield from _list("Run with openai-agents and not with standfast", found, "agents", "standfast")
    yield from _list("Run with standfast and not with openai-agents", found, "standfast", "agents")
    neither = Counter(o["agents"].reason for o in found.values() if not o["agents"].runs and not o["standfast"].runs)
    yield "| run with neither: openai-agents says | programs |"
    yield "|---|---:|"
    for reason, count in neither.most_common():
        yield f"| {reason} | {count} |"


def _list(title: str, found: dict[str, dict[str, Outcome]], one: str, other: str) -> Iterator[str]:
    yield f"| {title} | why not |"
    yield "|---|---|"
    for module, outcomes in found.items():
        if outcomes[one].runs and not outcomes[other].runs:
            yield f"| {module.removeprefix('examples.')} | {outcomes[other].reason} |"
    yield ""


def _folder(module: str) -> str:
    return module.split(".")[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, help="a checkout of the SDK with its examples")
    parser.add_argument("--only", default="", help="only programs whose module name contains this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout-s", type=float, default=60.0)
    options = parser.parse_args()
    if options.checkout is None or not (options.checkout / "examples").is_dir():
        print(
            "bench_examples: skipped. Give --checkout, a folder with the SDK's `examples`: they are not in its wheel."
        )
        return
    with tempfile.TemporaryDirectory() as folder, LoopbackServer(answer) as server:
        found: dict[str, dict[str, Outcome]] = {}
        with ThreadPoolExecutor(options.jobs) as pool:
            waiting = {}
            for library in LIBRARIES:
                copy = Path(folder) / library  # programs write files: each library gets a copy of its own
                shutil.copytree(options.checkout / "examples", copy / "examples")
                for module in programs(copy, options.only):
                    job = pool.submit(started, module, library, copy, server.base_url, options.timeout_s)
                    waiting[module, library] = job
            for (module, library), job in waiting.items():
                found.setdefault(module, {})[library] = job.result()
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
