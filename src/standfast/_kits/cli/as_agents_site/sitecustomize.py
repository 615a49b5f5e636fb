"""Make `import agents` give standfast in every Python process that `standfast as-agents` starts.

Python imports `sitecustomize` before the program, from the first folder of its path that has one. `as-agents` puts this
folder first, and child processes inherit that. A `sitecustomize` of the environment's own runs after this one.
"""

from __future__ import annotations

import os
import sys


def _install() -> None:
    wanted = os.environ.get("STANDFAST_AS_AGENTS")
    if not wanted:
        return
    try:
        from standfast import install_as_agents
    except ImportError:  # a child that is the Python of another environment, without standfast
        return
    install_as_agents(distribution=wanted == "distribution")


def _run_hidden() -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec("sitecustomize", [place for place in sys.path if os.path.abspath(place) != here])
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_install()
_run_hidden()
