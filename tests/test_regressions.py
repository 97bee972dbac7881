"What once went wrong in the chatbot, its memories and the command line, and must not again."
import os
import subprocess
import sys
import threading
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings

from memkit.models.lm import ScriptedLM
from memkit.records import Document
from memkit.search.documents import PAPER, FusedRetriever
from memkit.store.store import MemoryStore
from memkit.hybrid import open_chatbot
from memkit.hybrid.fallback import calibrate
from memkit.hybrid.memory import ChromaMemory, MemorySettings, StoreMemory
from memkit.hybrid.memory import prepare_question
from test_cli import SECRET, chat, corpus, home, one_line, run, server  # noqa: F401, fixtures among them
from test_hybrid import ALWAYS, ASKED, SAID, chatbot, odd, prepared, retriever, rows, storable, store  # noqa: F401


@settings(max_examples=300, deadline=None)
@given(storable | odd)
def test_prepared_text_is_nfc_and_preparing_twice_changes_nothing(text):
    q = prepared(text)
    if q: assert unicodedata.is_normalized("NFC", q.text) and prepare_question(q.text) == q


@pytest.mark.parametrize("text", ["\u2066", "\u200d", "\u061c\u2069", "\U000e0041"])
def test_a_question_of_invisible_characters_is_empty(text):
    with pytest.raises(ValueError, match="empty"): prepare_question(text)


def test_chroma_after_a_transaction_that_was_dropped(store, embedder, tmp_path):
    memory = ChromaMemory(store, embedder, tmp_path/"chroma")
    memory.remember("ann", "s", "What is asthma?", "A disease of the airways.")
    with pytest.raises(KeyError), store.transaction("ann"):
        memory.remember("ann", "s", "How do I treat a burn?", "Cool it.")
        raise KeyError("the commit failed")
    memory.remember("ann", "s", "What helps against hay fever?", "Antihistamines.")
    found, exact = ({h.item.id: h.score for h in m.nearest("ann", "burn treatment")} for m in (memory, StoreMemory(store, embedder)))
    assert found == pytest.approx(exact, abs=1e-3)


def test_no_index_folder_outlives_a_dropped_transaction_and_a_withdrawal(store, embedder, tmp_path):
    memory = ChromaMemory(store, embedder, tmp_path/"chroma")
    with pytest.raises(KeyError), store.transaction("ann"):
        memory.remember("ann", "s", "How do I treat a burn?", "Cool it.")
        raise KeyError("the commit failed")
    memory.remember("ann", "s", "What helps against hay fever?", "Antihistamines.")
    store.forget("ann")
    assert not (tmp_path/"chroma").exists() or list((tmp_path/"chroma").iterdir()) == []


def test_chroma_after_another_process_forgot_one_and_added_one(store, embedder, tmp_path):
    memory, other = ChromaMemory(store, embedder, tmp_path/"chroma"), StoreMemory(store, embedder)
    first = memory.remember("ann", "s", "What is asthma?", "A disease of the airways.")
    second = memory.remember("ann", "s", "What is flu?", "A virus.")
    store.forget("ann", [first.id])
    third = other.remember("ann", "s", "How do I treat a burn?", "Cool it.")
    assert [h.item.id for h in memory.nearest("ann", "burn")] == [third.id, second.id]


def test_a_memory_forgotten_during_a_turn_costs_the_answer(retriever, store, embedder):
    def says(messages):
        for m in store.list("ann"): bot.forget("ann", [m.id])
        return "Fine."
    bot = chatbot(retriever, store, embedder, says, calibration=ALWAYS)
    bot.chat("ann", SAID)
    turn = bot.chat("ann", ASKED)
    assert turn.answer and turn.wrote


def test_consent_taken_back_during_the_turn(retriever, store, embedder, tmp_path):
    def says(messages):
        with MemoryStore(tmp_path/"memories.sqlite3") as other: other.forget("ann")     # another process, while the model writes
        return "Fine."
    bot = chatbot(retriever, store, embedder, says, calibration=ALWAYS)
    assert bot.chat("ann", SAID).wrote == () and rows(store)["memories"] == 0


def test_a_pool_of_nothing_is_refused():
    with pytest.raises(ValueError, match="pool of 1 or more"): MemorySettings(k=0, pool=0)


def test_a_memory_never_costs_more_than_its_share(retriever, store, embedder):
    bot = chatbot(retriever, store, embedder, calibration=ALWAYS)
    bot.chat("ann", "my warfarin "*200)
    turn = bot.chat("ann", "What about my warfarin?")
    assert turn.recalled == () or max(bot.model.count_tokens(s.text) for s in turn.sections if s.name == "memory" and s.kept) <= bot.settings.memory_tokens


def test_no_document_is_shown_without_its_words(store, embedder):
    text = ", ".join(["migraine", "headache", "light", "noise"]*60) + "."
    bot = chatbot(FusedRetriever([Document(id="x", title="Migraine", text=text)], embedder, keep_vectors=False), store, embedder, calibration=ALWAYS)
    turn = bot.chat("ann", "What about migraine, headache and light?")
    assert [s.text for s in turn.sections if s.kept and s.name == "document" and s.text.strip() in ("Migraine.", "")] == []


def test_no_documents_in_the_papers_mode_with_a_memory(store, embedder):
    bot = chatbot(FusedRetriever([], embedder, PAPER), store, embedder)
    bot.chat("ann", "My sister's ferret is called Quizzle.")
    assert bot.chat("ann", "What is my sister's ferret called?").recalled


