"The awaited twin: twenty chats at once, pieces in order, errors and futures where they are awaited."
import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from faulty_server import FaultyServer, completion, say, sse, status

from memkit.models.lm import usage, watched
from memkit.models.endpoint import ChatEndpoint, EndpointError
from memkit.models.lm import ScriptedLM
from memkit.records import Message
from memkit.turn.engine import Twin
from memkit.turn.assistants import open_assistant

N = 20


def together(n=N):
    "An act that answers with the question, but nobody before `n` have asked: one after the other, it would wait for ever."
    gate = threading.Barrier(n)
    def act(h):
        gate.wait(60)
        asked = h.body["messages"][-1]["content"]
        (sse("You asked: ", asked, usage=(7, 3)) if h.body.get("stream") else say(completion(f"You asked: {asked}", usage=(7, 3))))(h)
    return act

def endpoint(server, **how): return ChatEndpoint(server.url, "m", api_key="k", **{"timeout": 90., "retries": 0} | how)

def question(i): return f"What is the capital of country number {i}?"

@pytest.mark.parametrize("name", ["generative-agents", "mark"])
def test_twenty_chats_at_once(name, tmp_path):
    heard = {i: [] for i in range(N)}
    async def chats():
        async with Twin(open_assistant(name, store=tmp_path/"s.sqlite3", model=endpoint(server))) as bot:
            turns = await asyncio.gather(*(bot.chat(f"user {i}", question(i), on_text=heard[i].append) for i in range(N)))
            return turns, [await bot.turns(f"user {i}") for i in range(N)]
    with FaultyServer(together()) as server: turns, kept = asyncio.run(chats())
    for i, turn in enumerate(turns):
        assert question(i) in turn.answer and "".join(heard[i]) == turn.answer
        assert turn.user == f"user {i}" and turn.extra["usage"]["prompt_tokens"] == 7
        assert [t.answer for t in kept[i]] == [turn.answer]

def test_twenty_questions_to_an_endpoint():
    async def ask():
        async with Twin(endpoint(server)) as lm:
            return await asyncio.gather(*(lm.generate([[Message(role="user", text=question(i))]]) for i in range(N)))
    with FaultyServer(together()) as server: replies = asyncio.run(ask())
    assert [r[0].text for r in replies] == [f"You asked: {question(i)}" for i in range(N)]

def test_a_stream_is_read_piece_by_piece():
    async def read():
        lm = Twin(endpoint(server))
        return [p async for p in await lm.stream([Message(role="user", text="q")])]
    with FaultyServer(sse("Rest ", "it.")) as server: assert asyncio.run(read()) == ["Rest", " it."]

def test_a_stream_that_is_left_ends_its_request():
    async def read():
        pieces = await Twin(endpoint(server)).stream([Message(role="user", text="q")])
        async for p in pieces: break
        await pieces.aclose()
        return p
    with FaultyServer(sse("Rest ", "it.", pause=30)) as server: assert asyncio.run(asyncio.wait_for(read(), 25)) == "Rest"

def test_errors_are_raised_where_they_are_awaited():
    async def ask(): await Twin(endpoint(server)).generate([[Message(role="user", text="q")]])
    with FaultyServer(status(401)) as server, pytest.raises(EndpointError, match="refused the key"): asyncio.run(ask())

def test_pieces_come_in_the_loops_thread_and_before_the_turn():
    seen = []
    async def chat():
        loop = threading.get_ident()
        bot = Twin(open_assistant("generative-agents", store=":memory:", model=ScriptedLM(["One two three."])))
        turn = await bot.chat("ann", "Count.", on_text=lambda p: seen.append((p, threading.get_ident() == loop)))
        return turn, list(seen)
    turn, before = asyncio.run(chat())
    assert before == [("One", True), (" two", True), (" three.", True)] and turn.answer == "One two three."

def test_calls_are_counted_for_whoever_awaits():
    async def ask():
        from memkit.models.lm import ask as sync_ask
        class Asks:
            def one(self): return sync_ask(ScriptedLM(["Yes."]), [Message(role="user", text="q")])
        with watched() as w: await Twin(Asks()).one()
        return usage(w.calls)["calls"]
    assert asyncio.run(ask()) == 1

def test_futures_and_attributes():
    class Works:
        name = "works"
        def later(self): return ThreadPoolExecutor(1).submit(lambda: 3)
    async def both(): return await Twin(Works()).later(), Twin(Works()).name
    assert asyncio.run(both()) == (3, "works")
    with pytest.raises(AttributeError): Twin(Works()).fly
    with pytest.raises(ValueError, match="threads must be 1 or more"): Twin(Works(), threads=0)
