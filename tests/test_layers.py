"""The layers of the architecture hold: arrows point down only, edges do not meet, nothing needs the kit.

Every import counts, inside functions and for types too: an import that is "only" for a type still ties two modules
together, and so does the name of a module in a string, by which it is imported later. A new room must be given a place
in the table below.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import agents

import standfast
from standfast._kits.contract.clauses import CLAUSES
from standfast._src.exports.sdk_paths import DOORS
from standfast._src.exports.table import COMMANDS, KIT_PATHS

SOURCE = Path(standfast.__file__).parent

# A room is a folder or a module, and belongs to one layer; one inside another is a room of its own.
LAYERS: dict[int, str] = {
    0: "_src.base",
    1: "_src.items",
    2: "_src.runs.engine _src.models _src.sessions _src.realtime.machine",
    3: "_src.agents _src.tools _src.sessions.foreign _src.realtime.agent _src.realtime.config "
    "_src.realtime.session_events",
    4: "_src.runs _src.runs.recovery _src.realtime.session",
    5: "_src.runs.api _src.realtime.runner _src.exports",
}
FACE, EDGE_GROUND, EDGE, KIT = 5, 6, 7, 8
# What several edges share: it may use the layers 0 to 2, and no third-party library.
SHARED = "_src.sessions.client"
# Each edge is one island: its modules may use each other, the edge ground, the layers 0 to 2, and one library.
ISLANDS: dict[str, tuple[str, str]] = {  # island: (its rooms, each built on those before it; its library)
    "memory": ("_src.sessions.backends.memory", ""),
    "sqlite": ("_src.sessions.backends.sqlite _src.sessions.wrappers.branches", ""),
    "redis": ("_src.sessions.backends.redis", "redis"),
    "postgres": ("_src.sessions.backends.postgres", "psycopg"),
    "sqlalchemy": ("_src.sessions.backends.sqlalchemy", "sqlalchemy"),
    "sealed": ("_src.sessions.wrappers.encrypted", "cryptography"),
    "openai": (
        "_src.models.providers _src.sessions.backends.openai_conversations _src.sessions.wrappers.compaction",
        "openai",
    ),
    "prices": ("_src.models.prices", "genai_prices"),
    "telemetry": ("_src.tracing", "opentelemetry"),
    "realtime": ("_src.realtime.transports", "websockets"),
    "mcp": (
        "_src.tools.mcp",
        "mcp mcp_types httpx2 anyio pydantic",
    ),  # one library, and what its functions take and raise
}
# An edge that brings tools is made of parts (contexts, guardrails, tools), where the others are made of machines.
EDGES_OF_PARTS = {"mcp"}
KITS = "_kits.conformance _kits.contract _kits.testing _kits.operators _kits.workers _kits.cli _kits.inspector"
# What the layers may use from outside: the JSON library on the ground, schemas for tools and output types in the parts.
LIBRARIES: dict[int, set[str]] = {
    0: {"msgspec"},
    1: {"msgspec", "pydantic", "pydantic_core"},  # for programs that put items into models, when they do
    2: {"msgspec"},
    EDGE_GROUND: {"msgspec"},  # only for its plain records, which the garbage collector need not look at
    3: {"msgspec", "pydantic", "pydantic_core", "typing_extensions"},  # the last for type checkers only
}
# Words and machines are functions of their arguments: no clock, no chance, no I/O, nothing that waits.
IMPURE = {
    "asyncio",
    "time",
    "random",
    "secrets",
    "uuid",
    "logging",
    "os",
    "socket",
    "sqlite3",
    "subprocess",
    "threading",
}
# Reading an exception means naming its class; that is all these are imported for.
ONLY_FOR_THEIR_ERRORS = {("_src.models.error_reading", "asyncio"), ("_src.models.error_reading", "socket")}

Place = tuple[int, str]


def places() -> dict[str, Place]:
    """Every entry of the tables, with its layer and island."""
    table: dict[str, Place] = {entry: (layer, "") for layer, entries in LAYERS.items() for entry in entries.split()}
    table |= {entry: (EDGE, island) for island, (entries, _) in ISLANDS.items() for entry in entries.split()}
    table |= dict.fromkeys(SHARED.split(), (EDGE_GROUND, ""))
    table |= dict.fromkeys(KITS.split(), (KIT, ""))
    return table


def place_of(module: str) -> Place | None:
    """The layer and island of a module, None if the tables do not say."""
    if module in WRITTEN:
        return FACE, ""
    table = places()
    parts = module.split(".")
    around = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((table[name] for name in around if name in table), None)


@cache
def modules() -> dict[str, ast.Module]:
    """Every module below `standfast`, parsed, by its name there ("" is `standfast` itself)."""
    found = {}
    for file in SOURCE.rglob("*.py"):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(file.read_text(encoding="utf-8"))
    return found


def imports(module: str, is_package: bool, tree: ast.Module, known: set[str]) -> Iterator[tuple[str, str]]:
    """What a module imports, wherever in it: ("ours" or "by name", module), or ("outside", top-level package)."""
    package = module.split(".") if module else []
    if not is_package:
        package = package[:-1]
    for node in ast.walk(tree):
        targets: list[list[str]] = []
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").split(".") if node.module else []
            if node.level:
                base = ["standfast", *package[: len(package) - (node.level - 1)], *base]
            # `from . import protocol` imports a module, `from .protocol import Session` a name
            below = [alias.name for alias in node.names if ".".join([*base, alias.name][1:]) in known]
            targets = [[*base, name] for name in below] or [base]
        elif isinstance(node, ast.Constant) and str(node.value).startswith("standfast."):
            name = str(node.value).removeprefix("standfast.")
            if "." in name and name in known - {module}:  # without a dot it may be a logger's name, or a schema's
                yield "by name", name
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("edge", "import_module")):
            name = ast.unparse(node.args[0]).strip("'").removeprefix("standfast.")
            if name in known:
                yield "by name", name
        for target in targets:
            yield ("ours", ".".join(target[1:])) if target[0] == "standfast" else ("outside", target[0])


# Written by ./dev names: lazy faces, which show every name to type checkers whatever layer it lives in.
WRITTEN = {"", *DOORS, *KIT_PATHS, *(f"{path}.__main__".lstrip(".") for path in COMMANDS)}


@cache
def packages() -> set[str]:
    """The names of the modules that have others below them."""
    return {".".join(parts[:count]) for name in modules() for parts in [name.split(".")] for count in range(len(parts))}


@cache
def every_import() -> dict[str, list[tuple[str, str]]]:
    """What each module imports; found when a test asks, for every process of pytest's imports this file."""
    known = set(modules())
    return {name: sorted(set(imports(name, name in packages(), tree, known))) for name, tree in modules().items()}


