"MAP's steps: from what was recorded, and nothing but that; safe with any text; quick with a long profile."
import re
import time
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from memkit.models.lm import ScriptedLM
from memkit.maprec import open_map
from memkit.maprec.assistant import MapSettings
from memkit.maprec.items import Item, Rated, own_catalogue, rating_line
from memkit.maprec.items import import_ratings, put_rating
from memkit.maprec.recommend import Reason, Recommendation
from memkit.widgets.steppers import map as mr
from memkit.widgets.steppers import map as ms
from memkit.widgets.draw.scene import width_of
from memkit.widgets.steppers.stepper import differences, stepper

NASTY = "</text><script>alert(1)</script> & \x1b\u202e \ud7ff \U0001f600 'q' \"q\""
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

def test_the_rows_after_each_message_are_the_profile_of_that_time(parts):
    said = ["Alien, 5 stars.", "Heat was dull, 2 stars.", "Alien is only a 3.", "I take back what I said about Heat.", "Heat is a 4 after all.", "Thanks!"]
    with fresh(parts) as a:
        seen = []
        for text in said:
            a.chat("ann", text)
            seen.append({m.text for m in a.memories("ann")})
        frames = mr.map_frames(a, "ann")
        assert [{rating_line(Rated(r.item, r.rating)) for r in f.profile} for f in frames[1:]] == seen
        assert [[(r.item.title, r.how, r.before) for r in f.rows if r.how] for f in frames[1:]] == [
            [("Alien", "new", None)], [("Heat", "new", None)], [("Alien", "changed", 5.)], [("Heat", "taken back", 2.)], [("Heat", "new", None)], []]


def test_what_is_drawn_is_what_the_turns_say(talked):
    a, turns = talked
    frames = mr.map_frames(a, "ann", turns)[1:]
    for f, t in zip(frames, turns, strict=True):
        assert (f.said, f.types, f.shares, f.answered) == (t.text, t.detected["types"], t.detected["shares"], t.answer)
        told = [*(t.extra["found"].items if t.extra["found"] else ()), *t.extra["predicted"], *([t.extra["guess"]] if t.extra["guess"] else [])]
        assert [x.r for x in f.told] == told
        assert [(r.likeness, r.moved) for r in f.recalled] == [(c.hit.parts["likeness"], c.hit.parts.get("moved", 0.)) for c in t.considered]
    assert frames[2].read_as and turns[1].extra["found"].items[1].item.title in frames[2].read_as


def test_whole_turns_come_from_the_store_and_nothing_is_written(talked):
    a, turns = talked
    before = (a.store.events("ann"), a.store.turns("ann"))
    frames = mr.map_frames(a, "ann")
    assert (a.store.events("ann"), a.store.turns("ann")) == before
    assert frames == mr.map_frames(a, "ann", turns) == mr.map_frames(a, "ann", turns[4:]), "the turns at hand are no longer needed"
    assert [f.turn for f in frames[1:]] == turns


def test_a_turn_whose_trace_is_gone_keeps_its_words_and_its_rows(parts):
    with fresh(parts) as a:
        for text in ("Alien, 5 stars.", "Jaws was dull, 2 stars.", "Heat, 4 stars."): a.chat("ann", text)
        a.forget("ann", [next(m.id for m in a.memories("ann") if "Alien" in m.text)])
        frames = [f for f in mr.map_frames(a, "ann") if f.number]
        bare = [f for f in frames if f.shares is None]
        assert bare and all(f.said and f.rows and f.note == mr.LOST for f in bare)
        for step in ms.map_steps(a, "ann"): ElementTree.fromstring(step.scene().svg()), step.facts()


def test_said_again_marks_the_row_and_nothing_else(talked):
    a, turns = talked
    frames = mr.map_frames(a, "ann", turns)
    assert [(r.item.title, r.how) for r in frames[6].rows if r.how] == [("Alien", "said again")]
    assert "Said again: Alien (1979) 3." in ms.words_of_map(frames[6])


def test_what_happens_between_messages_is_a_step_of_its_own(parts):
    with fresh(parts) as a:
        import_ratings(a.store, "ann", [Rated(i, 4.) for i in own_catalogue().items[:5]], progress=False)
        a.chat("ann", "Alien, 5 stars.")
        a.feedback("ann", a.memories("ann")[-1].id, False)
        put_rating(a.store, "ann", Rated(own_catalogue().items[0], 1.))
        a.chat("ann", "What would I give Aliens?")
        steps = ms.map_steps(a, "ann")
        assert [s.title for s in steps] == ["Before the first message: 5 new", "Message 1 (B): 1 new", "Between: 1 changed, 1 taken back", "Message 2 (A): 1 asked for"]
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


def test_somebody_else_is_in_no_step(talked, parts):
    a, _ = talked
    assert [s.title for s in ms.map_steps(a, "bob")] == ["Before the first message"]


def test_what_the_model_was_shown_and_said(parts):
    with fresh(parts, ask_model=True, recalled=1) as a:
        turns = [a.chat("ann", t) for t in ("Alien, 5 stars. Jaws was dull, 2 stars.", "What would I give Aliens?")]
        f = mr.map_frames(a, "ann", turns)[-1]
        assert [(r.shown, r.outcome) for r in f.recalled] == [(True, "shown"), (False, "ranked 2 by likeness, and 1 are shown")]
        assert f.told[0].says == turns[-1].extra["model says"]["Aliens (1986)"] and sum(r.recalled for r in f.rows) == 1
        assert any("orange: the model" in t for t in texts_of(ms.draw_map(f)))
        again = mr.map_frames(a, "ann")[-1]
        assert [r.shown for r in again.recalled] == [True, False] and again.told[0].says == f.told[0].says


