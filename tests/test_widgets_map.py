"MAP's steps: from what was recorded, and nothing but that; safe with any text; quick with a long profile."
import re
import time
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from memkit.models.lm import ScriptedLM
from memkit.maprec import open_map
from memkit.maprec.assistant import MapSettings
from memkit.maprec.items import Item, Rated, own_catalogue
from memkit.maprec.items import import_ratings, put_rating
from memkit.widgets.steppers import map as ms
from memkit.widgets.draw.board import draw_board
from memkit.widgets.draw.scene import width_of
from memkit.widgets.steppers.stepper import differences, stepper

SVG = "{http://www.w3.org/2000/svg}"


def texts_of(scene) -> list[str]: return [t.text or "" for t in ElementTree.fromstring(scene.svg()).iter(f"{SVG}text")]
def struck(scene) -> list[str]: return [t.text for t in ElementTree.fromstring(scene.svg()).iter(f"{SVG}text") if t.get("text-decoration")]


@pytest.fixture(scope="module")
def parts():
    "One set of parts, which take a second to open, for all tests."
    with open_map(":memory:", ScriptedLM(lambda messages: "I see."), own_catalogue()) as first: yield first


def fresh(parts, **settings):
    from memkit.store.store import MemoryStore
    a = parts
    return type(a)(ScriptedLM(lambda messages: "4" if "rating" in messages[-1].text else "I see."), MemoryStore(":memory:"), a.catalogue, a.detector, a.updater, a.frames, a.predictor, a.space,
                   MapSettings(**{"ask_model": False, **settings}))


@pytest.fixture(scope="module")
def talked(parts):
    with fresh(parts) as a:
        turns = [a.chat("ann", t) for t in ("I watched Alien, 5 stars. The Sound of Music bored me, 2 out of 5.", "Recommend me a book, please.", "I loved the second one!", "Hello there, nice day",
                                            "Alien is only a 3.", "Alien is only a 3.", "I take back what I said about The Sound of Music.", "What would I give Blade Runner?")]
        yield a, turns


# --- from what was recorded

def rows_of(board): return [r for r in board.rows if r.key]
def changed(board): return [(r.text, r.how, r.was) for r in rows_of(board) if r.how]


def test_the_rows_after_each_message_are_the_profile_of_that_time(parts):
    said = ["Alien, 5 stars.", "Heat was dull, 2 stars.", "Alien is only a 3.", "I take back what I said about Heat.", "Heat is a 4 after all.", "Thanks!"]
    with fresh(parts) as a:
        seen = []
        for text in said:
            a.chat("ann", text)
            seen.append({f"{m.meta['item']['title']} {m.meta['rating']:g}" for m in a.memories("ann")})
        boards = [b for b, _ in ms.map_boards(a, "ann")]
        assert [{f"{r.text.split(' (')[0]} {r.note}" for r in rows_of(b) if not r.gone} for b in boards[1:]] == seen
        assert [[(text.split(" (")[0], how, was) for text, how, was in changed(b)] for b in boards[1:]] == [
            [("Alien", "new", "")], [("Heat", "new", "")], [("Alien", "changed", "5")], [("Heat", "taken back", "2")], [("Heat", "new", "")], []]


def test_what_is_drawn_is_what_the_turns_say(talked):
    a, turns = talked
    for (b, turn), t in zip(ms.map_boards(a, "ann")[1:], turns, strict=True):
        kinds = b.columns[0].rows
        assert turn == t and [r.parts["probability"] for r in kinds] == [t.detected["shares"][k] for k in "ABC"] and {r.text[0] for r in kinds if r.lit} == set(t.detected["types"])
        recalled = [c for c in b.columns if c.name == "Recalled"][0].rows
        if t.considered: assert sorted(r.note for r in recalled if r.parts) == sorted(f"{c.hit.parts['likeness']:.2f}" for c in t.considered)
        told = [*(t.extra["found"].items if t.extra["found"] else ()), *t.extra["predicted"], *([t.extra["guess"]] if t.extra["guess"] else [])]
        assert [c.note for c in b.columns if "★" in c.note] == [f"{r.expected:.1f}★" for r in told[:3]]


