"One way to ask: every call counted, answers shown as they come, JSON checked; through the turn of every design."
import json
import threading

import pytest
from faulty_server import FaultyServer, hang_up, sse, status
from hypothesis import given
from hypothesis import strategies as st

from memkit.models.lm import Call, UnusableAnswer, ask, ask_json, count_call, schema_of, usage, usage_line, watched, writing
from memkit.models.endpoint import ChatEndpoint, EndpointError
from memkit.models.lm import Reply, ScriptedLM
from memkit.records import Document, Message
from memkit.malp import coordinator as C
from memkit.maprec import detection as M, open_map
from memkit.mark import open_mark
from memkit.mark.agents import ListedMemories
from memkit.reading import validation as R
from memkit.turn.assistants import assistants, open_assistant

ASK = [Message(role="user", text="What causes flu?")]
SAYS = "A virus causes it. Rest and drink."
QUESTION = "What is the capital of France?"      # about the world: no design answers it from memory
every = pytest.mark.parametrize("name", assistants())


def opened(name, model=None, **settings):
    from memkit.turn.assistants import design
    made = design(name).Settings(**settings)
    model = model or ScriptedLM(lambda messages: SAYS)
    if name != "hybrid": return open_assistant(name, store=":memory:", model=model, settings=made)
    from memkit.hybrid import open_chatbot
    bot = open_chatbot(":memory:", [Document(id="paris", title="Paris", text="Paris is the capital of France.")], model, settings=made)
    bot.consent("ann")
    return bot


# --- counting

@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 99), st.integers(0, 99)), max_size=12))
def test_usage_adds_up(calls):
    made = [Call(p, Reply(text="", prompt_tokens=n, answer_tokens=m, seconds=0., finished=True)) for p, n, m in calls]
    u = usage(made)
    for key in ("calls", "prompt_tokens", "answer_tokens"): assert u[key] == sum(r[key] for r in u["parts"].values())
    assert u["calls"] == len(calls) and u["exact"] and (usage_line(u) == "no language model was asked") == (not calls)

def test_a_block_counts_its_own_threads_calls_unless_asked_for_all():
    model, seen = ScriptedLM(lambda messages: SAYS), {}
    def work(name):
        with watched() as w: ask(model, ASK); ask(model, ASK)
        seen[name] = len(w.calls)
    with watched() as mine, watched(threads=True) as everybodys:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads: t.start()
        for t in threads: t.join()
        ask(model, ASK)
    assert seen == dict.fromkeys(range(4), 2) and (len(mine.calls), len(everybodys.calls)) == (1, 9)
    with watched() as later: pass
    assert later.calls == []

def test_an_error_ends_the_block():
    with pytest.raises(RuntimeError, match="holds 0 replies"), watched(threads=True): ask(ScriptedLM([]), ASK)
    with watched() as w: count_call("x", [])
    assert w.calls == []


# --- showing

def test_only_the_innermost_block_is_shown_an_answer():
    outer, inner = [], []
    with watched(outer.append), watched(inner.append): ask(ScriptedLM([SAYS]), ASK, show=True)
    assert "".join(inner) == SAYS and outer == []
    with watched(outer.append): ask(ScriptedLM([SAYS]), ASK)
    assert outer == []
    writing()      # nobody waits

def test_a_model_that_cannot_stream_is_asked_as_ever():
    class Whole(ScriptedLM): stream = property(lambda self: (_ for _ in ()).throw(AttributeError()))
    heard = []
    with watched(heard.append) as w: ask(Whole([SAYS]), ASK, show=True)
    assert heard == [] and len(w.calls) == 1

@every
@pytest.mark.parametrize("settings", [{}, {"answers": "model"}], ids=["default", "model"])
def test_the_pieces_are_the_answer_in_every_design(name, settings):
    bot, pieces = opened(name, **settings), []
    turn = bot.chat("ann", QUESTION, on_text=pieces.append)
    assert "".join(pieces) == turn.answer and turn.answer
    silent = bot.chat("bob", QUESTION)
    assert silent.extra.get("usage", {}).get("calls") == turn.extra.get("usage", {}).get("calls")
    bot.close()