# Who imports modules by names that are not written there, and which: none that its strings or imports do not tell.
COMPUTED = {
    "_src.items.fields": "openai, only where it is loaded: the home of a class that the caller names",
    "_src.exports.lazy": "the home of a public name",
    "_src.exports.sdk_alias": "a module of the SDK, under our name",
    "_src.models.providers.litellm_and_any_llm": "a library, named by the function's caller",
    "_kits.cli.entry": "one of the modules in its table",
    "_kits.cli.runs_resume": "a module of the user",
    "_kits.conformance.__main__": "a module of the user",
    "_kits.conformance.fork_server": "a module of the user",
    "_kits.conformance.engines.__main__": "a module of the user",
    "_kits.conformance": "what it imports for type checkers, when it is used",
    "_kits.testing.realtime": "what it imports for type checkers, when it is used",
}


def allowed(importer: str, imported: str, *, by_name: bool = False) -> bool:
    if importer in WRITTEN:
        return True
    (layer, island), (other, other_island) = place_of(importer) or (KIT, ""), place_of(imported) or (KIT, "")
    if layer == KIT:
        return True
    if layer == EDGE_GROUND:
        return other <= 2 or other == EDGE_GROUND
    if layer == EDGE:
        reach = 3 if island in EDGES_OF_PARTS else 2
        return other <= reach or other == EDGE_GROUND or (other == EDGE and island == other_island)
    return other <= layer or (layer == FACE and other == EDGE and by_name)


