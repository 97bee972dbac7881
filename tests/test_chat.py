"The chat without a browser: all four assistants, everything by their own verbs, every error in place; the model says what it is told to say."
import subprocess
import sys
import time
from datetime import datetime, timezone
from xml.etree import ElementTree

import numpy as np
import pytest

from memkit.models.lm import ScriptedLM
from memkit.records import Document
from memkit.store.store import MemoryStore
from memkit.widgets.draw.frames import read_turns

pytest.importorskip("anywidget")
from memkit.widgets.chat.chat import Chat, chat, file_name           # noqa: E402
from memkit.widgets.chat.chat import PAUSE, Review, TwoPresses, ask_box   # noqa: E402

NASTY = "</p><script>alert(1)</script><img src=x onerror=alert(1)> & \u202e 'q' \"q\""
DOCS = [Document(id="burn", title="Burns", source="lesson", text="Cool a burn under running water for twenty minutes."), Document(id="penicillin", title="Penicillin allergy", text="Somebody who is allergic to penicillin must not take amoxicillin.")]
ALLERGY, ASKS = "I have been allergic to penicillin since I was a child.", "Am I allergic to penicillin?"


def say(messages):
    if "break" in messages[-1].text.lower(): raise RuntimeError("the model <b>broke</b>")
    return "I see."


def hybrid(store):
    from memkit.hybrid import open_chatbot
    bot = open_chatbot(store, DOCS, ScriptedLM(say))
    for user in ("ann", "bob"): bot.consent(user)
    return bot

def malp(store):
    from memkit.malp import open_malp
    return open_malp(MemoryStore(store), ScriptedLM(say))

def mark(store):
    from memkit.mark import open_mark
    return open_mark(MemoryStore(store), ScriptedLM(say), documents=DOCS)

def map_(store):
    from memkit.maprec import open_map
    from memkit.maprec.assistant import MapSettings
    return open_map(MemoryStore(store), ScriptedLM(say), settings=MapSettings(ask_model=False))


SAYS = {hybrid: (ALLERGY, ASKS), malp: (ALLERGY, ASKS), mark: ("In the clinic we say LFT for a liver function test. Please answer in short sentences.", "What is an LFT?"), map_: ("I loved The Matrix, 5 stars.", "Recommend me a film.")}
four = pytest.mark.parametrize("make", SAYS, ids=lambda f: f.__name__.strip("_"))


def twice(talk, ids):
    "Two presses, apart."
    talk.delete(ids)
    talk._two._last -= PAUSE
    talk.delete(ids)


def buttons(talk, nth=-1):
    "The thumbs beneath an exchange."
    return [b for row in talk._log.children[nth].children if hasattr(row, "children") for b in row.children[1].children]


@pytest.fixture
def ann():
    bot = malp(":memory:")
    talk = chat(bot, "ann")
    assert talk.send(ALLERGY) and talk.send(ASKS)
    return talk