# --- words, facts and pictures

def test_facts_tell_what_is_different(talked):
    a, turns = talked
    steps = ms.map_steps(a, "ann", turns)
    found = {d.name: (d.before, d.after) for d in differences(steps[4], steps[5])}
    assert found["Alien (1979)"] == ("5 of 5", "3 of 5")
    gone = {d.name: (d.before, d.after) for d in differences(steps[6], steps[7])}
    assert gone["The Sound of Music (1965)"] == ("2 of 5", "")
    assert steps[8].facts()["expected of Blade Runner (1982), when last told"] == f"{turns[7].extra['predicted'][0].expected:.2f} of 5"
    assert steps[8].turn == turns[7] and steps[0].turn is None


def test_why_a_kind_was_followed_against_its_probability():
    f = mr.MapFrame(number=1, of=1, said="x", types=("A", "B"), shares={"A": .3, "B": .4, "C": .42})
    assert ms._chosen(f, "B") == "a rating was found in it" and ms._chosen(f, "A") and not ms._chosen(f, "C")
    assert "a rating was found in it" in ms.words_of_map(f)
    g = replace(f, types=("A",), shares={"A": .3, "B": .9, "C": .07})
    assert ms._chosen(g, "B") == "it asks for a rating, and tells none"


shares = st.lists(st.floats(.001, 1), min_size=5, max_size=5).map(lambda p: tuple(x/sum(p) for x in p))
titles = st.one_of(st.just(NASTY), st.text(min_size=1, max_size=60)).map(lambda t: "T" + t.replace("\x00", "").encode("utf-8", "ignore").decode())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_frame_can_be_drawn(data):
    draw = data.draw
    item = lambda i: Item(id=f"i{i}", title=draw(titles), year=draw(st.none() | st.integers(-500, 2100)), genres=("Drama",), domain=draw(st.sampled_from(["films", "books", "songs"])))
    rating = st.integers(1, 10).map(lambda n: n/2)
    rows = tuple(mr.RatingRow(memory=i, item=item(i), rating=None if how == "taken back" else draw(rating), before=draw(rating) if how in ("changed", "taken back") else None, how=how, recalled=draw(st.booleans()))
                 for i, how in enumerate(draw(st.lists(st.sampled_from(["", "new", "changed", "said again", "taken back"]), max_size=12))))
    reason = lambda: Reason(rated=Rated(item(99), draw(rating)), change=draw(st.floats(-2, 2)), likeness=.5)
    told = tuple(mr.Told(r=Recommendation(item=item(50 + i), shares=draw(shares), reasons=(reason(),), against=(reason(),)), what="recommended", says=draw(shares | st.just(()))) for i in range(draw(st.integers(0, 5))))
    recalled = tuple(mr.Recalled(name=draw(titles), rating=draw(rating), likeness=draw(st.floats(0, 1)), moved=draw(st.floats(-3, 3)), shown=draw(st.booleans())) for _ in range(draw(st.integers(0, 9))))
    f = mr.MapFrame(number=draw(st.integers(0, 3)), of=3, later=draw(st.booleans()), said=draw(titles), read_as=draw(titles | st.just("")), answered=draw(st.text(max_size=400)), types=("A",), shares={"A": .9, "B": .1, "C": .09},
                    because={"A": (NASTY, (NASTY,))}, doubt=.2, rows=rows, recalled=recalled, told=told, note=draw(st.text(max_size=60)), forgotten=draw(st.integers(0, 2)))
    scene = ms.draw_map(f)
    tree = ElementTree.fromstring(scene.svg())
    assert {e.tag for e in tree.iter()} <= {SVG + t for t in ("svg", "title", "desc", "style", "rect", "text", "path", "g")}
    lowest = max(float(e.get("y")) + float(e.get("height")) for e in tree.iter(SVG + "rect") if not str(e.get("height")).endswith("%"))
    assert lowest <= scene.height and scene.words == ms.words_of_map(f)
    keys = [g.get("data-key") for g in tree.iter(SVG + "g") if (g.get("data-key") or "").startswith("rating ")]
    assert len(keys) == len(set(keys))


def test_headings_leave_room_for_each_other(parts):
    "Of two texts on one line, the left one ends before the right one begins."
    with fresh(parts, ask_model=True) as a:
        turns = [a.chat("ann", t) for t in ("Alien, 5 stars. Jaws was dull, 2 stars. Heat was fine, 3 stars.", "What would I give Aliens?", "Recommend me a book.", "Aliens, 4 stars.", "Thanks")]
        for step in ms.map_steps(a, "ann", turns):
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
        assert min(taken) < .1, f"a redraw took {1000*min(taken):.0f} ms at best"      # the best of ten: a busy machine is no failure
        assert "501 ratings" in steps[1].words and any(re.match("and 49[0-9] more", t) for t in texts_of(steps[1].scene()))
        assert len(steps[1].scene().svg()) < 60_000