def test_every_module_has_a_place_in_the_layers():
    homeless = [name for name in modules() if place_of(name) is None and name not in packages()]
    assert not homeless, f"add these to the tables in {Path(__file__).name}: {homeless}"


def test_imports_point_down_only():
    wrong = [
        f"{importer} (layer {place_of(importer)}) imports {imported} (layer {place_of(imported)})"
        for importer, found in every_import().items()
        for kind, imported in found
        if kind != "outside" and not allowed(importer, imported, by_name=kind == "by name")
    ]
    assert not wrong, "\n".join(wrong)


def test_of_an_islands_rooms_each_uses_only_those_before_it():
    wrong = []
    for entries, _ in ISLANDS.values():
        rooms = entries.split()
        for importer, found in every_import().items():
            for kind, imported in found:
                mine = [number for number, room in enumerate(rooms) if f"{importer}.".startswith(f"{room}.")]
                theirs = [number for number, room in enumerate(rooms) if f"{imported}.".startswith(f"{room}.")]
                if kind != "outside" and mine and theirs and mine < theirs:
                    wrong.append(f"{importer} imports {imported}")
    assert not wrong, "\n".join(wrong)


def circle_in(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is left of a graph without everything that is in no circle."""
    while graph:  # what imports nothing that is left, or is imported by nothing that is left, is in no circle
        needed = {to for name, needs in graph.items() for to in needs - {name}}
        left = {name: needs & graph.keys() for name, needs in graph.items() if name in needed}
        left = {name: needs for name, needs in left.items() if needs - {name}}
        if len(left) == len(graph):
            break
        graph = left
    return graph


def every_need() -> dict[str, set[str]]:
    """Which modules of ours each module imports, or reaches by name."""
    graph = {
        name: {to for kind, to in found if kind != "outside" and to in modules()}
        for name, found in every_import().items()
    }
    # A lazy face loads nothing by itself, so it closes no circle.
    return graph | {face: {"_src.exports.lazy"} for face in WRITTEN}


def test_no_modules_import_each_other_in_a_circle():
    assert not circle_in(every_need())


def room_of(module: str) -> str:
    """The innermost room that a module is in."""
    return max((entry for entry in places() if f"{module}.".startswith(f"{entry}.")), key=len, default="")


def test_no_rooms_import_each_other_in_a_circle():
    def floor_of(module: str) -> str:
        room = room_of(module)
        # An agent has tools, and a tool is given its agent's context: one floor.
        return "agents and tools" if room in ("_src.agents", "_src.tools") else room

    graph: dict[str, set[str]] = {}
    for name, needs in every_need().items():
        graph.setdefault(floor_of(name), set()).update(map(floor_of, needs - WRITTEN))
    assert not circle_in(graph)


def computes_a_name(tree: ast.Module) -> bool:
    """Whether a module imports another by a name that is not written at the call."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    by_name = [call for call in calls if ast.unparse(call.func).endswith(("import_module", "__import__"))]
    return any(not isinstance(call.args[0], ast.Constant) for call in by_name)


def test_names_of_modules_are_written_where_they_are_imported_by():
    """Else the two tests above would not see the import."""
    assert {name for name, tree in modules().items() if computes_a_name(tree)} == COMPUTED.keys()


def test_each_layer_uses_only_its_libraries():
    wrong = []
    for name, found in every_import().items():
        layer, island = place_of(name) or (KIT, "")
        if layer == KIT:
            continue
        may = {"msgspec", *ISLANDS[island][1].split()} if layer == EDGE else LIBRARIES.get(layer, set())
        outside = {top for kind, top in found if kind == "outside"} - sys.stdlib_module_names - {"__future__"} - may
        wrong += [f"{name} (layer {layer}) imports {top}" for top in sorted(outside)]
    assert not wrong, "\n".join(wrong)


def test_words_and_machines_have_no_clock_no_chance_and_nothing_that_waits():
    wrong = []
    for name, tree in modules().items():
        if (place_of(name) or (KIT, ""))[0] not in (1, 2):
            continue
        impure = {top for kind, top in every_import()[name] if kind == "outside" and top in IMPURE}
        wrong += [f"{name} imports {top}" for top in sorted(impure) if (name, top) not in ONLY_FOR_THEIR_ERRORS]
        for node in ast.walk(tree):
            if isinstance(node, ast.AsyncFunctionDef) and any(not isinstance(part, ast.Expr) for part in node.body):
                wrong.append(f"{name}.{node.name} is async and has a body")  # a protocol's `...` and docstring are not
    assert not wrong, "\n".join(wrong)


def test_the_rules_would_notice_a_forbidden_import():
    """The tests above can fail: the same functions find an import of each forbidden kind."""
    known = set(modules())
    memory, sqlite = "_src.sessions.backends.memory.memory_session", "_src.sessions.backends.sqlite.sqlite_session"
    sources = {
        "_src.runs.engine.advance": "def f():\n    from ..loop import loop",
        memory: "if TYPE_CHECKING:\n    from ..sqlite.sqlite_session import SQLiteSession",
        "_src.agents.agent": "import standfast.testing",
        "_src.agents.hooks": 'def f():\n    import_module("standfast._src.runs.api.runner")',
        "_src.agents.prompts": 'import_module("standfast.run")',
        "_src.tools.schema": 'HOMES = ("standfast._src.runs.loop.loop",)',
        "_src.runs.steps.nested_run": f'edge("{memory}")',
    }
    seen = {
        name: sorted({target for kind, target in imports(name, False, ast.parse(text), known) if kind != "outside"})
        for name, text in sources.items()
    }
    assert seen == {
        "_src.runs.engine.advance": ["_src.runs.loop.loop"],
        memory: [sqlite],
        "_src.agents.agent": ["testing"],
        "_src.agents.hooks": ["_src.runs.api.runner"],
        "_src.agents.prompts": ["run"],
        "_src.tools.schema": ["_src.runs.loop.loop"],
        "_src.runs.steps.nested_run": [memory],
    }
    assert not any(allowed(name, target, by_name=True) for name, targets in seen.items() for target in targets)
    assert not allowed("_src.runs.api.runner", memory)  # an edge only by name
    assert computes_a_name(ast.parse('import_module(f"standfast.{room}")'))


# --- the page that tells of it ---------------------------------------------------------------------------------------

REPOSITORY = SOURCE.parent.parent
PAGE = REPOSITORY / "docs" / "explanation" / "architecture.md"
TABLES_OF_FILES = (
    "Where does this go",
    "A run, file by file",
    "What a new backend of ours must be entered in",
    "What a new kind of tool needs",
    "Where the SDK's internals live here",
)


def rows_of_table(heading: str) -> list[list[str]]:
    """The cells of the table below a heading of the page, without its first two lines."""
    section = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def quoted_in(cell: str) -> list[str]:
    """What a cell quotes as code."""
    return re.findall(r"`([^`]+)`", cell)


def on_the_page(room: str) -> str:
    """How the page names a room: by its path; the backends and the wrappers together."""
    return re.sub(r"^(_src/sessions/(?:backends|wrappers))/.*", r"\1", room.replace(".", "/"))


def test_the_page_lists_every_room_with_its_layer():
    told = {room: row[0] for row in rows_of_table("Rooms and public modules") for room in quoted_in(row[1])}
    kinds = {EDGE_GROUND: "edge ground", EDGE: "edge", KIT: "kit"}
    assert told == {on_the_page(entry): kinds.get(layer, str(layer)) for entry, (layer, _) in places().items()}


def test_the_page_says_what_the_rooms_of_each_layer_import():
    layer_of = {on_the_page(room): layer for layer, rooms in LAYERS.items() for room in rooms.split()}
    needed: dict[str, set[str]] = {}
    for name, needs in every_need().items():
        needed.setdefault(on_the_page(room_of(name)), set()).update(on_the_page(room_of(to)) for to in needs - WRITTEN)
    for layer, rooms, _, may in rows_of_table("Rooms and public modules"):
        if layer.isdigit() and int(layer) < FACE:
            top = max((int(number) for number in re.findall(r"\d", may)), default=-1)
            told = {*quoted_in(may), *(room for room, its in layer_of.items() if its <= top)}
            for room in quoted_in(rooms):
                assert needed[room] - {room} <= told, f"what {room} may import"


def test_every_file_that_the_page_sends_a_reader_to_is_there():
    tables = [rows_of_table(heading) for heading in TABLES_OF_FILES]
    assert all(tables)
    named = [name for rows in tables for row in rows for name in quoted_in(row[1]) if "./dev" not in name]
    files = [name for name in named if "/" in name or name.endswith((".md", ".toml"))]
    assert [name for name in files if not (SOURCE / name).exists() and not (REPOSITORY / name).exists()] == []


def test_the_page_names_what_the_sdk_has():
    """A word of the SDK's internals that it has dropped would send a reader nowhere."""
    package = Path(agents.__file__).parent
    texts = "\n".join(file.read_text(encoding="utf-8") for file in package.rglob("*.py"))
    files = {file.relative_to(package).as_posix() for file in package.rglob("*.py")}
    named = [name for row in rows_of_table("Where the SDK's internals live here") for name in quoted_in(row[0])]
    assert named
    assert [one for one in named if not (one.endswith(".py") or re.search(rf"\b{one.split('.')[-1]}\b", texts))] == []
    assert [one for one in named if one.endswith(".py") and not any(file.endswith(one) for file in files)] == []


def test_every_promise_leads_to_a_file_that_names_it():
    """A newcomer finds any rule in two steps: the clause to its file, its number to the place in there."""
    kept: dict[str, str] = {}
    for clause, title, files in rows_of_table("Where each promise is kept"):
        (number,) = re.findall(r"\[(\w+)\]\(", clause)
        assert title == CLAUSES[number].title
        kept[number] = quoted_in(files)[0]
    assert sorted(kept) == sorted(CLAUSES)
    texts = {file: (SOURCE / file).read_text(encoding="utf-8") for file in set(kept.values())}
    assert [(number, file) for number, file in kept.items() if not re.search(rf"\b{number}\b", texts[file])] == []


# --- the tests stand where the source stands -------------------------------------------------------------------------

TESTS = Path(__file__).parent


def rows_about_tests(column: str) -> list[str]:
    """The first cells of the table in tests/README.md whose first column has this name."""
    table = (TESTS / "README.md").read_text(encoding="utf-8").split(f"\n| {column} |")[1].split("\n\n")[0]
    return [quoted_in(line.split(" | ")[0])[0] for line in table.splitlines()[2:]]


def test_every_folder_of_tests_is_a_room_or_is_told_of_as_none():
    """Whoever looks for the tests of a module finds them by its path."""
    homes = [SOURCE / "_src", SOURCE / "_kits"]
    rooms = {entry.partition(".")[2].replace(".", "/") for entry in places()}
    rooms = {room for room in rooms if any((home / room).is_dir() for home in homes)}
    themes = rows_about_tests("folder")
    folders = {file.parent.relative_to(TESTS) for file in TESTS.rglob("*.py")} - {Path()}
    tested = {around.as_posix() for folder in folders for around in (folder, *folder.parents)}
    lost = [
        folder.as_posix()
        for folder in folders
        if not any((home / folder).is_dir() for home in homes)
        and not any(around.as_posix() in themes for around in (folder, *folder.parents))
    ]
    assert not lost, f"neither folders of the source nor rows of tests/README.md: {sorted(lost)}"
    mirrored = [theme for theme in themes if any((home / theme).is_dir() for home in homes)]
    assert mirrored == [] == [theme for theme in themes if not (TESTS / theme).is_dir()]
    assert sorted(rooms - tested) == rows_about_tests("room"), "say in tests/README.md where a room is tested"
