"The explorer of a profile: what it shows is the store's and the assistant's own, what is tried is stored nowhere, and any text is text."
import json
import xml.etree.ElementTree as ET
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from memkit.maprec.items import Catalogue, Item, Rated
from memkit.maprec.own_ratings import ItemSpace, OwnRatings
from memkit.maprec.items import history, profile, put_rating
from memkit.maprec.recommend import Request, recommend
from memkit.widgets.explorers.profile import FOLLOWED, SHOWN, explore_profile, moves, noted, tried_on
from memkit.widgets.explorers.profile import COLUMNS, in_order_of, profile_view, table_row, title_matches, work_name
from memkit.widgets.explorers.memories import plane
from memkit.widgets.explorers.profile import draw_taste, taste_map
from test_widgets import Letters
from test_widgets import NASTY
from test_widgets_map import fresh, parts  # noqa: F401 (a fixture)

pytest.importorskip("ipywidgets")
BEGAN = datetime(2026, 3, 1, tzinfo=timezone.utc)
STARS = {"Alien": 5, "Blade Runner": 5, "The Terminator": 4.5, "Psycho": 4, "Casablanca": 2, "The Sound of Music": 1}
SCREEN, ROW, LINE = 900 - 120, 36, 20     # pixels, as in test_widgets_heights


@pytest.fixture
def cinema(parts):  # noqa: F811
    "An assistant with Ann's ratings, each by a day."
    with fresh(parts) as a:
        a.first = {i.title: i for i in sorted(a.catalogue, key=lambda i: i.domain == "films")}
        for n, (title, stars) in enumerate(STARS.items()):
            put_rating(a.store, "ann", Rated(a.first[title], stars, BEGAN + timedelta(days=n)))
        yield a


def ratings(a, user="ann"): return {r.rated.item.title: r.rated.rating for r in profile(a.store, user)}
def rows(panel): return panel.page.shown["rows"]
def told(panel): return [r["name"] for r in panel.page.shown["told"]]
def state(a): return a.store.list("ann", superseded=True), a.store.list("ann")


# --- the map

def test_the_plane_is_that_of_scikit_learn():
    from sklearn.decomposition import PCA
    for n, dim in ((3, 5), (40, 3), (30, 60)):
        vectors = np.random.default_rng(n).normal(size=(n, dim))*np.linspace(1, 4, dim)
        flat, oracle = plane(vectors), PCA(2, svd_solver="full").fit(vectors)
        assert np.allclose(np.abs(flat.places(vectors)), np.abs(oracle.transform(vectors)), atol=1e-6)
        assert np.allclose(flat.shown, oracle.explained_variance_ratio_)
    assert plane(np.ones((3, 4))).shown == (0., 0.)


def test_the_words_say_what_the_picture_shows(cinema):
    a, now = cinema, [r.rated for r in profile(cinema.store, "ann")]
    m = taste_map(a.space, a.catalogue.domain("films").items)
    found = recommend(now, a.catalogue, a.predictor, a.space, Request(domain="films"), 8).items
    s = draw_taste(m, now, found)
    root = ET.fromstring(s.svg())
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    titles = [t.text for t in root.iter("{http://www.w3.org/2000/svg}title")]
    for n, r in enumerate(found, 1):
        assert f"{n}. {r.item.title}" in s.words
        assert any(t.startswith(f"{n}. {r.item.title}") for t in titles) and str(n) in texts
    for r in now: assert any(f"you gave {r.rating:g}" in t and r.item.title in t for t in titles)
    assert "4½" in texts and "5 stars" in texts and "recommended (its place)" in texts


def test_a_large_map_is_light():
    rng = np.random.default_rng(0)
    items = [Item(id=str(i), title=f"{NASTY} {i}", genres=(f"Genre {i % 9}", f"Genre {i % 5}"), description=str(rng.integers(9**9))) for i in range(3000)]
    space = ItemSpace(Letters(), items)
    s = draw_taste(taste_map(space, items), [Rated(i, 4) for i in items[:200]], recommend([], items, OwnRatings(space), space, n=8).items)
    assert len(s.svg()) < 250_000 and "<script" not in s.svg() and ET.fromstring(s.svg()) is not None
    assert any((t.text or "").startswith("Genre ") for t in ET.fromstring(s.svg()).iter("{http://www.w3.org/2000/svg}text")), "genres are named in a crowd too"


# --- rows, moves, titles

names = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=12).filter(lambda t: any(c.isalnum() for c in t))

