"What the widgets draw: safe, in words too, and never anything but what was recorded."
import re
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from memkit.models.lm import ScriptedLM
from memkit.reading.notes import Note, Round
from memkit.records import Document
from memkit.store.store import MemoryStore
from memkit.malp.dpem import DPeM
from memkit.malp.triage import DPeMSettings
from memkit.reading.facts import Relation
from memkit.widgets.draw.board import TALL, Board, Column, Row, draw_board
from memkit.widgets.steppers import dpem as dp
from memkit.widgets.steppers import steps as hy
from memkit.widgets.draw.scene import CAPTION, COLOURS, STYLE, Panel, Scene, caption_of, cut_to_width, width_of, wrap
from memkit.widgets.steppers.stepper import BEFORE, NONE, Step, differences, step_table, stepper

NASTY = "</text><script>alert(1)</script><img src=x onerror=alert(1)> & \x00\x1b\u202e \ud7ff \U0001f600 $x$ 'q' \"q\""
texts = st.text(max_size=80)


def parsed(scene: Scene) -> ElementTree.Element:
    tree = ElementTree.fromstring(scene.svg())
    kinds = {e.tag.split("}")[1] for e in tree.iter()}
    assert kinds <= {"svg", "title", "desc", "style", "rect", "text", "path", "g"}, "text never becomes a shape, a link or a script"
    outside = [v for e in tree.iter() for k, v in e.attrib.items() if k.startswith("on") or "href" in k or "url(" in v]
    assert not outside and "url(" not in STYLE and "@import" not in STYLE, "a picture refers to nothing outside itself"
    return tree


# --- scenes

@given(words=texts, label=texts, title=texts, key=texts, room=st.floats(0, 900), size=st.floats(4, 40))
def test_any_text_can_be_drawn(words, label, title, key, room, size):
    s = Scene(300, 100, words + "!").text(0, 10, label, size, width=room or None).box(0, 0, 10, 10, title=title).bar(0, 0, 50, 8, .5, title=title, mark=.3)
    with s.group(1, 2, key): s.text(0, 0, NASTY, struck=True).move(0, 0, 50, 20)
    tree = parsed(s)
    assert s.svg() == s.svg() and len(tree.findall(".//{*}text")) == 2


@given(text=texts, room=st.floats(20, 600), size=st.floats(8, 20), bold=st.booleans(), most=st.integers(1, 4))
def test_what_is_cut_has_room(text, room, size, bold, most):
    line = cut_to_width(text, room, size, bold)
    assert width_of(line, size, bold) <= room + 1e-6 or line == "…"
    lines = wrap(text, room, most, size, bold)
    assert len(lines) <= most and all(width_of(part, size, bold) <= room + 1e-6 or part == "…" for part in lines)
    if not any(part.endswith("…") for part in lines): assert " ".join(lines).split() == cut_to_width(text, 1e9).split()


def test_every_colour_has_a_light_and_a_dark_value_that_the_style_uses():
    for name, (light, dark) in COLOURS.items():
        assert re.fullmatch("#[0-9a-f]{6}", light) and re.fullmatch("#[0-9a-f]{6}", dark)
        assert f".f-{name}{{fill:{dark}}}" in STYLE and f'"true"] .mk-scene .f-{name}{{fill:{light}}}' in STYLE


@pytest.mark.parametrize("bad", [dict(width=0, height=5, words="w"), dict(width=5, height=float("nan"), words="w"), dict(width=5, height=5, words=" \n")])
def test_a_scene_without_size_or_words_is_refused(bad):
    with pytest.raises(ValueError): Scene(**bad)


# --- panels

def bar(n): return Scene(100, 20, f"It is {n}.") if n < 5 else (_ for _ in ()).throw(ValueError(f"{n} is too many <b>"))

def test_a_bad_setting_is_told_in_place_and_leaves_the_picture():
    w = pytest.importorskip("ipywidgets")
    panel = Panel({"n": w.IntText(1, description="n")}, bar)
    panel.controls["n"].value = 7
    assert panel.error == "7 is too many <b>" and 'role="alert"' in panel._below.value and "&lt;b&gt;" in panel._below.value and "It is 1." in panel._picture.svg
    panel.controls["n"].value = 2
    assert not panel.error and "alert" not in panel._below.value and "It is 2." in panel._picture.svg