def test_whole_turns_come_from_the_store_and_nothing_is_written(talked):
    a, turns = talked
    before = (a.store.events("ann"), a.store.turns("ann"))
    assert [t for _, t in ms.map_boards(a, "ann")[1:]] == turns
    assert (a.store.events("ann"), a.store.turns("ann")) == before


def test_a_turn_whose_trace_is_gone_keeps_its_words_and_its_rows(parts):
    with fresh(parts) as a:
        for text in ("Alien, 5 stars.", "Jaws was dull, 2 stars.", "Heat, 4 stars."): a.chat("ann", text)
        a.forget("ann", [next(m.id for m in a.memories("ann") if "Alien" in m.text)])
        bare = [b for b, t in ms.map_boards(a, "ann") if t and not t.model]
        assert bare and all(b.said[0][1] and rows_of(b) and b.more == ms.LOST for b in bare)
        for step in ms.map_steps(a, "ann"): ElementTree.fromstring(step.scene().svg()), step.facts()


def test_said_again_marks_the_row_and_nothing_else(talked):
    a, _ = talked
    assert changed(ms.map_boards(a, "ann")[6][0]) == [("Alien (1979)", "said again", "")]


def test_what_happens_between_messages_is_a_step_of_its_own(parts):
    with fresh(parts) as a:
        import_ratings(a.store, "ann", [Rated(i, 4.) for i in own_catalogue().items[:5]], progress=False)
        a.chat("ann", "Alien, 5 stars.")
        a.feedback("ann", a.memories("ann")[-1].id, False)
        put_rating(a.store, "ann", Rated(own_catalogue().items[0], 1.))
        a.chat("ann", "What would I give Aliens?")
        steps = ms.map_steps(a, "ann")
        assert [s.title for s in steps] == ["Before the first message: 5 new", "Message 1 of 2: 1 new", "Between two messages: 1 changed, 1 taken back", "Message 2 of 2: What would I give Aliens?"]
        assert len(struck(steps[2].scene())) == 3     # the title and stars of what was taken back, and the old stars of what changed


def test_a_forgotten_rating_is_in_no_picture(parts):
    with fresh(parts) as a:
        for text in ("Alien, 5 stars.", "Jaws was dull, 2 stars.", "What would I give Aliens?"): a.chat("ann", text)
        a.forget("ann", [next(m.id for m in a.memories("ann") if "Jaws" in m.text)])
        steps = ms.map_steps(a, "ann")
        assert not any("Jaws" in s.words + s.scene().svg() for s in steps)
        assert "1 memory forgotten" in steps[-1].words and any("Alien (1979)" in s.words for s in steps)
        a.forget("ann")
        assert len(ms.map_steps(a, "ann")) == 1


def test_somebody_else_is_in_no_step(talked):
    a, _ = talked
    assert [s.title for s in ms.map_steps(a, "bob")] == ["Before the first message"]


def test_what_the_model_was_shown_and_said(parts):
    with fresh(parts, ask_model=True, recalled=1) as a:
        turns = [a.chat("ann", t) for t in ("Alien, 5 stars. Jaws was dull, 2 stars.", "What would I give Aliens?")]
        b = ms.map_boards(a, "ann")[-1][0]
        recalled, aliens = [c for c in b.columns if c.name == "Recalled"][0], b.columns[-1]
        *ratings, alike, bold = recalled.rows
        assert sorted((r.lit, r.why) for r in ratings) == [(False, "not shown"), (True, "")]
        assert alike.text == "bar: similarity to Aliens" and bold.text == "bold: the language model saw it"
        says = turns[-1].extra["model says"]["Aliens (1986)"]
        assert [r.mark for r in aliens.rows[:5]] == list(says) and aliens.rows[5].text.startswith("line: language model, ")
        assert [r.parts["by the ratings"] for r in aliens.rows[:5]] == list(turns[-1].extra["predicted"][0].shares), "one scale for all bars"