@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(names, st.none() | st.integers(1900, 2030), st.sampled_from((0, .5, 3, 5))), max_size=12), st.sampled_from(COLUMNS), st.booleans())
def test_rows_in_any_order(made, by, down):
    rows_ = []
    for n, (title, year, stars) in enumerate(made):
        try: rows_.append(table_row(Item(id=f"i{n}", title=title, year=year), stars, BEGAN + timedelta(days=n % 3) if n % 2 else None))
        except ValueError: pass      # nothing is left of the title
    got = in_order_of(rows_, by, down)
    assert sorted(r["key"] for r in got) == sorted(r["key"] for r in rows_)
    empty = [r[by] in ("", 0) for r in got]
    assert empty == sorted(empty), "what has no value comes last"
    if by != "title":
        values = [r[by] for r in got if r[by] not in ("", 0)]
        assert values == sorted(values, reverse=down)


def test_moves_are_places_of_before(cinema):
    a, now = cinema, [r.rated for r in profile(cinema.store, "ann")]
    ask = lambda rated, n: recommend(rated, a.catalogue, a.predictor, a.space, Request(domain="films"), n).items
    works = {work_name(i): i for i in a.catalogue.items}
    before, after = ask(now, FOLLOWED), ask(tried_on(now, {work_name(a.first["Alien"]): 1, work_name(a.first["Heat"]): 5}, works), SHOWN)
    for r, was in zip(after, moves(before, after)): assert (was is None) == (r.item not in [b.item for b in before]) and (was is None or before[was - 1].item == r.item)


def test_titles_as_they_are_typed():
    shelf = [Item(id="1", title="The Thing", year=1982), Item(id="2", title="Something Wild"), Item(id="3", title="All Things Must Pass"), Item(id="4", title="Le fabuleux destin", aliases=("Amélie",))]
    assert [i.id for i in title_matches(shelf, "thing")] == ["1", "3", "2"]
    assert [i.id for i in title_matches(shelf, "AMEL")] == ["4"] and [i.id for i in title_matches(shelf, "somthing wild")] == ["2"]
    assert title_matches(shelf, "") == title_matches(shelf, "!!") == [] and len(title_matches(shelf*9, "thing", 2)) == 2


# --- the panel

def test_what_it_shows_is_the_store_and_the_assistants_own_list(cinema):
    panel = explore_profile(cinema, "ann")
    assert not panel.error and {r["title"]: r["stars"] for r in rows(panel)} == STARS
    assert [r["when"] for r in rows(panel)] == sorted((r["when"] for r in rows(panel)), reverse=True), "the latest first"
    turn = cinema.chat("ann", "Recommend me eight films.")
    assert [r.item.title for r in turn.extra["found"].items] == [n.rpartition(" (")[0] for n in told(panel)]
    assert any("you gave" in r["why"][0] for r in panel.page.shown["told"]) and not any(r["move"] for r in panel.page.shown["told"])
    panel.set({"domain": "books"})
    assert not panel.error and panel.scene.words.startswith(f"Taste map of {len(cinema.catalogue.domain('books'))} works, 0 of them rated")
    assert {r["domain"] for r in rows(panel)} == {"films"} and len(told(panel)) == SHOWN
    panel.set({"domain": ""})
    assert {r["domain"] for r in rows(panel)} == {"films"}, "which domain is told where several are shown"


def test_what_is_tried_is_stored_nowhere_until_it_is_kept(cinema):
    a, panel, alien, heat = cinema, explore_profile(cinema, "ann"), work_name(cinema.first["Alien"]), work_name(cinema.first["Heat"])
    was, before = state(a), told(panel)
    panel.set({"trying": True})
    panel.rate(alien, 1)
    panel.rate(heat, 4.5)
    panel.take_back(work_name(a.first["Psycho"]))
    assert state(a) == was and told(panel) != before and panel._keep.description == "Keep 3 changes"
    row = {r["title"]: r for r in rows(panel)}
    assert (row["Alien"]["stars"], row["Alien"]["was"], row["Heat"]["was"], row["Psycho"]["stars"]) == (1, 5, 0, 0) and row["Alien"]["tried"]
    assert "3 changes tried, not stored" in panel.scene.caption and any(r["move"] for r in panel.page.shown["told"])
    assert "Heat (1995)" not in told(panel), "what is rated isn't recommended"
    now = tried_on([r.rated for r in profile(a.store, "ann")], panel.page.value["tried"], {work_name(i): i for i in a.catalogue})
    for r in now: put_rating(a.store, "twin", r)
    assert told(explore_profile(a, "twin")) == told(panel), "the list is that of somebody who has just these ratings"
    panel._undo.click()
    assert told(panel) == before and panel._keep.disabled and state(a) == was
    panel.rate(alien, 1)
    panel.rate(alien, 5)
    assert panel.page.value["tried"] == {}, "what is tried back is no change"
    panel.rate(alien, 1)
    panel.take_back(work_name(a.first["Psycho"]))
    panel._keep.click()
    assert ratings(a) == {**{t: s for t, s in STARS.items() if t != "Psycho"}, "Alien": 1} and not panel.error
    assert [m.meta["rating"] for m in history(a.store, "ann", a.first["Alien"].id)] == [5, 1] and panel.page.value["tried"] == {}