def test_an_unforeseen_error_names_its_kind():
    w = pytest.importorskip("ipywidgets")
    panel = Panel({"n": w.IntText(0)}, lambda n: 1/n)
    assert panel.error.startswith("ZeroDivisionError")


def test_a_panel_comes_back_where_it_was_and_two_panels_dont_share():
    w = pytest.importorskip("ipywidgets")
    make = lambda key: Panel({"n": w.IntSlider(1, 0, 4)}, bar, key=key)
    make("here").controls["n"].value = 3
    assert (make("here").values(), make("there").values(), make(None).values()) == ({"n": 3}, {"n": 1}, {"n": 1})
    assert Panel({"m": w.IntSlider(1, 0, 4)}, lambda m: bar(m), key="here").values() == {"m": 1}, "another panel under the same key keeps its own default"


def test_where_nothing_can_be_clicked_a_picture_and_words_are_left():
    w = pytest.importorskip("ipywidgets")
    bundle = Panel({"n": w.IntSlider(1, 0, 4)}, bar)._repr_mimebundle_()
    assert ElementTree.fromstring(bundle["image/svg+xml"]).tag.endswith("svg") and bundle["text/plain"] == "It is 1."
    assert "application/vnd.jupyter.widget-view+json" in bundle


LONG = "Said 2 times. " + "A third time makes it long-term, and a refresh no longer takes it away. "*4

def test_one_caption_stands_below_and_the_full_words_are_for_screen_readers():
    w = pytest.importorskip("ipywidgets")
    panel = Panel({"n": w.IntText(1)}, lambda n: Scene(100, 20, LONG, "Said 2 of 3 times <b>." if n else ""))
    assert "Said 2 of 3 times &lt;b&gt;." in panel._below.value and "refresh" not in panel._below.value and 'role="status"' in panel._below.value
    assert panel._picture.words == panel._words.words == LONG, "the name of the drawing, and folded"
    assert panel.widget.children[-1] is panel._words and panel._repr_mimebundle_()["text/plain"] == LONG
    panel.controls["n"].value = 0
    assert "Said 2 times.</p>" in panel._below.value, "no caption: the first sentence of the words"
    assert Panel({"n": w.IntText(1)}, lambda n: Scene(9, 9, "It is 1."))._words.words == "", "nothing to open where the caption is all"


@given(words=texts.filter(str.strip), caption=texts)
def test_a_caption_is_one_short_line(words, caption):
    for scene in (Scene(9, 9, words*9), Scene(9, 9, words, caption*9)):
        assert len(scene.caption) <= CAPTION + 3 and "\n" not in scene.caption
    assert caption_of("“Is 2.5 mg enough?” asked Ann. Yes.") == "“Is 2.5 mg enough?” asked Ann."


# --- the stepper

def plain_steps(n): return [Step(title=f"Round {i}", words=f"Round {i} {NASTY}", scene=lambda i=i: Scene(99, 9, f"Picture {i}."), facts=lambda i=i: {NASTY: str(i), f"only {i}": "x"}) for i in range(n)]

def controls(panel): return {c.description: c for row in panel.widget.children[:2] for c in row.children}

def test_buttons_slider_and_list_move_together_and_stop_at_the_ends():
    pytest.importorskip("ipywidgets")
    panel = stepper(plain_steps(3))
    c = controls(panel)
    c["◀ Back"].click()
    assert panel.values()["step"] == 0
    for _ in range(5): c["Step ▶"].click()
    assert panel.values()["step"] == c["Jump to"].value == c["Play"].value == 2 and panel.scene.words == "Picture 2."
    c["Jump to"].value = 1
    assert panel.values()["step"] == 1 and "Picture 1." in panel._picture.svg
    assert not any(b.disabled for b in (c["◀ Back"], c["Step ▶"])), "a disabled button would throw the focus away"