@pytest.mark.parametrize("n", range(5))
def test_threads_of_one_user_open_one_index(store, embedder, tmp_path, n):
    StoreMemory(store, embedder).remember("ann", "s", "What is asthma?", "A disease.")
    memory, start = ChromaMemory(store, embedder, tmp_path/"chroma"), threading.Barrier(8)
    def go(_):
        start.wait()
        return len(memory.nearest("ann", "asthma"))
    with ThreadPoolExecutor(8) as pool: assert list(pool.map(go, range(8))) == [1]*8


def test_threads_chat_with_chroma(retriever, store, embedder, tmp_path):
    bot = chatbot(retriever, store, embedder, calibration=ALWAYS, memory=ChromaMemory(store, embedder, tmp_path/"chroma"))
    bot.consent("bob")
    with ThreadPoolExecutor(4) as pool: turns = list(pool.map(lambda n: bot.chat(("ann", "bob")[n % 2], f"I have asthma, attack {n}."), range(12)))
    assert len(bot.memories("ann")) == len(bot.memories("bob")) == 6


def test_a_record_without_text_and_id(capsys, tmp_path, home):
    (tmp_path/"c.jsonl").write_text('{"text": "fine"}\n{"title": "no text"}\n')
    one_line(*run(capsys, "chat", "--corpus", tmp_path/"c.jsonl", "--model", "http://127.0.0.1:9/v1#m"), "c.jsonl, line 2")


def test_quit_with_a_blank(capsys, monkeypatch, tmp_path, corpus, server, home):
    _, out, _ = chat(capsys, monkeypatch, server, corpus, tmp_path/"s.db", "/quit ", "How do I treat a burn?")
    assert not server.posts


def test_chroma_beside_a_store_named_by_url(capsys, monkeypatch, tmp_path, corpus, server, home):
    monkeypatch.chdir(tmp_path)
    chat(capsys, monkeypatch, server, corpus, f"sqlite:///{tmp_path}/s.db", "How do I treat a burn?", options=["--consent", "--memory", "chroma"])
    assert not (tmp_path/"sqlite:").exists()


def test_a_home_sign_in_the_stores_path(capsys, monkeypatch, tmp_path, corpus, server, home):
    monkeypatch.setenv("HOME", str(tmp_path/"me")); (tmp_path/"me").mkdir(); monkeypatch.chdir(tmp_path)
    chat(capsys, monkeypatch, server, corpus, "~/s.db", SECRET, options=["--consent", "--user", "u-1", "--memory", "chroma"])
    assert (tmp_path/"me"/"s.db").exists() and not (tmp_path/"~").exists()
    assert run(capsys, "forget", "--user", "u-1", "--yes", "--store", "~/s.db")[0] == 0


def test_forget_while_a_chat_with_chroma_is_open(capsys, monkeypatch, tmp_path, corpus, server, home):
    bot = open_chatbot(tmp_path/"s.db", corpus, ScriptedLM(lambda m: "Fine."), memory="chroma")
    bot.consent("u-1")
    (a,), (b,) = bot.chat("u-1", SECRET).wrote, bot.chat("u-1", "How do I treat a burn?").wrote
    assert run(capsys, "forget", "--user", "u-1", "--ids", a, "--yes", "--store", tmp_path/"s.db")[0] == 0
    turn = bot.chat("u-1", "How long do I cool a burn?")
    assert [h.item.id for h in turn.recalled] == [b] and turn.wrote


def test_two_chats_with_chroma(capsys, monkeypatch, tmp_path, corpus, server, home):
    bot = open_chatbot(tmp_path/"s.db", corpus, ScriptedLM(lambda m: "Fine."), memory="chroma")
    bot.consent("u-1"); bot.chat("u-1", SECRET)
    code, out, err = chat(capsys, monkeypatch, server, corpus, tmp_path/"s.db", "How do I treat a burn?", options=["--user", "u-1", "--memory", "chroma"])
    assert code == 0 and "sentences of documents" in out and "unexpected" not in err      # the store is searched instead


def test_bytes_that_are_no_utf8(tmp_path, corpus, server, home):
    done = subprocess.run([sys.executable, "-c", "from memkit.cli import main; raise SystemExit(main())", "chat", "--model", f"{server.url}#m", "--corpus", str(corpus), "--store", str(tmp_path/"s.db")],
                          input=b"How do I \xff treat a burn?\nHow do I treat a burn?\n", capture_output=True, timeout=600, env={**os.environ, "PYTHONUTF8": "0", "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0 and b"sentences of documents" in done.stdout, (done.returncode, done.stdout[-300:], done.stderr[-300:])


def test_a_failing_server_does_not_end_the_chat(capsys, monkeypatch, tmp_path, corpus, home):
    from faulty_server import FaultyServer, ok, status
    with FaultyServer(status(400), ok("Cool a burn.")) as server:
        code, out, err = chat(capsys, monkeypatch, server, corpus, tmp_path/"s.db", "How do I treat a burn?", "How do I treat a burn?")
    assert code == 0 and "sentences of documents" in out, err


def test_right_superscript(capsys, monkeypatch, tmp_path, corpus, server, home):
    _, out, _ = chat(capsys, monkeypatch, server, corpus, tmp_path/"s.db", "/right ²")
    assert "wants the number of a memory" in out


def test_a_calibration_holds_back_what_it_was_told_to():
    yes, no = [{"nearest": .84375, "ahead": 0.}], [{"nearest": .625, "ahead": .25}]
    c = calibrate([*yes, *no], [True, False], hold_back=.5)
    assert not c.enough(no[0]), (c.probability(no[0]), c.threshold)
