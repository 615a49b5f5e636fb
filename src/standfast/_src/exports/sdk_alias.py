"""Import hook that makes `import agents` import standfast, for programs and packages written for the OpenAI Agents SDK.

The hook answers with standfast's own module objects and makes no copies of them, so `isinstance` holds between what
`agents` and what `standfast` gives, and a name that standfast does not have explains itself under both. It is the first
finder that Python asks: it works where the SDK is installed and where it is not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from standfast._src.base.errors import CallerError

if TYPE_CHECKING:
    from importlib.metadata import Distribution, DistributionFinder

SDK, OURS = "agents", "standfast"
DISTRIBUTION = "openai-agents"
SDK_VERSION = "0.24.0"
"""Version of the SDK whose public names standfast keeps."""


def install_as_agents(*, distribution: bool = False) -> None:
    """Make `import agents` give standfast, in this process and from now on.

    Call it before anything imports `agents`. Every module below `agents` is the module of that path below `standfast`
    and the same object. Calling it again changes nothing. Child processes need a call of their own.

    Args:
        distribution: also answer for the distribution `openai-agents` in `importlib.metadata`, with the version whose
            names standfast keeps. Packages that instrument the SDK look there before they do anything. Without it
            the answer is what is installed.

    Raises:
        CallerError: the SDK, or another package of that name, is imported already.
    """
    for name, module in sys.modules.items():
        # getattr: programs put objects of any kind there, and None where an import is to fail.
        if name == SDK and getattr(module, "__name__", "") != OURS:
            where = getattr(module, "__file__", None) or "an unknown place"
            raise CallerError(
                f"the package `agents` is already imported, from {where}, so standfast cannot take its name",
                remedy="Call install_as_agents() before anything imports `agents`, or start the program with "
                "`python -m standfast as-agents`.",
            )
    alias = next((finder for finder in sys.meta_path if isinstance(finder, _Alias)), None)
    if alias is None:
        alias = _Alias()
        sys.meta_path.insert(0, alias)
    alias.has_distribution = alias.has_distribution or distribution


class _Alias(MetaPathFinder):
    """Finder of `agents` and everything below it."""

    def __init__(self) -> None:
        self.has_distribution = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for standfast's module of the same path. Other names are left to the next finder."""
        root, dot, below = fullname.partition(".")
        if root != SDK:
            return None
        ours = f"{OURS}{dot}{below}"
        try:
            module = import_module(ours)
        except ModuleNotFoundError as error:
            if error.name != ours:
                raise  # a package that the module needs, with what installs it
            raise ModuleNotFoundError(_with_their_name(str(error), ours, fullname), name=fullname) from None
        own = module.__spec__
        assert own is not None
        spec = ModuleSpec(fullname, _Same(module, own), origin=own.origin)
        spec.submodule_search_locations = own.submodule_search_locations
        return spec

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterable[Distribution]:
        """Return the stand-in for the SDK's distribution if requested."""
        name = getattr(context, "name", None)
        if not self.has_distribution or (name is not None and re.sub(r"[-_.]+", "-", name).lower() != DISTRIBUTION):
            return []
        from standfast._src.exports.sdk_distribution import StandIn

        return [StandIn(DISTRIBUTION, SDK_VERSION, SDK)]


class _Same(Loader):
    """Loader of an already loaded module, under its own name."""

    def __init__(self, module: ModuleType, own: ModuleSpec) -> None:
        self.module, self.own = module, own

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module unchanged."""
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec, which Python has replaced by the alias's."""
        module.__spec__ = self.own

    def __getattr__(self, name: str) -> Any:  # get_source, get_data: what else the module's own loader can do
        return getattr(self.own.loader, name)


def _with_their_name(text: str, ours: str, theirs: str) -> str:
    """Return the text of an import error, with the module's name as written by the program."""
    return re.sub(rf"{re.escape(ours)}(?!\w|\.\w)", theirs, text)