@every
def test_known_answers_are_shown_whole(name):
    bot, pieces = opened(name), []
    bot.chat("ann", "I am allergic to penicillin.")
    turn = bot.chat("ann", "Am I allergic to penicillin?", on_text=pieces.append)
    assert "".join(pieces) == turn.answer

@pytest.mark.parametrize("name", ["malp", "mark", "generative-agents"])
def test_an_answer_that_nothing_strikes_comes_in_pieces_before_anything_is_learned(name):
    bot, told = opened(name, **({"answers": "model"} if name == "malp" else {})), []
    def on_text(piece): told.append((piece, len(bot.store.turns("ann"))))
    turn = bot.chat("ann", QUESTION, on_text=on_text)
    assert [p for p, _ in told] == ["A", " virus", " causes", " it.", " Rest", " and", " drink."] and {n for _, n in told} == {0}
    assert turn.answer == SAYS and len(bot.store.turns("ann")) == 1

def test_what_may_be_struck_is_not_shown_before_the_check():
    false = "Paris is the capital of France. It has nine million towers."
    bot, pieces = opened("hybrid", ScriptedLM(lambda messages: false), answers="model"), []
    turn = bot.chat("ann", QUESTION, on_text=pieces.append)
    assert pieces == ["", turn.answer] and "nine million" not in turn.answer and "nine million" in turn.draft
    free, pieces = opened("hybrid", ScriptedLM(lambda messages: false), answers="model", check=False), []
    turn = free.chat("ann", QUESTION, on_text=pieces.append)
    assert len(pieces) > 5 and "".join(pieces) == turn.answer == false

def test_a_design_with_a_check_of_its_own_shows_nothing_before_it():
    from memkit.generative_agents import GenerativeAgents
    class Shouts(GenerativeAgents):
        def check(self, turn):
            from dataclasses import replace
            return replace(turn, answer=turn.draft.upper())
    bot, pieces = opened("generative-agents"), []
    loud = Shouts(bot.store, bot.model, bot.embedder)
    loud.chat("ann", QUESTION, on_text=pieces.append)
    assert pieces == ["", SAYS.upper()]


# --- usage of a turn

def test_a_turn_holds_what_the_server_counted():
    with FaultyServer(sse("Paris.", usage=(41, 3))) as server:
        bot = opened("generative-agents", ChatEndpoint(server.url, "m", api_key="k"))
        turn = bot.chat("ann", QUESTION, on_text=lambda piece: None)
    assert turn.extra["usage"] == {"calls": 1, "prompt_tokens": 41, "answer_tokens": 3, "exact": True,
                                   "parts": {"answer": {"calls": 1, "prompt_tokens": 41, "answer_tokens": 3}}}
    assert bot.turns("ann")[-1].extra["usage"] == turn.extra["usage"]

def test_a_turn_without_a_model_costs_nothing():
    bot = opened("malp", ScriptedLM([]))
    bot.chat("ann", "I am allergic to penicillin.")
    assert "usage" not in bot.chat("ann", "Am I allergic to penicillin?").extra

@pytest.mark.parametrize("act", [status(500), hang_up, sse("Rest ", "it", end=())])
def test_a_server_that_fails_stores_nothing(act):
    with FaultyServer(act) as server:
        bot = opened("generative-agents", ChatEndpoint(server.url, "m", api_key="k", retries=0))
        with pytest.raises(EndpointError): bot.chat("ann", QUESTION, on_text=lambda piece: None)
    assert not bot.store.turns("ann") and not bot.memories("ann")


# --- JSON

@pytest.mark.parametrize("shape", [C.Learned, C.UserSummary, ListedMemories, M.AnsweredTypes, M.AnsweredRows, R.Given], ids=lambda s: s.__name__)
def test_a_schema_is_strict_all_the_way_down(shape):
    def objects(s):
        if isinstance(s, list): return [o for x in s for o in objects(x)]
        return [] if not isinstance(s, dict) else [*([s] if s.get("type") == "object" else []), *(o for x in s.values() for o in objects(x))]
    found = objects(schema_of(shape))
    assert found and all(o["required"] == list(o["properties"]) and o["additionalProperties"] is False for o in found)

@given(st.text(max_size=60))
def test_any_answer_is_sent_back_as_a_message(text):
    model = ScriptedLM(lambda messages: text.encode("utf-8", "replace").decode())
    def read(answer): raise ValueError("no")
    with pytest.raises(UnusableAnswer, match=r"^no \(an answer of"): ask_json(model, ASK, read, "x", retries=2)
    assert len(model.asked) == 3 and model.asked[2][1].text


