"The arena: sets, entrants, a run, somebody else's run, and the leaderboard in a browser."
import json
import re
import sys
from datetime import datetime, timedelta

import pytest

import lab as labs
from memkit.arena.entrants import CONTROLS, RAW, Peer, PeerError, entrants, of_retriever, peers
from memkit.arena.measures import comes_back, fitting_pieces, turns_of
from memkit.arena.page import board, leaderboard, save_run
from memkit.arena.run import as_result, frame, joined, paired_rows, run_talk, run_values, tokens_for
from memkit.arena.sets import Ask, first_part, load_set, locomo, own_export, plain_talk, voices_talks, wrong_labels
from memkit.cli import main
from memkit.models.embed import MiniLM
from memkit.records import Turn
from memkit.turn.assistants import assistants

DAY = datetime.fromisoformat("2026-01-05T09:00+00:00")
SAID = [("s0", "I take 20 mg of lisinopril every morning.", "I see.", DAY),
        ("s0", "My sister bakes bread in a wood oven.", "Lovely.", DAY),
        ("s1", "My doctor raised my lisinopril to 40 mg.", "All right.", DAY + timedelta(days=9))]
ASKS = (Ask("Who bakes bread?", "single", ("1u",), ("sister",), after="s0"),
        Ask("What is my dose of lisinopril?", "update", ("2u",), ("40 mg",), ("20 mg",)),
        Ask("What is my cat called?", "unsaid", told=False))
TOY = plain_talk("toy", "toy", SAID, ASKS)
WHERE = {"code": "x", "started": "2026-01-05", "seconds": 1.}


def newest(turns, question): return [t.id for t in turns][::-1]


@pytest.fixture(scope="module")
def made():
    makers = {RAW: CONTROLS[RAW], "BM25": CONTROLS["raw turns, BM25"], "newest": of_retriever(newest)}
    return as_result(run_values([TOY], makers, progress=False), WHERE)


def test_the_wrong_labels_of_locomo_are_those_of_the_audit():
    names = [f"conv-{n}" for n in (26, 30, 41, 42, 43, 44, 47, 48, 49, 50)]
    answer, evidence = zip(*map(wrong_labels, names))
    assert (sum(map(len, answer)), sum(map(len, evidence))) == (99, 57)
    assert not any(a & e for a, e in zip(answer, evidence)) and wrong_labels("another") == (frozenset(), frozenset())


def test_a_file_of_locomos_form_is_read(tmp_path):
    turns = [{"dia_id": f"D1:{i}", "speaker": who, "text": "Hello."} for i, who in enumerate(("Ann", "Bob"), 1)]
    talk = {"speaker_a": "Ann", "speaker_b": "Bob", "session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": turns}
    qa = [{"question": "Who?", "answer": "Ann", "evidence": ["D1:1"], "category": 4}]*6
    (tmp_path/"l.json").write_text(json.dumps([{"sample_id": "conv-26", "conversation": talk, "qa": qa}]))
    found, = locomo(tmp_path/"l.json")
    assert len(found.asks) == 4, "questions 2 and 5 of conv-26 have a wrong answer"
    assert [bool(a.evidence) for a in found.asks] == [True, False, True, False], "1 and 4 a wrong citation"


def test_both_sides_of_a_round_can_be_forgotten_one_after_the_other():
    e = entrants()["full history"](TOY.conversation, MiniLM())
    e.study(TOY.conversation.rounds[:2], "s0")
    for turn in ("0u", "0a", "0u"): e.forget([turn])
    assert {t for f in e.recall("What do I take?", DAY + timedelta(days=1), 5) for t in f.turns} <= {"1u", "1a"}
    e.close()


def test_voices_that_score_trained_nothing():
    from memkit.reading.examples import SEALED
    talks = voices_talks(each=1)
    assert len(talks) > 5 and {t.id.split("-")[0] for t in talks} <= set(SEALED)
    asks = [a for t in talks for a in t.asks]
    assert {a.told for a in asks} == {True, False} and all(a.accept for a in asks)
    assert all(re.compile(p) for a in asks for p in (*a.accept, *a.reject))


def test_the_first_part_asks_only_what_was_said_by_then():
    part = first_part(TOY, 4)
    assert len(part.conversation.turns) == 4 and part.asks == ASKS[:1]


def test_an_export_of_ones_own(tmp_path):
    from memkit.widgets.draw.frames import write_turns
    turns = [Turn(id=f"t-{i}", user="u", session="s-1", at=DAY, text=text, answer="Yes.") for i, text in
             enumerate(("I work nights.", "Hello."))]
    write_turns(tmp_path/"mine.jsonl", turns)
    (tmp_path/"mine.questions.jsonl").write_text('{"question": "When do I work?", "evidence": ["work nights"]}\n')
    talk, = own_export(tmp_path/"mine.jsonl")
    assert talk.asks[0].evidence == ("0u",) and talk.conversation.turns[0].text == "I work nights."
    assert load_set("own", tmp_path/"mine.jsonl") == [talk]


def test_memorybank_is_read_from_the_file_that_is_named(tmp_path):
    (tmp_path/"mine.json").write_text('{"Ana": {"history": {"2023-04-27": [{"query": "Hello.", "response": "Hi."}]}}}')
    with pytest.raises(ValueError, match="mine.json has a label"): load_set("memorybank", tmp_path/"mine.json")
    with pytest.raises(FileNotFoundError, match="isn't here"): load_set("memorybank", tmp_path/"none.json")


