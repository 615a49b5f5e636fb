"""On a `conversation_id` the server may have calls of a reply that no run has got: they want outputs all the same.

As long as one has none the server refuses every request, so whoever ends such a run has to see to them.
"""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI

from standfast import (
    Agent,
    CallModelData,
    HostedMCPTool,
    InMemoryRunStore,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    RunStateError,
    UnfinishedRunError,
    UserError,
    function_tool,
    open_store,
)
from standfast.testing.loopback import Asked, Drop, Incomplete, LoopbackServer, Status, call, text

FIRST = {"run_id": "r0", "lease_ttl_s": 1.0}
QUESTION = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "bank", "name": "pay", "arguments": "{}"}


@function_tool
async def pay() -> str:
    """Pay."""
    return "paid"


def asks_to_pay(asked: Asked) -> Any:
    if asked.outputs:
        return "done"
    return [call("pay", {}), call("pay", {})] if asked.last_text == "pay" else "yes"


def clerk(client: AsyncOpenAI, *more: Any) -> Agent[Any]:
    return Agent(name="clerk", model=OpenAIResponsesModel("m", client), tools=[pay, *more])


async def said(agent: Agent[Any], given: Any, conversation: str, store: Any, **config: Any) -> Any:
    settings = RunConfig(run_store=store, **config)
    return await Runner.run(agent, given, conversation_id=conversation, run_config=settings)


def user(words: str) -> dict[str, Any]:
    return {"role": "user", "content": words}


@pytest.mark.parametrize("then", ["the next message", "given up", "resumed"])
async def test_calls_in_a_reply_that_was_cut_short_get_outputs(
    then: str, server: LoopbackServer, client: AsyncOpenAI
) -> None:
    server.rule, conversation, store = asks_to_pay, server.new_conversation(), InMemoryRunStore()
    agent, owed = clerk(client), []
    server.fault(Incomplete())
    with pytest.raises(Exception, match="incomplete"):
        await said(agent, "pay", conversation, store, **FIRST)
    if then == "given up":
        owed = await Runner.cancel_run(agent, "r0", run_store=store)
    elif then == "resumed":
        with pytest.raises(Exception, match="new run"):
            await Runner.resume(agent, "r0", run_store=store)
    for words in ("and now?", "and then?"):
        assert (await said(agent, [*owed, user(words)], conversation, store)).final_output == "yes"
        owed = []
    outputs = [item for item in server.history(conversation) if item["type"] == "function_call_output"]
    assert len(outputs) == 2
    assert "paid" not in {item["output"] for item in outputs}


async def test_giving_up_a_run_whose_answer_was_lost_hands_over_the_outputs_of_its_calls(
    server: LoopbackServer, client: AsyncOpenAI
) -> None:
    server.rule, conversation, store = asks_to_pay, server.new_conversation(), InMemoryRunStore()
    agent = clerk(client)
    server.fault(Drop(committed=True))
    server.fault(Status(500), on="/items", skip=1)  # nobody could tell then
    with pytest.raises(Exception, match="not known"):
        await said(agent, "pay", conversation, store, **FIRST)
    owed = await Runner.cancel_run(agent, "r0", run_store=store)
    assert [item["type"] for item in owed] == ["function_call_output"] * 2
    assert (await Runner.result(agent, "r0", run_store=store)).owed_items == owed
    assert (await said(agent, [*owed, user("and now?")], conversation, store)).final_output == "yes"


async def test_a_run_is_given_up_though_its_server_cannot_be_asked(server: LoopbackServer, client: AsyncOpenAI) -> None:
    server.rule, conversation, store = asks_to_pay, server.new_conversation(), InMemoryRunStore()
    agent = clerk(client)
    server.fault(Drop(committed=False))
    server.fault(Status(500), on="/items", skip=1, times=2)
    with pytest.raises(Exception, match="not known"):
        await said(agent, "pay", conversation, store, **FIRST)
    assert await Runner.cancel_run(agent, "r0", run_store=store) == []  # what was sent may be there
    with pytest.raises(RunStateError, match="has ended"):
        await Runner.resume(agent, "r0", run_store=store)


async def test_an_operator_who_cannot_ask_the_server_is_told_who_can(
    server: LoopbackServer, client: AsyncOpenAI, tmp_path: Any
) -> None:
    server.rule, conversation = asks_to_pay, server.new_conversation()
    agent = clerk(client)
    async with open_store(f"sqlite:///{tmp_path}/runs.db", create=True) as store:
        session = store.session("-")
        server.fault(Drop(committed=True))
        server.fault(Status(500), on="/items", skip=1)
        with pytest.raises(Exception, match="not known"):
            await said(agent, "pay", conversation, session.run_store(), **FIRST)
        with pytest.raises(RunStateError, match="cancel_run"):
            await store.cancel("r0", by="somebody")
        owed = await Runner.cancel_run(agent, "r0", run_store=session.run_store())
        assert len(owed) == 2
        await session.close()