def test_what_is_compared_is_escaped_and_in_order():
    pytest.importorskip("ipywidgets")
    panel = stepper(plain_steps(4))
    panel.set({"step": 1, "against": 3})
    assert "<script" not in panel.differences.html and "only 3" in panel.differences.html
    assert panel.differences.title.endswith("from “Round 1” to “Round 3”"), "from the earlier to the later, whichever is looked at"
    panel.set({"step": 1, "against": NONE})
    assert not panel.differences.html
    panel.set({"step": 0, "against": BEFORE})
    assert not panel.differences.html


def test_one_step_is_enough_and_none_is_refused():
    pytest.importorskip("ipywidgets")
    assert stepper(plain_steps(1)).scene.words == "Picture 0."
    with pytest.raises(ValueError, match="no steps"): stepper([])


def test_a_kept_place_in_a_longer_dialogue_is_let_go():
    pytest.importorskip("ipywidgets")
    stepper(plain_steps(9), key="shrinks").set({"step": 8})
    assert stepper(plain_steps(3), key="shrinks").values()["step"] <= 2
    assert step_table(plain_steps(2)).count("\n") >= 3


# --- DPeM

class Letters:
    name, dim = "letters", 26
    def embed(self, texts, kind="document"):
        rows = np.array([[t.lower().count(chr(97 + i)) + .01 for i in range(26)] for t in texts], dtype=np.float32)
        return rows/np.linalg.norm(rows, axis=1, keepdims=True)

def same_text(text, vector, known, vectors):
    found = [i for i, k in enumerate(known) if k == text]
    return (found[0], Relation("duplicate", 1., "the same words")) if found else None

def told(rounds, **how):
    "An assistant whose memory took these rounds: each a list of (fact, is it kept?)."
    store = MemoryStore(":memory:")
    dpem = DPeM(store, Letters(), DPeMSettings(**how), same_text)
    for i, said in enumerate(rounds):
        sentences = [f"I told you of {f} here." for f, _ in said]
        notes = [Note(text=t, shown=t, speaker="user", round=f"r{i}", place=j, kind="user-specific", probability=.9, kept=keep, reason="" if keep else "small talk") for j, (t, (_, keep)) in enumerate(zip(sentences, said))]
        dpem.take("u", Round(f"r{i}", " ".join(sentences) or "Hm.", ""), notes)
    return SimpleNamespace(memory=SimpleNamespace(dpem=dpem, name="DPeM"), store=store), dpem

facts = st.lists(st.tuples(st.sampled_from(["apples", "bees", "cats", "dogs", "elms", "figs"]), st.booleans()), max_size=4)

def board(assistant, i): return dp.round_board(dp.read_dialogue(assistant, "u"), i)

@given(rounds=st.lists(facts, max_size=6), size=st.integers(1, 5), refresh=st.integers(1, 6), every=st.integers(1, 3), theta=st.integers(1, 9))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_board_shows_what_the_memory_itself_says(rounds, size, refresh, every, theta):
    assistant, dpem = told(rounds, short_term_size=size, refresh_every=refresh, promote_every=every, promote_at=theta)
    d = dp.read_dialogue(assistant, "u")
    assert d.rounds == len(rounds)
    for i in range(len(rounds) + 1):
        state, (*working, short, long, history) = dpem.state("u", i), dp.round_board(d, i).columns
        held = [r for r in short.rows if not r.gone]
        assert sorted(r.text for r in held) == sorted(d.words[m] for m in state.short_term) and len(held) <= size
        assert sorted(r.text for r in long.rows if not r.gone) == sorted(d.words[m] for m in state.long_term)
        assert sorted(r.note for r in held) == sorted(f"{state.flags[m]} of {theta}" for m in state.short_term)
        assert sum(map(int, re.findall(r"\d+", history.note))) == len(state.history), "notes and older wordings together"
        if i: assert sum(r.why == "small talk" for r in working[0].rows) == sum(not keep for _, keep in rounds[i - 1])
        parsed(draw_board(dp.round_board(d, i)))
    steps = dp.dpem_steps(assistant, "u")
    assert len(steps) == len(rounds) + 1 and step_table(steps)
    for a, b in zip(steps, steps[1:]): differences(a, b)