def test_a_click_is_stored_at_once_where_nothing_is_tried(cinema):
    a, panel = cinema, explore_profile(cinema, "ann")
    press = lambda **what: panel.page._handle_custom_msg(what, [])          # as it comes from the page
    press(do="suggest", text="heat")
    key = next(f["key"] for f in panel.page.found if f["name"].startswith("Heat"))
    press(do="add", key=key)
    assert rows(panel)[0]["key"] == key and rows(panel)[0]["stars"] == 0 and "Heat" not in ratings(a)
    press(do="rate", key=key, stars=3.5)
    assert ratings(a)["Heat"] == 3.5 and panel.page.value["added"] == []
    press(do="take_back", key=key)
    assert ratings(a) == STARS
    press(do="look_for", text="the matri")
    assert rows(panel)[0]["title"] == "The Matrix"
    press(do="take_back", key=rows(panel)[0]["key"])
    assert {r["title"] for r in rows(panel)} == set(STARS) and ratings(a) == STARS
    press(do="sort", by="stars")
    assert [r["title"] for r in rows(panel)][:2] == ["Alien", "Blade Runner"]
    press(do="sort", by="stars")
    assert [r["title"] for r in rows(panel)][0] == "The Sound of Music"
    first = panel.page.shown["told"][0]["key"]
    press(do="why", key=first)
    assert panel.page.shown["why"] == first
    press(do="why", key=first)
    assert panel.page.shown["why"] == ""


@pytest.mark.parametrize("what, said", [
    ({"do": "erase"}, "nothing is done by 'erase'"), ({"do": "_write"}, "nothing is done"), ({"do": "rate", "key": "films/none", "stars": 3}, "no work 'films/none'"),
    ({"do": "look_for", "text": "<b>qqqq</b>"}, "no title like"), ({"do": "sort", "by": "luck"}, "sorted by one of"), ({"do": "show", "tab": "x"}, "ratings, wish or seen"), ({"do": "rate"}, "argument"),
    ({"do": "add", "key": NASTY}, "no work")])
def test_what_cannot_be_done_is_told_in_place(cinema, what, said):
    panel, was = explore_profile(cinema, "ann"), state(cinema)
    panel.page._handle_custom_msg(what, [])
    assert said in panel.error and 'role="alert"' in panel._below.value and "<b>q" not in panel._below.value and state(cinema) == was
    panel.redraw()
    assert panel.error == ""


@pytest.mark.parametrize("stars", [0, 6, -1, 2.3, "4", None, True, float("nan"), [5]])
def test_stars_that_cannot_be(cinema, stars):
    panel = explore_profile(cinema, "ann")
    for trying in (False, True):
        panel.set({"trying": trying})
        with pytest.raises((ValueError, TypeError), match="rating"): panel.rate(work_name(cinema.first["Alien"]), stars)
    assert ratings(cinema) == STARS


def test_lists_of_wishes_and_of_what_was_seen(cinema):
    a, panel = cinema, explore_profile(cinema, "ann")
    top, second = (a.catalogue.get(r["key"].partition("/")[2]) for r in panel.page.shown["told"][:2])
    assert panel.page.shown["counts"] == {"ratings": len(STARS), "wish": 0, "seen": 0}
    for kind, item in (("seen", top), ("wish", second), ("wish", a.first["Alien"])):
        a.store.add("ann", f"{item.title}: {kind}", [0.], f"{kind}:{item.domain}", encoder="list", meta={"item": {"id": item.id, "title": item.title, "year": item.year, "domain": item.domain}})
    panel.redraw()
    assert panel.page.shown["counts"] == {"ratings": len(STARS), "wish": 1, "seen": 1}, "what was rated since is on neither"
    assert f"{top.title} ({top.year})" not in told(panel), "what was seen isn't recommended"
    panel.show("seen")
    assert [r["title"] for r in rows(panel)] == [top.title]
    panel.rate(work_name(top), 2)
    assert ratings(a)[top.title] == 2 and rows(panel) == [] and panel.page.shown["empty"]
    assert [i for i, _ in noted(a.store, "ann", "wish")][0].title == second.title and noted(a.store, "bob", "wish") == []


