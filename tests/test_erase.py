"What one `forget` takes with it, whatever design opened the store; and what finishes it where it was cut off."
import functools
import gc
import os
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pytest

from memkit.cli import main
from memkit.models.embed import Remembered
from memkit.store.erase import WITHDRAWN, count_in_files, put_trace, read_traces, search_pieces, redacted
from memkit.search.vectors import open_chroma
from memkit.models.lm import ScriptedLM
from memkit.records import Document, utc_now
from memkit.store.store import MemoryStore
from memkit.hybrid import open_chatbot
from memkit.hybrid.memory import ChromaMemory
from memkit.store.erase import index_folder
from memkit.mark.assistant import MarkSettings
from memkit.mark.refined import DOMAIN
from memkit.turn.assistants import assistants, open_assistant

ASKED = "How often is the infusion pump calibrated?"
TOLD = "No. The infusion pump is calibrated every Monday in the vestibule."
CLAIM = "The infusion pump is calibrated every Monday in the vestibule."
AGAIN = ASKED


def quoting(messages):
    "A model that repeats what its prompt shows of the pump."
    shown = [line for line in "\n".join(m.text for m in messages).splitlines() if "calibrated every" in line]
    if messages[-1].text.startswith("No. "): return "You are right."
    return f"Good morning. {shown[-1]} Ask again at any time." if shown else "It is calibrated once a year."


BY_MODEL = {"settings": MarkSettings(answers="model")}   # the model writes from what it is shown

def opened(name, path, lm=quoting, **more):
    if name == "hybrid":
        return open_chatbot(path, [Document(id="d", text="Burns are cooled with water.")], ScriptedLM(lm), **more)
    return open_assistant(name, store=path, model=ScriptedLM(lm), **more)


def in_bytes(folder: Path, *values: bytes) -> int:
    "How often any piece of these values stands in any file below `folder`."
    wanted = set().union(*map(search_pieces, values))
    assert wanted
    return count_in_files([p for p in folder.rglob("*") if p.is_file()], wanted).total()


