"Edges of the model protocol's own parts: requests, stop strings, the scripted model, and contracts that must catch what they promise to catch."
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memkit.models.lm import Reply, ScriptedLM, check_label_scorer, check_language_model, check_request, check_max_tokens, cut_at_stop
from memkit.records import Message


def user(text="Name a colour."): return [Message(role="user", text=text)]


@pytest.mark.parametrize("kwargs, contains", [
    ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": -3}, "-3"), ({"temperature": -.1}, "temperature"), ({"temperature": math.inf}, "inf"),
    ({"temperature": math.nan}, "nan"), ({"stop": [""]}, "stop"), ({"stop": "x"}, "list of strings")])
def test_bad_settings_are_refused(kwargs, contains):
    lm = ScriptedLM(["x"])
    with pytest.raises(ValueError, match=contains): lm.generate([user()], **kwargs)
    assert lm.asked == []    # nothing was used up


def test_a_single_conversation_in_place_of_a_list_is_explained():
    with pytest.raises(TypeError, match=r"generate\(\[messages\]\)\[0\]"): ScriptedLM(["x"]).generate(user())


@pytest.mark.parametrize("messages", [[], [Message(role="system", text="Be brief.")], [Message(role="assistant", text="Hello.")]])
def test_a_conversation_needs_a_user(messages):
    with pytest.raises(ValueError, match="conversation 1 holds no user message"): check_request([user(), messages], 8, 0., ())


@given(st.integers(0, 60), st.integers(1, 50), st.integers(1, 100))
def test_room_never_exceeds_the_window(prompt, context, wanted):
    if prompt >= context:
        with pytest.raises(ValueError, match=f"{prompt} tokens and the model's window holds {context}"): check_max_tokens(prompt, context, wanted)
    else:
        room = check_max_tokens(prompt, context, wanted)
        assert 1 <= room <= wanted and prompt + room <= context


@given(st.text("ab\n", max_size=20), st.lists(st.text("ab\n", min_size=1, max_size=3), max_size=3))
def test_cut_at_stop(text, stop):
    head, stopped = cut_at_stop(text, stop)
    assert text.startswith(head) and not any(s in head for s in stop)
    assert stopped == any(s in text for s in stop)
    if stopped: assert any(text[len(head):].startswith(s) for s in stop)


def test_script_in_order_and_its_end():
    lm = ScriptedLM(["one", "two"])
    assert [r.text for r in lm.generate([user("a"), user("b")])] == ["one", "two"]
    with pytest.raises(RuntimeError, match="holds 2 replies and this is question 3"): lm.generate([user()])
    assert [c[0].text for c in lm.asked[:2]] == ["a", "b"]


@given(st.text("ab .,é", max_size=30), st.integers(1, 6))
def test_scripted_counts(text, limit):
    lm = ScriptedLM(lambda messages: text)
    r = lm.generate([user()], max_tokens=limit)[0]
    assert r.answer_tokens <= limit and lm.count_tokens(r.text) == r.answer_tokens and text.strip().startswith(r.text)
    assert r.finished == (lm.count_tokens(text) <= limit)
    assert r.prompt_tokens == lm.count_tokens(lm.render(user()))


def test_scripted_refuses_a_prompt_before_answering_any():
    lm = ScriptedLM(["x", "y"], context=20)
    with pytest.raises(ValueError, match="window holds 20"): lm.generate([user("short"), user("word " * 30)])
    assert lm.asked == []


def test_scripted_replies_are_given_once_each_across_threads():
    lm = ScriptedLM([str(i) for i in range(200)])
    with ThreadPoolExecutor(8) as pool: texts = list(pool.map(lambda _: lm.generate([user()])[0].text, range(200)))
    assert sorted(texts, key=int) == [str(i) for i in range(200)]


def words(messages): return f"one two three four {messages[-1].text}"

class Broken(ScriptedLM):
    "A scripted model with one fault, for the contract to find."
    fault = ""
    def __init__(self): super().__init__(words)
    def render(self, messages): return "assistant:" if self.fault == "render" else super().render(messages)
    def generate(self, conversations, max_tokens=128, temperature=0., seed=0, stop=()):
        if self.fault == "empty" and not conversations: return [None]
        if self.fault == "max_tokens": max_tokens = 128
        if self.fault == "checks": max_tokens, temperature = max(1, max_tokens), abs(temperature)
        replies = super().generate(conversations, max_tokens, temperature, seed, () if self.fault == "stop" else stop)
        if self.fault == "order": replies = replies[::-1]
        if self.fault == "space": replies = [replace(r, text=r.text + "\n") for r in replies]
        if self.fault == "finished": replies = [replace(r, finished=False) for r in replies]
        if self.fault == "cost": replies = [replace(r, prompt_tokens=r.prompt_tokens + 1) for r in replies]
        return replies

class Moody(Broken):
    "Never says the same thing twice."
    def generate(self, conversations, max_tokens=128, temperature=0., seed=0, stop=()):
        replies = super().generate(conversations, max_tokens, temperature, seed, stop)
        return [replace(r, text=f"{id(r)}") for r in replies] if temperature else replies


@pytest.mark.parametrize("fault, says", [
    ("render", "render shows"), ("empty", "no conversation, no reply"), ("max_tokens", "max_tokens"), ("checks", "raises ValueError"), ("stop", "stop string"),
    ("order", "order"), ("space", "white space"), ("finished", "is finished"), ("cost", "prompt's cost")])
def test_the_contract_finds_each_fault(fault, says):
    make = type("Faulty", (Broken,), {"fault": fault})
    with pytest.raises(AssertionError, match=says): check_language_model(make)


def test_the_contract_finds_an_unseeded_model_unless_told_that_it_is_a_server():
    kept = []   # so that no two replies share an id
    class M(Moody):
        def generate(self, *a, **k):
            kept.append(super().generate(*a, **k))
            return kept[-1]
    with pytest.raises(AssertionError, match="same seed"): check_language_model(M)
    check_language_model(M, exact=False)


def test_the_contract_accepts_a_right_model(): check_language_model(Broken)


class Flat:
    fault = ""
    def score_labels(self, prompts, labels, prefix=""):
        if not labels or not all(labels): raise ValueError("labels")
        out = np.array([[-len(x) - (.01*len(prefix) if self.fault == "prefix" else 0) - (.01*len(prompts) if self.fault == "neighbours" else 0) for x in labels]
                        for _ in prompts], dtype=float).reshape(len(prompts), len(labels))
        return {"sign": -out, "shape": out.T[:2]}.get(self.fault, out)


@pytest.mark.parametrize("fault, says", [("sign", "finite log-probability"), ("shape", "finite log-probability"), ("prefix", "shared prefix"), ("neighbours", "neighbours")])
def test_the_scorer_contract_finds_each_fault(fault, says):
    with pytest.raises(AssertionError, match=says): check_label_scorer(type("Faulty", (Flat,), {"fault": fault}))
    check_label_scorer(Flat)


def test_reply_is_frozen():
    r = Reply(text="x", prompt_tokens=1, answer_tokens=1, seconds=0., finished=True)
    with pytest.raises(AttributeError): r.text = "y"


@pytest.mark.parametrize("module", ["lm", "local"])
def test_importing_loads_nothing_heavy(module):
    heavy = {"torch", "transformers", "tokenizers", "openai", "sqlalchemy", "chromadb", "onnxruntime", "pandas", "matplotlib", "gguf", "safetensors", "huggingface_hub"}
    code = f"import sys, memkit.models.{module}; print(' '.join(sorted({{m.split('.')[0] for m in sys.modules}} & {heavy!r})))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""