# --- one switch

SAID, RATED = "I am allergic to penicillin.", "I loved Alien, 5 stars."


def capable(messages):
    "What a model that can write JSON says to each part's question."
    task, said = messages[0].text, messages[-1].text
    if task == R.INSTRUCTIONS:
        text = json.loads(said)["message"]
        one = {"clause": text, "act": "tells-fact", "about": "user", "denied": False, "certainty": "stated", "attribute": "allergy", "keep": .9, "subject": "", "value": "", "time": ""}
        return json.dumps({"clauses": [one | {"act": R.ACTS[0], "certainty": R.CERTAINTY[0], "attribute": R.ATTRIBUTES[0], "about": R.ABOUT[0]}]})
    if task == C.LEARN: return json.dumps({"notes": [{"speaker": "user", "quote": SAID, "note": "The user is allergic to penicillin."}]})
    if task == C.SUMMARIZE: return json.dumps({"notes": [{"number": 1, "relevant": True, "relevance": .9, "type": "user-specific"}]})
    if task == M._PROMPT_TYPES: return json.dumps({"asks": False, "tells": True, "sure": .9})
    if task == M._ROWS: return json.dumps({"rows": [{"action": "rate", "title": "Alien", "rating": 5., "words": "loved", "stated": True}]})
    return '{"memories": []}' if "Answer with JSON alone" in task else SAYS

PARTS = {"hybrid": {"reader"}, "malp": {"reader", "coordinator"}, "mark": {"reader"}, "map": {"reader", "detector", "updater"}, "generative-agents": {"reader"}}

def prompted(name, model):
    if name != "hybrid": return open_assistant(name, store=":memory:", model=model, prompted=True)
    from memkit.hybrid import open_chatbot
    bot = open_chatbot(":memory:", [Document(id="paris", text="Paris is the capital of France.")], model, prompted=True)
    bot.consent("ann")
    return bot

@every
def test_prompted_is_one_switch_and_every_call_is_in_the_turn(name):
    model = ScriptedLM(capable)
    bot = prompted(name, model)
    turn = bot.chat("ann", RATED if name == "map" else SAID)
    u, parts = turn.extra["usage"], set(turn.extra["usage"]["parts"])
    if name == "malp":                        # its notes are taken after the answer
        assert bot.wait("ann") == []
        parts |= set(bot.turn("ann", turn.id).extra["learning usage"]["parts"])
    assert parts - {"answer", "rating"} == PARTS[name] and turn.detected["reader"] == "scripted"
    if name != "malp": assert u["calls"] == len(model.asked) and u["prompt_tokens"] == sum(model.count_tokens(model.render(m)) for m in model.asked)
    with watched(threads=True) as later: bot.close()
    assert {c.part for c in later.calls} == ({"residual agent", "user-question agent", "llm-response agent"} if name == "mark" else set())

@pytest.mark.parametrize("name", ["hybrid", "map", "generative-agents"])
def test_where_the_model_cannot_read_memkit_does_and_the_turn_says_so(name):
    bot = prompted(name, ScriptedLM(lambda messages: SAYS))
    turn = bot.chat("ann", RATED if name == "map" else SAID)
    assert turn.detected["reader"].startswith("memkit's own, as the model failed: the model's reading couldn't be used: there is no JSON")
    assert turn.detected["clauses"] and turn.extra["usage"]["parts"]["reader"]["calls"] == 2
    assert name != "map" or [c.kind for c in turn.changes] == ["rated"]
    bot.close()

def test_the_embedded_model_is_not_asked_for_json():
    with pytest.raises(ValueError, match="the embedded one can't write; name a capable model"): open_assistant("malp", store=":memory:", prompted=True)


@pytest.mark.parametrize("opening", [open_mark, open_map])
def test_a_papers_own_call_is_prompted_in_the_same_way(opening):
    with pytest.raises(ValueError, match="the embedded one can't write; name a capable model"): opening(":memory:", prompted=True)
    with opening(":memory:", ScriptedLM(capable), prompted=True) as bot: assert isinstance(bot.reader, R.PromptedReader)