@four
def test_a_conversation_with_each_of_the_four(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bot, (first, second) = make(tmp_path/"s.sqlite3"), SAYS[make]
    talk = chat(bot, "ann")
    assert talk.send(first), talk.error
    assert talk.send(second), talk.error
    assert "Answered" in talk.told and [s.turn.text for s in talk.said] == [first, second] and all(s.whole and s.stored for s in talk.said)
    talk.new_session()
    assert not talk.error and "session" in talk.told
    talk.send(second)
    talk._open.value = True
    assert not talk.error and set(talk._review.memories) == {m.id for m in bot.memories("ann")} and talk._review.memories
    recalled = [h.item for s in talk.said for h in s.turn.recalled]
    if recalled:      # MAP shows its model none here
        assert talk.judge(talk.said[-1], recalled[-1].id, True), talk.error
        assert "called right 1 time" in talk.told
    talk.export("mine")
    assert not talk.error and str(tmp_path/"mine.jsonl") in talk.told
    assert read_turns("mine.jsonl") == [s.turn for s in talk.said]
    one = next(iter(talk._review.memories))
    twice(talk, [one])
    assert not talk.error and "emoved" in talk.told and one not in {m.id for m in bot.memories("ann")} and one not in talk._review.memories
    twice(talk, None)
    assert not talk.error and not bot.memories("ann") and not talk.said and not bot.store.turns("ann")
    ElementTree.fromstring(talk._repr_mimebundle_()["image/svg+xml"])
    bot.close()
    bot.store.close()


def test_an_answer_grows_on_the_page_and_the_exchange_takes_its_place(monkeypatch):
    from memkit.malp import open_malp
    from memkit.malp.assistant import MalpSettings
    from memkit.widgets.chat import chat as chat_parts
    seen, now = [], iter(range(1000))
    monkeypatch.setattr(chat_parts, "monotonic", lambda: next(now))
    bot = open_malp(":memory:", ScriptedLM(lambda messages: "One <b>two</b> three."), settings=MalpSettings(answers="model"))
    talk = chat(bot, "ann")
    growing = talk._growing
    def watched(text):
        g = growing(text)
        g.widget.observe(lambda change: seen.append(change["new"]), "value")
        return g
    talk._growing = watched
    assert talk.send("What <i>is</i> a cold?"), talk.error
    assert len(seen) == 3 and all("&lt;i&gt;" in s and "<b>two" not in s for s in seen)
    assert "One</p>" in seen[0] and "&lt;b&gt;two&lt;/b&gt; three.</p>" in seen[-1]
    assert len(talk._log.children) == 1 and hasattr(talk._log.children[0], "children") and "Cost: " in talk.told
    assert chat_parts.Growing("q")._html().count("writing …") == 1


def test_an_answer_that_breaks_off_leaves_the_page():
    from memkit.malp import open_malp
    from memkit.malp.assistant import MalpSettings
    class Breaks(ScriptedLM):
        def stream(self, *args, **how):
            yield "One "
            raise RuntimeError("broken off")
    talk = chat(open_malp(":memory:", Breaks([]), settings=MalpSettings(answers="model")), "ann")
    assert not talk.send("What is a cold?") and "broken off" in talk.error and talk._log.children == () and not talk.assistant.turns("ann")


def test_a_rating_called_wrong_is_taken_back():
    bot = map_(":memory:")
    talk = chat(bot, "ann")
    talk.send("I loved The Matrix, 5 stars.")
    (row,) = bot.memories("ann")
    assert talk.judge(talk.said[0], row.id, False) and "taken back" in talk.told and not bot.memories("ann")


def test_mark_lets_a_judgement_be_turned_round_and_the_others_count_once(ann):
    right, wrong = buttons(ann)
    right.click()
    assert right.description == "✓ Right" and right.disabled and wrong.disabled
    bot = mark(":memory:")
    talk = chat(bot, "ann")
    talk.send(SAYS[mark][0])
    talk.new_session()
    talk.send(SAYS[mark][1])
    right, wrong, *_ = buttons(talk)
    right.click()
    assert "right 1 time and wrong 0" in talk.told and not wrong.disabled
    wrong.click()
    assert "right 0 times and wrong 1 time" in talk.told and wrong.description == "✓ Wrong" and right.description == "Right" and not right.disabled
    talk._open.value = True
    assert "What the domain learned" in talk._review._shared.value or not bot.shared_memories("ann")
    bot.close()


def test_what_was_used_survives_a_restart(tmp_path):
    talk = chat(malp(tmp_path/"s.sqlite3"), "ann")
    talk.send(ALLERGY); talk.send(ASKS)
    before = [s.turn for s in talk.said]
    talk.assistant.store.close()
    code = "import sys; from memkit import open_assistant, ScriptedLM; a = open_assistant('malp', store=sys.argv[1], model=ScriptedLM([])); print(a.explain(a.turns('ann')[-1]))"
    elsewhere = subprocess.run([sys.executable, "-c", code, str(tmp_path/"s.sqlite3")], capture_output=True, text=True, timeout=120)
    again = chat(malp(tmp_path/"s.sqlite3"), "ann")
    assert [s.turn for s in again.said] == before and before[-1].recalled and buttons(again)
    assert elsewhere.stdout.strip() == again.assistant.explain(before[-1]), elsewhere.stderr
    assert chat(again.assistant, "bob").said == []


def test_without_a_trace_the_words_are_left():
    from memkit.malp import open_malp
    from memkit.malp.assistant import MalpSettings
    talk = chat(open_malp(":memory:", ScriptedLM(say), settings=MalpSettings(trace=False)), "ann")
    assert talk.send(ALLERGY) and not talk.said[0].whole and "isn’t kept any more" in talk._log.children[0].children[0].value


def test_nothing_of_a_deleted_memory_is_left_on_the_page(ann):
    shown = ann.said[-1].turn.recalled[0].item
    ann.assistant.forget("ann", [shown.id])                  # in another cell
    ann.refresh()
    assert all(shown.text not in to_text(s.turn) for s in ann.said)
    page = " ".join(w.value for box in ann._log.children for w in box.children if hasattr(w, "value"))
    assert shown.text not in page and not buttons(ann)
    assert all(shown.text not in str(t) for t in ann.assistant.turns("ann")), "nor in a trace"


def to_text(turn) -> str: return f"{turn.prompt} {turn.considered}"


def test_what_isnt_stored_is_shown_and_said_so():
    from memkit.hybrid import open_chatbot
    bot = open_chatbot(":memory:", DOCS, ScriptedLM(say))
    talk = chat(bot, "ann")
    assert talk._note.layout.display is None and talk._agree.layout.display is None
    talk.send("What helps against a burn?")
    assert not talk.said[0].stored and "not remembered" in talk._log.children[0].children[0].value and not bot.store.turns("ann")
    talk.consent()
    talk.send("What helps against a burn?")
    assert [s.stored for s in talk.said] == [False, True] and talk._agree.layout.display == "none"
    twice(talk, None)
    assert talk.said == [] and not bot.has_consent("ann") and talk._agree.layout.display is None


def test_the_same_moment_twice_is_two_exchanges():
    from memkit.hybrid import open_chatbot
    at = datetime(2026, 11, 2, tzinfo=timezone.utc)
    bot = open_chatbot(":memory:", DOCS, ScriptedLM(say), clock=lambda: at)
    bot.consent("ann")
    talk = chat(bot, "ann")
    for text in ("What helps against a burn?", "And what else?"): talk.send(text)
    assert [s.turn.text for s in talk.said] == ["What helps against a burn?", "And what else?"]


def test_deleting_takes_two_presses_apart(ann):
    m, *others = ann.assistant.memories("ann")
    ann._open.value = True
    ann._review.list.value = [m.id]
    ann._review.chosen.click()
    assert ann._review.chosen.description == "Press again to delete 1 memory" and ann._review.keep.layout.display is None and ann._review.list.value == (m.id,)
    ann._review.chosen.click()
    assert ann.assistant.memories("ann"), "a double click isn't meant"
    ann._review.keep.click()
    assert ann.told == "Nothing was deleted." and ann._review.chosen.description == "Delete the chosen"
    ann._two._last -= PAUSE
    ann._review.chosen.click()
    ann._two._last -= PAUSE
    ann._review.everything.click()
    assert m in ann.assistant.memories("ann"), "another button begins anew"
    ann._review.list.value = []
    assert ann._two.what is None, "and so does another choice"
    ann._review.list.value = [m.id]
    ann._review.chosen.click()
    ann._two._last -= PAUSE
    ann._review.chosen.click()
    assert ann.assistant.memories("ann") == others and ann.told.startswith("Removed")


def test_every_error_is_told_in_place_and_is_escaped(ann, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for act, words in ((lambda: ann.send(" \n"), "nothing to send"), (lambda: ann.send("What makes a bone break?"), "RuntimeError: the model <b>broke</b>"), (lambda: ann.send("\ud800"), "half of a surrogate pair"), (lambda: ann.delete([]), "no memory is chosen"),
                       (lambda: twice(ann, [99]), "no memory 99"), (lambda: ann.change_user(""), "user is empty"), (lambda: ann.judge(ann.said[0], 99, True), "no memory 99"), (lambda: ann.export("../x.jsonl"), "plain name")):
        act()
        assert words in ann.error and 'role="alert"' in ann._status.value and "<b>broke" not in ann._status.value and ann._repr_mimebundle_()["text/plain"] == ann.error
    assert ann.user == ann._name.value == "ann" and not list(tmp_path.iterdir()) and len(ann.said) == 2
    ann.send("Better?")
    assert not ann.error and 'role="status"' in ann._status.value
    ann.assistant.store.close()
    assert not ann.send("And now?") and "closed" in ann.error
    ann._open.value = True
    assert 'role="alert"' in ann._status.value


def test_an_interrupted_answer_lets_the_chat_go_on(ann):
    def stop(user, text, on_text=None): raise KeyboardInterrupt
    ann.assistant.chat = stop
    assert not ann.send("How long?") and "stopped" in ann.error and not ann._ask.busy


def test_busy_while_an_answer_is_made(ann):
    seen, chat_ = [], ann.assistant.chat
    ann.assistant.chat = lambda user, text, on_text=None: (seen.append((ann._ask.busy, "Answering" in ann._status.value and 'role="status"' in ann._status.value)), chat_(user, text))[1]
    ann.send("Is it busy?")
    assert seen == [(True, True)] and not ann._ask.busy


def test_the_box_says_whether_it_went_even_where_the_answer_fails():
    sent = []
    box = ask_box(lambda text: text == "good")
    box.send = sent.append
    for text in ("good", "bad"): box._handle_custom_msg({"text": text}, [])
    broken = ask_box(lambda text: 1/0)
    broken.send = sent.append
    broken._handle_custom_msg({}, [])      # ipywidgets logs what a callback raises
    assert sent == [{"went": True}, {"went": False}, {"went": False}]


def test_text_is_data(ann):
    ann.send(NASTY)
    ann.change_user(NASTY)
    ann.send(NASTY)
    ann._open.value = True
    assert not ann.error
    page = " ".join(w.value for box in ann._log.children for w in box.children if hasattr(w, "value")) + ann._status.value + ann._review._detail.value
    assert "<script" not in page and "<img" not in page and "&lt;script&gt;" in page
    ElementTree.fromstring(ann._repr_mimebundle_()["image/svg+xml"])


def test_a_key_keeps_what_was_set_until_the_cell_says_something_else(ann):
    one = chat(ann.assistant, "ann", key="k")
    one.change_user("bob")
    one._open.value = True
    again = chat(ann.assistant, "ann", key="k")
    assert (again.user, again._open.value) == ("bob", True)
    assert chat(ann.assistant, "eve", key="k").user == "eve"
    assert chat(ann.assistant, "ann").user == "ann"


def test_exports(ann, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ann.export("a")
    assert read_turns(tmp_path/"a.jsonl") == [s.turn for s in ann.said]
    ann.export("a.jsonl")
    assert "choose another name" in ann.error
    ann.assistant.forget("ann", [ann.said[-1].turn.recalled[0].item.id])    # the details of what had shown it go with it
    ann.export("b.jsonl")
    assert [(t.text, t.answer, t.considered) for t in read_turns("b.jsonl")] == [(t.question, t.answer, ()) for t in ann.assistant.store.turns("ann")] and "1 of them without details" in ann.told
    ann.change_user("bob")
    ann.export("c.jsonl")
    assert "nothing of bob" in ann.error


@pytest.mark.parametrize("name", ["", " ", ".", "..", "a/b.jsonl", "/etc/x", "..\\x", "a\0b"])
def test_a_file_stays_in_the_working_folder(name):
    with pytest.raises(ValueError, match="plain name"): file_name(name)


def test_a_long_dialogue_is_shown_from_its_end():
    bot = malp(":memory:")
    for i in range(15): bot.store.add_turn("ann", "s-" + "0"*32, f"Question {i}?", "Yes.")
    talk = chat(bot, "ann")
    assert len(talk._log.children) == 6 and talk._earlier.description == "Show 6 earlier of 9" and "Question 14?" in talk._log.children[-1].children[0].value
    talk.show_earlier(); talk.show_earlier()
    assert len(talk._log.children) == 15 and talk._earlier.layout.display == "none" and "Session of" in talk._log.children[0].children[0].value and "Session of" not in talk._log.children[1].children[0].value
    assert "15 exchanges" in talk._repr_mimebundle_()["text/plain"]


def test_five_hundred_memories_are_shown_quickly():
    bot, rng = malp(":memory:"), np.random.default_rng(0)
    with bot.store.transaction("ann"):
        for i in range(500): bot.store.add("ann", f"The user likes number {i}.", rng.standard_normal(4))
    talk = chat(bot, "ann")
    talk._open.value = True
    assert len(talk._review.list.options) == 500
    best = min(_timed(talk.refresh) for _ in range(3))
    print(f"a redraw with 500 memories takes {1000*best:.0f} ms")


def _timed(act) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def test_what_isnt_an_assistant_is_refused():
    with pytest.raises(TypeError, match="a chat wants an assistant, such as open_assistant"): chat(MemoryStore(":memory:"))
    with pytest.raises(ValueError, match="user is empty"): Chat(malp(":memory:"), " ")


def test_two_presses_and_an_empty_review():
    now = [0.]
    two = TwoPresses(lambda: now[0])
    presses = []
    for t in (0., .1, .2, .3, .4, .5, .6): now[0] = t; presses.append(two.press("x"))       # a key that is held down
    assert not any(presses)
    review = Review(lambda ids: None, lambda: None)
    review.fill([])
    assert "Nothing is remembered" in review._detail.value and not review.list.options