def test_the_third_time_is_an_arrow_and_a_refresh_strikes_what_it_takes():
    assistant, _ = told([[("apples", True)], [("apples", True), ("bees", True)], [("apples", True), ("hello", False)], [("cats", True)]], promote_every=1, refresh_every=4)
    three, four = board(assistant, 3), board(assistant, 4)
    assert [(r.how, r.note) for r in three.columns[2].rows] == [("promoted", "said 3 times")] and [r.why for r in three.columns[0].rows] == ["", "small talk"]
    svg = draw_board(three).svg()
    arrows = [e for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("path") and "C" in e.get("d")]
    assert "promoted" in svg and "θ is 3" in svg and "line-through" in svg and "small talk" in svg and len(arrows) == 1
    _, short, long, history = four.columns
    assert {r.how for r in history.rows} == {"refreshed"} and len(history.rows) == 2 and not short.rows and len(long.rows) == 1
    moved = [str(x) for x in differences(*(dp.dpem_steps(assistant, "u")[i] for i in (2, 3)))]
    assert any("Short-term memory, 2 of 3 → Long-term memory, said 3 times" in m for m in moved)


def test_said_counts_the_user_and_the_count_towards_theta_everybody():
    "The user says it twice, the doctor repeats it once, and it is recalled twice: said 2 times, counted 3."
    assistant, dpem = told([])
    fact = "I told you of apples here."
    for i, who in enumerate(("user", "assistant", "user")):
        note = Note(text=fact, shown=fact, speaker=who, round=f"r{i}", place=0, kind="user-specific", probability=.9, kept=True, reason="")
        dpem.take("u", Round(f"r{i}", *((fact, "") if who == "user" else ("Hm.", fact))), [note])
        for m in assistant.store.list("u"): assistant.store.count("u", m.id, recalls=1, correct=1)
    d = dp.read_dialogue(assistant, "u")
    assert [[(dpem.state("u", i).flags[m], d.said[m]) for m in (*dpem.state("u", i).short_term, *dpem.state("u", i).long_term)] for i in (1, 2, 3)] == [[(1, 1)], [(2, 1)], [(3, 2)]]
    alone, other = told([], promote_at=1, promote_every=1)
    other.take("u", Round("r0", "Hm.", fact), [Note(text=fact, shown=fact, speaker="assistant", round="r0", place=0, kind="user-specific", probability=.9, kept=True, reason="")])
    [row] = board(alone, 1).columns[2].rows
    assert row.note == "by the assistant"


def test_what_was_forgotten_is_in_no_step():
    assistant, dpem = told([[("apples", True), ("bees", True)], [("cats", True)]])
    dpem.forget("u", [m.id for m in assistant.store.list("u") if "bees" in m.text])
    assert not any("bees" in r.text for i in (1, 2) for c in board(assistant, i).columns[1:] for r in c.rows)
    dpem.forget("u")
    assert [s.title for s in dp.dpem_steps(assistant, "u")] == ["Before the first round"]


# --- boards

def test_five_hundred_rows_are_one_picture_with_a_cell_each():
    rows = [Row(text=f"Fact {i} & {NASTY}", key=f"memory {i}", parts={"counted": (1 + i % 3)/3}, boxes=3) for i in range(1, 501)]
    tree = parsed(draw_board(Board(title="Many", bands=[[Column(name="Short-term memory", rows=rows, cards=True)]])))
    titles = {e.text.split(" ")[1] for e in tree.iter() if e.tag.endswith("title") and e.text and e.text.startswith("“Fact ")}
    assert {str(i) for i in range(1, 501)} == titles


shares = st.dictionaries(texts, st.floats(0, 1), max_size=4).map(lambda d: {k: v/max(1, sum(d.values())) for k, v in d.items()})
any_row = st.builds(Row, text=texts, key=texts, name=texts, label=st.just("") | texts, note=texts, was=st.just("") | texts, how=st.just("") | texts, why=texts, parts=shares,
                    mark=st.none() | st.floats(0, 1), boxes=st.integers(0, 6), gone=st.booleans(), lit=st.booleans(), into=st.just("") | texts)
