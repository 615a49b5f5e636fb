"""Errors: the SDK's parameter, and a way through pickle for every one of them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import standfast
from standfast import GuardrailFunctionOutput, InputGuardrail, OutputGuardrail, OutputGuardrailResult
from standfast._src.agents.guardrails import InputGuardrailResult
from standfast._src.base import errors
from standfast._src.base.errors import StandfastError
from standfast._src.tools.tool_guardrails import ToolGuardrailFunctionOutput, ToolInputGuardrail


@pytest.mark.parametrize("name", ["AgentsException", "UserError", "MaxTurnsExceeded", "ModelBehaviorError"])
def test_the_text_may_be_given_under_the_sdks_name(name: str) -> None:
    error = getattr(standfast, name)(message="too many turns")
    assert (str(error), error.message, error.what) == ("too many turns",) * 3


def look(*arguments: Any) -> Any:
    return None


VERDICT = GuardrailFunctionOutput("because", True)
OWN_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "ModelRefusalError": ("no",),
    "ModelTimeoutError": (2.5,),
    "ToolTimeoutError": ("look", 2.5),
    "InputGuardrailTripwireTriggered": (InputGuardrailResult(InputGuardrail(look), VERDICT),),
    "OutputGuardrailTripwireTriggered": (OutputGuardrailResult(OutputGuardrail(look), "x", None, VERDICT),),
    "ToolInputGuardrailTripwireTriggered": (ToolInputGuardrail(look), ToolGuardrailFunctionOutput.raise_exception()),
    "ToolOutputGuardrailTripwireTriggered": (ToolInputGuardrail(look), ToolGuardrailFunctionOutput.raise_exception()),
}
ALL = sorted(
    (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, StandfastError)),
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_leaves_its_process_whole_but_for_the_run(kind: Any) -> None:
    error = kind(*OWN_ARGUMENTS.get(kind.__name__, ("what", "remedy")))
    error.run_data = lambda: "what a run holds cannot be pickled"
    error.extra = {"fact": 1}
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.args, again.run_data) == (str(error), error.args, None)
    facts = {name for name in vars(error) if name != "run_data"}
    assert {name: repr(getattr(again, name)) for name in facts} == {name: repr(getattr(error, name)) for name in facts}


def test_what_only_some_errors_have_is_kept() -> None:
    error = errors.SessionConflictError("moved", "Reload.", expected=1, actual=2)
    again = pickle.loads(pickle.dumps(error))
    assert (again.expected, again.actual) == (1, 2)