def test_a_run_is_a_tidy_table_with_what_each_question_got(made):
    table = frame(made)
    one = table[(table.entrant == "newest") & (table.measure == "recall@5")]
    assert list(one.value) == [1., 1.] and list(one.turns) == [4, 6] and one.digest.nunique() == 2
    assert {"ms to write", "bytes", "right", "forgotten"} <= set(table.measure)
    assert (table[table.measure == "forgotten"].value == 1).all(), "nothing forgotten comes back"
    raw = made["values"][RAW]
    assert raw["right"][1] == 1 and raw["abstained"][2] == 1 == raw["right"][2], "the dose that holds; never told"


def test_tokens_for_the_same_recall_lie_between_budgets():
    import pandas as pd
    rows = [("x", f"recall in {n} tokens", v) for n, v in zip((32, 64, 128, 256, 512, 1024), (0, .2, .4, .4, .6, .6))]
    table = pd.DataFrame(rows, columns=["entrant", "measure", "value"])
    assert tokens_for(table, "x", .3) == 96 and tokens_for(table, "x", .7) is None and tokens_for(table, "x", 0) == 32


def test_another_run_joins_on_the_questions_that_both_have(made):
    asks = [*made["asks"][::-1], {"digest": "a question of theirs"}]
    theirs = {"asks": asks, "costs": {}, "values": {"newest": {"recall@5": [None, 0., 1., .5]}}}
    both = joined(made, theirs)
    assert both["values"]["newest (theirs)"]["recall@5"] == [1., 0., None]
    rows = [r for r in paired_rows(frame(both)) if r["row"].startswith("newest (theirs)")]
    assert [(r["metric"], r["ours"], r["n"]) for r in rows] == [("recall@5", -.5, 2)]


def test_words_that_others_said_too_do_not_count_as_come_back():
    from memkit.arena.entrants import Found
    words = "the blue boat lies in the harbour"
    found = [Found(words, ("1",))]
    assert comes_back(found, [words], []) and not comes_back(found, [words], [words])
    assert turns_of(fitting_pieces(found, 3)) == []


DIARY = '''
import re
from memkit.records import Change, Hit
from memkit.turn.engine import Assistant

class Diary(Assistant):
    "Every message, found by the words it shares."
    name, about = "diary", "every message"
    def recall(self, turn, k):
        asked = set(re.findall(r"\\w+", turn.query.lower()))
        hits = [Hit(item=m, score=len(asked & set(re.findall(r"\\w+", m.text.lower()))), source="diary")
                for m in self.store.list(turn.user)]
        return sorted(hits, key=lambda h: -h.score)[:k]
    def learn(self, turn, prepared):
        m = self.store.add(turn.user, turn.text, kind="entry", at=turn.at, turns=[turn.id])
        return [Change(kind="stored", memory=m.id, text=m.text)]
'''


def test_a_design_that_is_registered_competes_without_a_line_more(tmp_path, monkeypatch):
    (tmp_path/"diary_of_mine.py").write_text(DIARY)
    info = tmp_path/"diary_of_mine-1.0.dist-info"
    info.mkdir()
    (info/"METADATA").write_text("Metadata-Version: 2.1\nName: diary-of-mine\nVersion: 1.0\n")
    (info/"entry_points.txt").write_text("[memkit.assistants]\ndiary = diary_of_mine:Diary\n")
    monkeypatch.syspath_prepend(tmp_path)
    assistants.cache_clear()
    try:
        asks, cost = run_talk(entrants()["diary"], TOY)
        assert asks[0]["recall@5"] == 1 and asks[0]["forgotten"] == 1 and cost["bytes"] > 0
    finally: assistants.cache_clear()


def test_a_peer_that_is_not_installed_says_so():
    peer = Peer("langgraph", sys.executable, TOY.conversation, MiniLM())
    with pytest.raises(PeerError, match="langgraph"): peer.study(TOY.conversation.rounds, "s0")
    peer.close()


@pytest.mark.skipif(not peers(), reason="no peers here: make peers")
@pytest.mark.parametrize("name", peers())
def test_a_peer_finds_and_forgets(name):
    asks, cost = run_talk(peers()[name], TOY)
    assert asks[0]["recall@10"] == 1 and asks[0]["forgotten"] == 1 and cost["bytes"] > 0


@pytest.mark.parametrize("argv, says", [
    (["arena", "--set", "own"], "export a dialogue"), (["arena", "--set", "nothing"], "there are locomo"),
    (["mark", "--set", "locomo"], "belongs to arena"), (["arena", "--memory-only"], "malp")])
def test_the_command_refuses_what_cannot_be(capsys, argv, says):
    assert main(["experiment", *argv]) == 2 and says in capsys.readouterr().err


@labs.needed
def test_the_leaderboard_sorts_and_takes_another_run(made, chromium, tmp_path):
    (tmp_path/"board.html").write_text(leaderboard(made), encoding="utf-8")
    theirs = {"asks": made["asks"], "costs": {}, "values": {"their memory": {"recall@10": [.5, .5, None]}}}
    save_run(theirs, tmp_path/"theirs.json")
    page = chromium.new_page()
    wrong = []
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.goto(f"file://{tmp_path}/board.html")
    assert page.locator("tbody tr").count() == 3
    page.select_option("#set", "toy")
    page.click("button[data-m='name']")
    assert page.locator("tbody th").all_inner_texts() == sorted(made["values"])
    page.set_input_files("#file", tmp_path/"theirs.json")
    page.wait_for_selector("text=Added 1 entrants on 3 questions")
    assert "their memory" in page.locator("tbody th").all_inner_texts() and not wrong
    assert board(made, "toy").loc["newest", "recall@10"] == 1
    page.close()