def test_nobody_is_written_down_who_has_not_agreed(parts):  # noqa: F811
    with fresh(parts, consent=True) as a:
        panel, alien = explore_profile(a, "ann"), work_name(next(i for i in a.catalogue.domain("films") if i.title == "Alien"))
        panel._do("rate", key=alien, stars=4)
        assert "hasn't agreed" in panel.error and a.memories("ann") == [] and "No ratings yet" in panel.page.shown["empty"]
        panel.set({"trying": True})
        panel.rate(alien, 4)
        assert not panel.error and told(panel), "trying needs no consent: nothing is stored"
        a.consent("ann")
        panel.keep()
        assert ratings(a) == {"Alien": 4}


def test_its_state_stays_when_the_cell_is_run_again(cinema):
    alien = work_name(cinema.first["Alien"])
    panel = explore_profile(cinema, "ann", key="test-profile")
    panel.set({"trying": True, "domain": "books"})
    panel.rate(alien, 2)
    panel.sort("year")
    again = explore_profile(cinema, "ann", key="test-profile")
    assert again.values() == panel.values() and told(again) == told(panel) and again._keep.description == "Keep 1 change"
    assert explore_profile(cinema, "bob", key="test-profile").page.value["tried"] == {}, "another user's trials are their own"
    assert explore_profile(cinema, "ann").page.value["tried"] == {}


def test_a_profile_that_is_told_meanwhile(cinema):
    panel = explore_profile(cinema, "ann", key="test-profile-gone")
    panel.set({"trying": True})
    panel.rate(work_name(cinema.first["Alien"]), 2)
    cinema.chat("ann", "Heat, 4 stars.")
    panel.redraw()
    assert "Heat" in {r["title"] for r in rows(panel)}
    cinema.forget("ann")
    panel.redraw()
    assert not panel.error and {r["title"] for r in rows(panel)} == {"Alien"}, "what is tried is on the page alone"
    panel.undo()
    assert rows(panel) == [] and panel.scene.words.count("Rated") == 0


def test_any_text_is_text(parts):  # noqa: F811
    odd = [Item(id=f"o{n}", title=f"Odd {n} & 😀 שלום \"q\" 'q' </script", genres=("A</svg>",), description="x") for n in range(12)]
    with fresh(parts) as a:
        a.catalogue, a.space = Catalogue(odd), ItemSpace(Letters(), odd)
        a.predictor = OwnRatings(a.space)
        put_rating(a.store, "ann", Rated(odd[0], 5))
        panel = explore_profile(a, "ann")
        panel.set({"trying": True})
        panel.rate(work_name(odd[1]), 1)
        panel.suggest("odd 1")
        assert not panel.error and panel.page.found and ET.fromstring(panel.scene.svg()) is not None and "</script" not in panel.scene.svg()
        assert "</script" not in panel._below.value and json.dumps(panel.page.shown)
    source = panel.page._esm if isinstance(panel.page._esm, str) else str(panel.page._esm)
    assert "innerHTML" not in source and "insertAdjacentHTML" not in source, "the page takes words as text only"


@pytest.mark.parametrize("n", [0, 6, 400])
def test_it_fits_one_screen_whatever_the_profile(parts, n):  # noqa: F811
    with fresh(parts) as a:
        for i in range(n): put_rating(a.store, "ann", Rated(Item(id=f"x{i}", title=f"Evening {i} " + "of a long name "*6, year=1900 + i % 99), 1 + i % 5))
        panel = explore_profile(a, "ann")
        panel.set({"trying": True})
        panel.rate(work_name(a.catalogue.items[0]), 5)
        view = int(panel.page.layout.height[:-2])
        assert not panel.error and ROW + view + panel.scene.height + 3*LINE + 8 <= SCREEN
        assert len(rows(panel)) <= 201 and (n < 300) == (panel.page.shown["more"] == "")
        assert panel._words.words == panel.scene.words and len(panel.scene.caption) < 165


def test_the_page_alone():
    got = []
    view = profile_view(lambda **what: got.append(what))
    view._handle_custom_msg({"do": "rate", "key": "a/b", "stars": 2}, [])
    assert got == [{"do": "rate", "key": "a/b", "stars": 2}] and view.layout.height


def test_whose_profile():
    for wrong in (None, "ann", 3):
        with pytest.raises(TypeError, match="open_map"): explore_profile(wrong, "ann")