any_column = st.builds(Column, name=texts, note=texts, rows=st.lists(any_row, max_size=9), cards=st.booleans(), width=st.floats(.5, 2), split=st.floats(.1, .7), ink=st.sampled_from(["blue", "orange", "deep"]))

@given(title=texts, said=st.lists(st.tuples(texts, texts), max_size=3), bands=st.lists(st.lists(any_column, min_size=1, max_size=3), max_size=4))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=[Phase.generate])
def test_any_board_can_be_drawn_told_and_compared(title, said, bands):
    b = Board(title=title + "!", said=said, bands=bands)
    scene, facts = draw_board(b), b.facts()
    parsed(scene)
    assert scene.words == b.words and scene.height <= TALL and len(scene.caption) <= CAPTION + 3 and all(isinstance(x, str) for pair in facts.items() for x in pair)


# --- the hybrid chatbot

DOCS = [Document(id="burn", title="Burns & <scalds>", text="Cool a burn under running water for twenty minutes."), Document(id="pen", title="Penicillin", text="Who is allergic to penicillin must not take amoxicillin."),
        Document(id="honey", text="Honey soothes a cough.")]

@pytest.fixture(scope="module")
def talked():
    from memkit.hybrid import open_chatbot
    bot = open_chatbot(":memory:", corpus=DOCS, model=ScriptedLM(lambda messages: "I know of an allergy." if "allergic since" in messages[-1].text else "Who is allergic to penicillin must not take amoxicillin."))
    bot.consent("u")
    bot.consent("v")
    turns = [bot.chat("u", t) for t in ("I am allergic since childhood, to penicillin.", "Can I take amoxicillin, with my allergy to penicillin?", NASTY.replace("\x00", "") + " what helps a burn?", "And for my allergy to penicillin?")]
    return bot, turns


def everything(bot): return [(m.id, m.text, m.recalls) for u in ("u", "v") for m in bot.memories(u)], len(bot.store.events("u")), len(bot.store.turns("u"))

def test_every_turn_can_be_drawn_told_and_compared(talked):
    bot, turns = talked
    steps = hy.turns_steps(turns)
    for s, t in zip(steps, turns):
        parsed(s.scene())
        assert s.turn is t and f"{t.prompt_tokens:,} of {t.budget:,} tokens" in s.words
        assert len(s.facts()) >= len(t.considered)
    shown = steps[1].scene().svg()
    assert ">M1<" in shown and all(d.title in shown or "&lt;scalds" in shown for d in DOCS if d.title)


def test_answering_again_changes_nothing_and_leaves_out_what_it_should(talked):
    bot, turns = talked
    second, was = turns[1], everything(bot)
    gone = second.recalled[0].item.id
    again, without = hy.answer_without(bot, second), hy.answer_without(bot, second, [gone])
    assert (again.prompt, again.answer, again.fallback) == (second.prompt, second.answer, second.fallback), "later exchanges aren't seen by an earlier turn"
    assert gone not in {c.hit.item.id for c in without.considered} and without.prompt != second.prompt and without.wrote == again.wrote == ()
    assert everything(bot) == was, "nothing was stored or counted"
    parsed(hy.draw_pair(second, without, [NASTY]))
    with pytest.raises(LookupError, match="considered the memories"): hy.answer_without(bot, second, [10_000])


def test_taking_away_by_button(talked):
    pytest.importorskip("ipywidgets")
    bot, turns = talked
    panel = hy.take_away(bot, turns)
    turn, memory, button = panel.widget.children[0].children
    memory.value = memory.options[1][1]
    assert "press “Answer again”" in panel.scene.svg()
    button.click()
    assert "Without “" in panel.scene.svg() and "only here" in panel.scene.svg()
    turn.value = len(turn.options) - 1
    assert not panel.error and set(dict(memory.options).values()) - {0} == {h.item.id for h in [t for t in turns if t.recalled][-1].recalled}
    with pytest.raises(ValueError, match="none to take away"): hy.take_away(bot, turns[:1])