async def test_an_approval_that_the_caller_brings_is_sent_once(server: LoopbackServer, client: AsyncOpenAI) -> None:
    """A failed run owes it, and its error hands it over: whoever brings it must not meet it in the request again."""
    conversation, store = server.new_conversation(), InMemoryRunStore()
    config: Any = {"type": "mcp", "server_label": "bank", "server_url": "https://x.example"}
    bank = HostedMCPTool(tool_config=config, on_approval_request=lambda request: {"approve": True})
    server.rule = lambda asked: [text("well")] if len(asked.context) > 2 else [QUESTION]
    agent = clerk(client, bank)

    def refuses_the_second(data: CallModelData[Any]) -> Any:
        if server.model_calls:
            raise UserError("this request is not to be sent", "Change the filter.")
        return data.model_data

    with pytest.raises(UserError) as caught:
        await said(agent, "pay", conversation, store, call_model_input_filter=refuses_the_second, **FIRST)
    assert any("owed_items" in note for note in caught.value.__notes__)
    assert caught.value.run_data is not None
    owed = caught.value.run_data.owed_items
    assert [item["type"] for item in owed] == ["mcp_approval_response"]
    await said(agent, [*owed, user("and now?")], conversation, store)
    kinds = [item["type"] for item in server.history(conversation)]
    assert kinds == ["message", "mcp_approval_request", "mcp_approval_response", "message", "message"]


@pytest.mark.parametrize("again", ["resumed", "run again"])
async def test_a_run_that_had_sent_nothing_finds_what_came_to_the_conversation_since(
    again: str, server: LoopbackServer, client: AsyncOpenAI
) -> None:
    """It was refused at its first request; another run came, asked for two payments, and failed behind them.

    C15: a run that is repeated settles no other one. The error names the run that goes first.
    """
    server.rule, conversation, store = asks_to_pay, server.new_conversation(), InMemoryRunStore()
    agent = clerk(client)
    server.fault(Status(429))
    with pytest.raises(Exception, match="429"):
        await said(agent, "and now?", conversation, store, **FIRST)
    server.fault(Status(429), skip=1)
    with pytest.raises(Exception, match="429"):
        await said(agent, "pay", conversation, store, run_id="r1")

    async def repeat() -> Any:
        if again == "resumed":
            return await Runner.resume(agent, "r0", run_store=store)
        return await said(agent, "and now?", conversation, store, **FIRST)

    with pytest.raises(UnfinishedRunError, match=r"run 'r1' .* has not ended"):
        await repeat()
    assert (await Runner.resume(agent, "r1", run_store=store)).final_output == "done"
    assert (await repeat()).final_output == "yes"
    outputs = [item["output"] for item in server.history(conversation) if item["type"] == "function_call_output"]
    assert outputs == ["paid", "paid"]
    assert (await said(agent, "and then?", conversation, store)).final_output == "yes"


@pytest.mark.parametrize("fault", [Status(429), Drop(committed=False)])
async def test_a_run_that_had_sent_nothing_is_refused_while_another_waits_there(
    fault: Any, server: LoopbackServer, client: AsyncOpenAI
) -> None:
    server.rule, conversation, store = asks_to_pay, server.new_conversation(), InMemoryRunStore()
    agent = clerk(client)
    asking = agent.clone(tools=[function_tool(name_override="pay", needs_approval=True)(lambda: "paid")])
    server.fault(fault)
    with pytest.raises(Exception, match=r"429|[Cc]onnection"):
        await said(agent, "and now?", conversation, store, **FIRST)
    assert (await said(asking, "pay", conversation, store, run_id="r1")).interruptions
    with pytest.raises(UnfinishedRunError, match="r1"):
        await Runner.resume(agent, "r0", run_store=store)
    state = await Runner.load(asking, "r1", run_store=store)
    for item in state.get_interruptions():
        state.approve(item)
    assert (await Runner.run(asking, state, run_config=RunConfig(run_store=store))).final_output == "done"
    assert (await Runner.resume(agent, "r0", run_store=store)).final_output == "yes"
    assert not [one for one in server.model_calls if one.error_message and not one.faults]