def as_bf16(v: np.ndarray) -> bytes: return (v.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()


def ward(path: Path) -> str:
    "Ann corrects the assistant; bob is told. Returns bob's turn."
    with opened("mark", path, **BY_MODEL) as a:
        a.chat("ann", ASKED); a.chat("ann", TOLD); a.end("ann").result()
        turn = a.chat("bob", AGAIN)
        assert "vestibule" in turn.prompt and "vestibule" in turn.answer and a.store.list(DOMAIN)
    return turn.id


# --- what others were told

@pytest.mark.parametrize("name", ["hybrid", "malp", "mark", "map"])
def test_one_forget_takes_what_others_were_told_whatever_design_opens_the_store(tmp_path, minilm, name):
    told = ward(path := tmp_path/"s.db")
    vector = minilm.embed([CLAIM])[0]
    assert in_bytes(tmp_path, b"vestibule", vector.tobytes())
    with opened(name, path) as a:
        receipt = a.forget("ann")
        assert receipt.erased, receipt
        state = {(p.name, p.state): p.count for p in receipt.places}
        assert state["what others are told", "gone"] == 1 and state["answers that quoted it", "redacted"] == 1
    assert in_bytes(tmp_path, b"vestibule", b"Monday in the", vector.tobytes(), as_bf16(vector)) == 0
    with opened("mark", path) as a:
        prompt = a.chat("bob", AGAIN).prompt
        assert not a.store.list(DOMAIN, superseded=True) and "vestibule" not in prompt and WITHDRAWN not in prompt
        kept, = [t for t in a.store.turns("bob") if t.id == told]
        assert kept.question == AGAIN and kept.answer == f"Good morning. {WITHDRAWN} Ask again at any time."
        assert a.store.alias("ann") not in repr(a.store.events(DOMAIN))


def test_the_command_line_needs_no_design(tmp_path, capsys):
    ward(path := tmp_path/"s.db")
    assert main(["forget", "--user", "ann", "--store", str(path), "--yes"]) == 0
    out = capsys.readouterr().out
    assert "the words are gone" in out and "answers that quoted it: 1 redacted" in out and "out of reach" in out
    assert in_bytes(tmp_path, b"vestibule", b"Monday in the") == 0


def told_by(store, texts: dict[str, str], encoder: str, vector) -> int:
    "A shared memory with a source for each person, the first one's words on display."
    turns = {u: store.add_turn(u, "s", text, "") for u, text in texts.items()}
    sources = [{"by": store.alias(u), "session": "s", "turns": [turns[u]], "at": utc_now().isoformat(), "source": "user", "text": text, "about": "",
                "reason": "correction", "strength": 1., "agent": "assistant"} for u, text in texts.items()]
    return store.add(DOMAIN, sources[0]["text"], vector, kind="residual", encoder=encoder,
                     meta={"source": "user", "sources": sources, "about": "", "reason": "correction", "strength": 1., "agent": "assistant", "metadata": {}}).id


@pytest.mark.parametrize("name", ["hybrid", "malp", "mark", "map"])
def test_what_two_said_is_rebuilt_from_the_other(tmp_path, minilm, name):
    path, other = tmp_path/"s.db", "The infusion pump is calibrated every week."
    with opened("mark", path, **BY_MODEL) as a:
        id = told_by(a.store, {"ann": CLAIM, "cid": other}, minilm.name, minilm.embed([CLAIM])[0])
        told = a.chat("bob", ASKED)
        assert "vestibule" in told.answer
    with opened(name, path) as a:
        receipt = a.forget("ann")
        assert [p.count for p in receipt.places if p.state == "rebuilt"] == [1]
        assert [(m.id, m.text, m.meta["users"]) for m in a.store.list(DOMAIN)] == [(id, other, 1)]
        [hit] = a.store.search(DOMAIN, minilm.embed([other])[0], encoder=minilm.name)
        assert hit.item.id == id and hit.score > .999
        kept = a.store.turn("bob", told.id)
        assert (kept.question, kept.answer) == (ASKED, f"Good morning. {WITHDRAWN} Ask again at any time.")
        assert a.store.turns("cid")[0].question == other
    assert in_bytes(tmp_path, b"in the vestibule", minilm.embed([CLAIM])[0].tobytes()) == 0


def test_a_memory_of_an_encoder_that_is_not_here_is_kept_without_a_vector(tmp_path):
    with opened("hybrid", tmp_path/"s.db") as a:
        told_by(a.store, {"ann": "The lift of ann stands still.", "bob": "The lift of bob stands still."}, "a model of yesterday", [1., 0.])
        receipt = a.forget("ann")
        assert [m.text for m in a.store.list(DOMAIN)] == ["The lift of bob stands still."]
        assert "a model of yesterday" in receipt.report() and not len(a.store.vectors(DOMAIN)[0])
    assert in_bytes(tmp_path, b"lift of ann") == 0


def test_an_answer_that_others_only_accepted_falls_with_what_it_told(tmp_path, minilm):
    "A shared memory whose one other source is the assistant, in a turn that was shown the first one's words."
    with opened("mark", tmp_path/"s.db") as a:
        told_by(a.store, {"ann": CLAIM}, minilm.name, minilm.embed([CLAIM])[0])
        turn = a.chat("bob", ASKED)
        again = {"by": a.store.alias("bob"), "session": turn.session, "turns": [turn.id], "at": utc_now().isoformat(), "source": "assistant",
                 "text": f"The pump is calibrated every Monday, in the vestibule.", "about": "", "reason": "accepted", "strength": 1., "agent": "assistant"}
        a.store.add(DOMAIN, again["text"], minilm.embed([again["text"]])[0], kind="residual", encoder=minilm.name,
                    meta={**{k: again[k] for k in ("source", "about", "reason", "strength", "agent")}, "sources": [again], "metadata": {}})
        a.forget("ann")
        assert not a.store.list(DOMAIN) and a.store.turns("bob")
    assert in_bytes(tmp_path, b"in the vestibule") == 0


def test_what_others_said_themselves_stays():
    told = f"As you say: {CLAIM} It hangs on the wall."
    assert redacted(told, [CLAIM]) == f"As you say: {WITHDRAWN} It hangs on the wall."
    assert redacted("They calibrate the infusion pump on Monday. Wash your hands.", [CLAIM], loose=True) == f"{WITHDRAWN} Wash your hands."
    assert redacted("The lift stands still.", [CLAIM], loose=True) == "The lift stands still."
    assert redacted("The pump is calibrated on Friday.", ["The pump is calibrated on Monday."], ["The pump is calibrated on Friday."], loose=True) == "The pump is calibrated on Friday."
    assert redacted("", [CLAIM]) == "" and redacted("Good.", [""]) == "Good."


# --- where words travel on

def test_words_are_followed_through_memories_made_of_answers(tmp_path):
    "A memory made of a quoting answer is shown elsewhere, its answer becomes a memory again, and so on."
    store, texts = MemoryStore(tmp_path/"s.db"), [CLAIM]
    ids = [store.add("ann", CLAIM, turns=[store.add_turn("ann", "s0", CLAIM, "Noted.")]).id]
    for n in range(1, 5):
        texts.append(f"Told {n} times: {texts[-1]}")
        turn = store.add_turn("ann", f"s{n}", f"Once more, number {n}?", texts[-1])
        assert put_trace(store, "ann", turn, b"seen", 1, quoted=[ids[-1]], quoted_turns=store.get("ann", ids[-1]).turns)
        ids.append(store.add("ann", texts[-1], turns=[turn]).id)
    receipt = store.forget("ann", [ids[0]])
    assert receipt.erased and {p.name: p.count for p in receipt.places}["answers that quoted it"] == 4
    left = [t.answer for t in store.turns("ann")] + [m.text for m in store.list("ann")]
    assert len(left) == 8 and not any("vestibule" in text for text in left) and all(WITHDRAWN in text for text in left)
    assert in_bytes(tmp_path, b"in the vestibule") == 0


def test_no_trace_keeps_the_old_words_of_a_changed_memory():
    store, answer = MemoryStore(":memory:"), f"You told me: {CLAIM} Anything else?"
    first = store.add("ann", CLAIM, turns=[store.add_turn("ann", "s0", CLAIM, "Noted.")]).id
    quoting_turn = store.add_turn("ann", "s1", "What did I say?", answer)
    assert put_trace(store, "ann", quoting_turn, b"seen", 1, quoted=[first])
    part = store.add("ann", f"The assistant said: {CLAIM}", turns=[quoting_turn]).id     # one sentence of the answer
    silent = store.add_turn("ann", "s2", "And the lift?", "I don't know.")
    assert put_trace(store, "ann", silent, b"the vestibule stands in this prompt", 1, quoted=[part])
    store.forget("ann", [first])
    assert store.get("ann", part).text == f"The assistant said: {WITHDRAWN}" and not read_traces(store, "ann")


def test_a_memory_of_two_answers_loses_what_both_repeat():
    store, other = MemoryStore(":memory:"), "The lift stands still on Sunday afternoons."
    ids = [store.add("ann", text, turns=[store.add_turn("ann", f"s{n}", text, "Noted.")]).id for n, text in enumerate((CLAIM, other))]
    told = [store.add_turn("ann", f"t{n}", "What is known?", f"Known: {text}") for n, text in enumerate((CLAIM, other))]
    for id, turn in zip(ids, told): assert put_trace(store, "ann", turn, b"seen", 1, quoted=[id])
    both = store.add("ann", f"Known: {CLAIM} Known: {other}", turns=told).id
    last = store.add_turn("ann", "u", "All of it?", f"1: {CLAIM} 2: {other}")
    assert put_trace(store, "ann", last, b"seen", 1, quoted=[both])
    store.forget("ann", ids)
    assert "vestibule" not in (text := store.turn("ann", last).answer + store.get("ann", both).text) and "Sunday" not in text


def test_short_sentences_of_a_deleted_message_stay_in_answers():
    store = MemoryStore(":memory:")
    first = store.add_turn("ann", "s", "Thank you! The Godfather. My locker stands behind the green boiler.", "Noted.")
    later = store.add_turn("ann", "s", "A film?", "Thank you for asking. I recommend The Godfather Part II.")
    seen = store.add_turn("ann", "other", "Where is my locker?", "My locker stands behind the green boiler.")
    assert put_trace(store, "ann", seen, b"seen", 1, quoted_turns=[first])     # its trace names the message
    store.forget("ann", turns=[first])
    assert store.turn("ann", later).answer == "Thank you for asking. I recommend The Godfather Part II."
    assert store.turn("ann", seen).answer == WITHDRAWN


@pytest.mark.parametrize("again", [False, True])
def test_later_answers_lose_a_deleted_message_unless_it_was_said_again(again):
    store, said = MemoryStore(":memory:"), "My locker stands behind the green boiler."
    first = store.add_turn("ann", "s", said, "Noted.")
    later = store.add_turn("ann", "s", "Where is it?", f"You told me: {said} Anything else?")
    elsewhere = store.add_turn("ann", "other", "Where?", f"You told me: {said}")     # nothing says that it comes from there
    if again: store.add_turn("ann", "s", f"As I said, {said.lower()}", "Yes.")
    store.forget("ann", turns=[first])
    assert store.turn("ann", later).answer == f"You told me: {said if again else WITHDRAWN} Anything else?"
    assert said in store.turn("ann", elsewhere).answer


# --- turns, one by one

@pytest.mark.parametrize("name", ["hybrid", "malp", "mark", "map"])
def test_a_turn_is_seen_and_forgotten_singly(tmp_path, name):
    path = tmp_path/"s.db"
    with opened(name, path, lambda messages: "Good.") as a:
        if a.settings.consent: a.consent("ann")
        one, two = a.chat("ann", "My bicycle is called Zebrafink."), a.chat("ann", "What is the capital of France?")
        assert [t.id for t in a.turns("ann")] == [one.id, two.id]
        before = a.store.turn("ann", two.id)
        receipt = a.forget("ann", turns=[one.id])
        assert receipt.erased and [t.id for t in a.turns("ann")] == [two.id] and a.store.turn("ann", two.id) == before
        with pytest.raises(LookupError): a.forget("bob", turns=[two.id])
    assert in_bytes(tmp_path, b"Zebrafink") == 0
    assert main(["forget", "--user", "ann", "--store", str(path), "--turn", two.id, "--yes"]) == 0
    with MemoryStore(path) as s: assert not s.turns("ann")


@pytest.mark.parametrize("name", ["hybrid", "malp", "mark", "map", "generative-agents"])
def test_a_request_to_forget_that_quotes_the_message_keeps_no_copy_of_it(tmp_path, name):
    "The answer proposes the message. It goes with it, though the request itself stays."
    path = tmp_path/"s.db"
    with opened(name, path, lambda messages: "Good.") as a:
        if a.settings.consent: a.consent("ann")
        debt = a.chat("ann", "I still owe my brother Zebrafink twelve hundred pounds.")
        asked = a.chat("ann", "Please forget what I told you about the debt to my brother.")
        if name != "map": assert "Zebrafink" in asked.answer     # MAP asks whether to delete everything
        receipt = a.forget("ann", turns=[debt.id])
        assert receipt.erased and "Zebrafink" not in a.chat("ann", "What do you know about my brother?").prompt
    assert in_bytes(tmp_path, b"Zebrafink") == 0


def test_the_command_line_shows_turns_and_memories(tmp_path, capsys):
    path = tmp_path/"s.db"
    with opened("malp", path, lambda messages: "Good.") as a: turn = a.chat("ann", "I am allergic to penicillin.")
    assert main(["forget", "--user", "ann", "--store", str(path), "--list"]) == 0
    out = capsys.readouterr().out
    assert turn.id in out and "penicillin" in out
    with MemoryStore(path) as s: assert s.turns("ann") and s.list("ann")


# --- names that nobody has

@pytest.mark.parametrize("name", list(assistants()))
def test_a_reserved_owner_is_nobodys_name(tmp_path, name):
    ward(path := tmp_path/"s.db")
    with opened(name, path) as a:
        for act in (lambda: a.forget(DOMAIN), lambda: a.chat(DOMAIN, "Hello"), lambda: a.memories(DOMAIN), lambda: a.turns(DOMAIN),
                    lambda: a.consent(DOMAIN), lambda: a.withdraw(DOMAIN), lambda: a.feedback(DOMAIN, 1, True)):
            with pytest.raises(ValueError, match="kept for"): act()
        assert a.store.list(DOMAIN)
    assert main(["forget", "--user", DOMAIN, "--store", str(path), "--yes"]) == 2


# --- this process

def kept_in_caches(word: str) -> list[str]:
    "The function caches of memkit whose arguments or values hold `word`."
    caches = [o for o in gc.get_objects() if isinstance(o, functools._lru_cache_wrapper) and str(o.__module__).startswith("memkit")]
    return [c.__qualname__ for c in caches if c.cache_info().maxsize != 1 and word in repr(gc.get_referents(c))]


def held_by(thing, word: str) -> list[str]:
    "What `thing` and all that it refers to hold with `word` in it."
    seen, todo, found = set(), [thing], []
    while todo:
        o = todo.pop()
        if id(o) in seen or isinstance(o, (type, types.ModuleType, types.FunctionType, types.FrameType)): continue
        seen.add(id(o))
        if isinstance(o, str) and word in o.lower(): found.append(o)
        todo += gc.get_referents(o)
    return found


@pytest.mark.parametrize("name", ["hybrid", "malp", "mark", "map", "generative-agents"])
def test_no_cache_of_this_process_keeps_the_words(tmp_path, name):
    with opened(name, tmp_path/"s.db") as a:
        if a.settings.consent: a.consent("ann")
        for text in ("I am allergic to Zebrafinkol.", "No. Zebrafinkol is taken twice a day.", "Am I allergic to Zebrafinkol? I loved the film Zebrafinkol, 5 stars."):
            a.chat("ann", text)
        if name == "mark": a.end("ann").result()
        a.forget("ann")
        assert not kept_in_caches("Zebrafinkol") and not kept_in_caches("zebrafinkol") and not held_by(a, "zebrafinkol")
        if name == "mark": assert not a.search.embedder._queries and not a.shown
        assert not a._heard.get("ann")


def test_the_cache_of_queries_can_be_emptied(minilm):
    e = Remembered(minilm, keep=True)
    e.embed(["Zebrafinkol"], "query"); e.embed(["Zebrafinkol"])
    e.forget()
    assert not e._queries and not e.documents


# --- what was cut off

KILLED = """
import os, sys
from pathlib import Path
from memkit.store import erase as module
from memkit.store import store as store_module
from memkit.models.embed import MiniLM
from memkit.store.store import MemoryStore
from memkit.hybrid.memory import ChromaMemory
store = MemoryStore(sys.argv[1])
memory = ChromaMemory(store, MiniLM(), Path(sys.argv[2]))
for user in ("ann", "bob"):
    memory.remember(user, "s", f"The bicycle of {user} is called Zebrafink.", "Good.")
    assert memory.nearest(user, "bicycle")
assert all((Path(sys.argv[2])/store.alias(u)).exists() for u in ("ann", "bob"))
store_module.erase = lambda *a, **k: os._exit(9)     # committed, and nothing more
store.forget("ann")
"""


@pytest.mark.parametrize("where", ["s.chroma", "elsewhere"])
def test_a_kill_between_the_commit_and_the_index_is_finished_at_the_next_open(tmp_path, minilm, where):
    path, vector = tmp_path/"s.db", minilm.embed(["The bicycle of ann is called Zebrafink."])[0]
    assert subprocess.run([sys.executable, "-c", KILLED, path, tmp_path/where], timeout=120).returncode == 9
    left = lambda: {p.name for p in (tmp_path/where).iterdir()}
    assert len(left()) == 2 and in_bytes(tmp_path, vector.tobytes())
    with MemoryStore(path) as s:
        assert s.pending == 0 and not s.turns("ann") and s.turns("bob")
        assert left() == {s.alias("bob")}
    assert in_bytes(tmp_path, b"bicycle of ann", vector.tobytes(), as_bf16(vector)) == 0


def test_an_index_that_cannot_be_removed_stays_pending_and_is_tried_again(tmp_path, minilm, monkeypatch):
    store = MemoryStore(tmp_path/"s.db")
    memory = ChromaMemory(store, minilm, index_folder(store.file))
    memory.remember("ann", "s", "My bicycle is called Zebrafink.", "Good."); memory.nearest("ann", "bicycle")
    def full(*a, **k): raise OSError(28, "No space left on device")
    with monkeypatch.context() as mp:
        mp.setattr("memkit.store.erase.shutil.rmtree", full)
        receipt = store.forget("ann")
        assert not receipt.erased and "No space left" in receipt.pending and store.pending == 1
        assert [p.state for p in receipt.places if p.name == "vector index"] == ["pending"]
        assert store.finish() == 1
    assert store.finish() == 0 == store.pending and not list(index_folder(store.file).iterdir())
    store.close()


def test_a_turn_of_anybody_tries_again_what_is_pending(tmp_path, minilm, monkeypatch):
    with opened("hybrid", tmp_path/"s.db", memory="chroma") as a:
        for u in ("ann", "bob"): a.consent(u); a.chat(u, "My bicycle is called Zebrafink."); a.chat(u, "What is my bicycle called?")
        def full(*x, **k): raise OSError(28, "No space left on device")
        with monkeypatch.context() as mp:
            mp.setattr("memkit.store.erase.shutil.rmtree", full)
            assert not a.forget("ann").erased
        a.chat("bob", "Good evening.")
        assert a.store.pending == 0 and not (index_folder(a.store.file)/a.store.alias("ann")).exists()


def test_forgetting_with_mark_takes_the_index_that_hybrid_made(tmp_path):
    path = tmp_path/"s.db"
    with opened("hybrid", path, memory="chroma") as a:
        a.consent("ann"); a.chat("ann", "My bicycle is called Zebrafink."); a.chat("ann", "What is my bicycle called?")
        folder = index_folder(a.store.file)/a.store.alias("ann")
        assert folder.exists()
    with opened("mark", path) as a: assert a.forget("ann").erased
    assert not folder.exists() and in_bytes(tmp_path, b"Zebrafink") == 0


def test_a_store_of_before_gets_the_table_of_what_is_left(tmp_path):
    import sqlite3
    with MemoryStore(tmp_path/"s.db") as s: s.add("ann", "Likes tea.")
    with sqlite3.connect(tmp_path/"s.db") as db:
        db.execute("DROP TABLE leftovers"); db.execute("UPDATE meta SET value = '4' WHERE key = 'schema'")
    with MemoryStore(tmp_path/"s.db") as s: assert s.forget("ann").erased and s.pending == 0


# --- weights

def test_weights_and_checkpoints_go_with_everything(tmp_path):
    weights = {kind: os.urandom(100_000) for kind in ("lora", "training")}
    with MemoryStore(tmp_path/"s.db") as s:
        s.add("ann", "Likes tea.")
        for kind, content in weights.items(): s.put_adapter("ann", content, "base", "d", kind=kind, at_most=1 << 20)
    with opened("map", tmp_path/"s.db") as a:
        receipt = a.forget("ann")
        assert [p.count for p in receipt.places if p.name == "weights and checkpoints"] == [2]
    assert in_bytes(tmp_path, *(w[40_000:40_064] for w in weights.values())) == 0


# --- while somebody else's answer is being written, and where a server is

def test_what_is_forgotten_while_a_model_writes_is_not_kept(tmp_path):
    ward(path := tmp_path/"s.db")
    def forgets(messages):
        with opened("map", path) as other: other.forget("ann")
        return quoting(messages)
    with opened("mark", path, forgets, **BY_MODEL) as a:
        turn = a.chat("bob", ASKED)
        assert "vestibule" in turn.prompt and a.store.turn("bob", turn.id).answer == f"Good morning. {WITHDRAWN} Ask again at any time."
    assert in_bytes(tmp_path, b"in the vestibule") == 0


def test_in_memory_an_erasure_waits_for_another_threads_transaction():
    with MemoryStore(":memory:") as store, ThreadPoolExecutor(1) as other:
        store.add("ann", "The user has a dog.")
        with store.transaction("ben"):          # all threads share the one connection
            calls = [other.submit(store.finish), other.submit(store.forget, "ann")]
            assert wait(calls, .1).not_done
            store.add("ben", "The user has a cat.")
        assert calls[0].result(5) == 0 and calls[1].result(5).memories == (1,)
        assert [m.text for m in store.list("ben")] == ["The user has a cat."]


def test_an_index_on_a_server_that_is_gone_stays_pending(tmp_path):
    with MemoryStore(tmp_path/"s.db") as s:
        s.add("ann", "Likes tea."); s.note_index("ann", "http://127.0.0.1:9")
        receipt = s.forget("ann")
        states = {p.name: p.state for p in receipt.places}
        assert not receipt.erased and "chroma run" in receipt.pending and s.pending == 1 and not s.list("ann")
        assert states["vector index"] == "pending" and states["the index server's files"] == "out of reach" and states["database"] == "gone"


def test_a_users_vectors_leave_a_chroma_server_whoever_forgets(tmp_path, minilm, chroma_server):
    address = f"http://127.0.0.1:{chroma_server}"
    def collections(): return {c.name for c in open_chroma(host="127.0.0.1", port=chroma_server).list_collections()}
    with opened("hybrid", tmp_path/"s.db", memory=address) as a:
        for u in ("ann", "bob"):
            a.consent(u); a.chat(u, f"The bicycle of {u} is called Zebrafink.")
            assert "Zebrafink" in a.chat(u, "What is my bicycle called?").prompt
        names = {u: a.store.alias(u) for u in ("ann", "bob")}
    assert set(names.values()) <= collections()
    with opened("map", tmp_path/"s.db") as a:            # another design, which never heard of the server
        states = {p.name: p.state for p in a.forget("ann").places}
        assert states["vector index"] == "gone" and states["the index server's files"] == "out of reach"
        assert names["ann"] not in collections() and names["bob"] in collections()
    assert in_bytes(tmp_path, b"bicycle of ann") == 0