def test_a_long_title_has_two_lines_and_is_whole_in_the_words(parts):
    with fresh(parts) as a:
        for text in ("I watched Alien, 5 stars.", "Blade Runner was great, 4 stars.", "Recommend me a book, please."): a.chat("ann", text)
        b = ms.map_boards(a, "ann")[-1][0]
        stars = [c for c in b.columns if "★" in c.note]
        lines = texts_of(draw_board(b))
        assert any(c.name not in lines and sum(line in c.name for line in lines if len(line) > 3) >= 2 for c in stars), "a long title has two lines"
        for c in stars: assert f" {c.name}, {c.note}: “1 ★”" in b.words


# --- words, facts and pictures

def test_facts_tell_what_is_different(talked):
    a, turns = talked
    steps = ms.map_steps(a, "ann")
    found = {d.name: (d.before, d.after) for d in differences(steps[4], steps[5])}
    assert found["Alien (1979)"] == ("Profile, 5", "Profile, 3")
    assert steps[8].facts()["expected of Blade Runner (1982), when last told"] == f"{turns[7].extra['predicted'][0].expected:.2f} of 5"
    assert steps[8].turn == turns[7] and steps[0].turn is None


def test_why_a_kind_was_followed_against_its_probability(talked):
    _, turns = talked
    def turn(types, shares): return replace(turns[0], detected={"types": types, "shares": shares})
    f = turn(("A", "B"), {"A": .3, "B": .4, "C": .42})
    assert ms._chosen(f, "B") == "a rating was found in it" and ms._chosen(f, "A") and not ms._chosen(f, "C")
    assert ms._chosen(turn(("A",), {"A": .3, "B": .9, "C": .07}), "B") == "it asks for a rating, and tells none"


def test_headings_leave_room_for_each_other(parts):
    "Of two texts on one line, the left one ends before the right one begins."
    with fresh(parts, ask_model=True) as a:
        turns = [a.chat("ann", t) for t in ("Alien, 5 stars. Jaws was dull, 2 stars. Heat was fine, 3 stars.", "What would I give Aliens?", "Recommend me a book.", "Aliens, 4 stars.", "Thanks")]
        for step in ms.map_steps(a, "ann"):
            lines = {}
            for e in ElementTree.fromstring(step.scene().svg()).findall(f"{SVG}text"):
                x, w = float(e.get("x")), width_of(e.text or "", float(e.get("font-size")), e.get("font-weight") == "700")
                left = {None: x, "middle": x - w/2, "end": x - w}[e.get("text-anchor")]
                lines.setdefault(e.get("y"), []).append((left, left + w, e.text))
            for found in lines.values():
                found.sort()
                assert all(one[1] <= other[0] + 4 for one, other in zip(found, found[1:])), found


def test_five_hundred_ratings_are_quick(parts):
    shelf = [Item(id=f"x{i}", title=f"Evening {i}", year=1930 + i % 90, genres=("Drama",)) for i in range(500)]
    with fresh(parts) as a:
        import_ratings(a.store, "eve", [Rated(i, 1 + n % 5) for n, i in enumerate(shelf)], progress=False)
        a.chat("eve", "Alien, 5 stars. What next?")
        steps = ms.map_steps(a, "eve")
        panel = stepper(steps)
        panel.set({"step": 0})
        taken = []
        for _ in range(5):
            for n in (1, 0):
                began = time.perf_counter()
                panel.set({"step": n})
                taken.append(time.perf_counter() - began)
        assert min(taken) < .2, f"a redraw took {1000*min(taken):.0f} ms at best"      # the best of ten: a busy machine is no failure
        assert "501 ratings" in steps[1].words and any(re.match("and 4[0-9]+ more", t) for t in texts_of(steps[1].scene()))
        assert len(steps[1].scene().svg()) < 120_000
