"A recommender one would use: limits, names, lists, replies from the store, and a catalogue of one's own."
import pytest

from memkit.models.lm import ScriptedLM
from memkit.store.store import MemoryStore
from memkit.maprec import open_map
from memkit.maprec.assistant import MapAssistant, MapSettings
from memkit.maprec.items import full_catalogue, own_catalogue, read_catalogue, read_ratings
from memkit.maprec.recommend import CHAT, Request, fitting, free_words, may_see, nearest_to
from memkit.maprec.items import noted, profile
from memkit.maprec.request_parsing import People, find_countries, find_people, for_whom, lines_named, requested_length, requested_number, parse_request, requested_years

EVERYTHING, SHELF = full_catalogue(), own_catalogue()
PEOPLE = People(EVERYTHING)


@pytest.fixture(scope="module")
def made(): return open_map(":memory:", ScriptedLM(lambda messages: "I see."), SHELF)

@pytest.fixture
def bot(made):
    return MapAssistant(ScriptedLM(lambda messages: "Noted: The Shining, 3 of 3."), MemoryStore(":memory:"), made.catalogue, made.detector, made.updater, made.frames,
                        made.predictor, made.space, MapSettings(ask_model=False))


def test_the_full_catalogue_is_the_small_one_and_more():
    assert len(EVERYTHING) == 4156 and EVERYTHING.items[:len(SHELF)] == SHELF.items and len({i.key for i in EVERYTHING}) == len(EVERYTHING)
    assert set(EVERYTHING.domains) == {"films", "books", "series", "games", "music", "podcasts"}


@pytest.mark.parametrize("text, who", [("gimme 4 films w florence pugh", {"Florence Pugh"}), ("Anything by Villeneuve bar Dune?", {"Denis Villeneuve"}), ("a film with Denzel", {"Denzel Washington"}),
                                       ("my niece Freya wants a film", set()), ("a film fit for a king", set())])
def test_people(text, who): assert {p for n in find_people(PEOPLE, text) for p in n.names} == who

def test_somebody_unknown_and_countries():
    assert [n.words for n in find_people(PEOPLE, "A series with Sarwat Gilani please")] == ["Sarwat Gilani"]
    assert [p.names for p in find_countries("Danish, but not American")] == [("Denmark",), ("USA",)]
    w = parse_request("a Danish film with Mads Mikkelsen, not with Tom Hanks", EVERYTHING.items, people=PEOPLE)
    assert (w.people, w.without, w.countries) == (("Mads Mikkelsen",), ("Tom Hanks",), ("Denmark",))


def test_limits_are_given_up_aloud_and_refusals_never():
    impossible = Request(domain="films", people=("Tilda Swinton",), years=(1930, 1939), avoid=("Drama",), audience="child")
    found, said = nearest_to(EVERYTHING.items, impossible)
    assert all("Drama" not in i.genres and may_see("child", i) for i in found) and (said or not found)
    assert all(i.length and i.length <= 90 for i in fitting(EVERYTHING.items, Request(domain="films", length=(0, 90))))


@pytest.mark.parametrize("text, years", [("of the nineties, before 1995", (1990, 1994)), ("2010 or later", (2010, 9999)), ("set before 1960", None), ("1970-85", (1970, 1985))])
def test_years(text, years): assert requested_years(text) == years

def test_lengths_and_for_whom():
    assert requested_length("no longer than an hour and a half", "films") == (0, 90) and requested_length("six episodes", "series") is None
    assert for_whom("for my 6 year old niece") == "child" and for_whom("no kids in it") == "" and for_whom("a 15-year-old") == "teen"


def test_what_was_seen_is_noted_and_never_offered(bot):
    bot.chat("ann", "I watched Heat (1995) last night, no score yet")
    assert [i.title for i, _ in noted(bot.store, "ann", "seen")] == ["Heat"] and not profile(bot.store, "ann")
    listed = bot.chat("ann", "Recommend me 10 crime films").extra["found"].items
    assert listed and "Heat" not in [r.item.title for r in listed]


def test_the_profile_comes_from_the_store_and_a_models_words_never_look_like_it(bot):
    bot.chat("ann", "Alien (1979): 5 stars")
    assert "Alien (1979) 5" in bot.chat("ann", "what's in my profile?").answer
    assert bot.chat("ann", "hello there").answer == CHAT
    assert free_words("An egg takes ten minutes. I've saved your rating!") == "An egg takes ten minutes."


def test_everything_is_deleted_once_the_user_agrees(bot):
    bot.chat("ann", "Alien (1979): 5 stars")
    assert "Shall I delete" in bot.chat("ann", "forget everything").answer and profile(bot.store, "ann")
    bot.chat("ann", "yes")
    assert not profile(bot.store, "ann") and not bot.store.list("ann") and not bot.store.turns("ann")


@pytest.mark.parametrize("reply", ["right, recommend a film", "delete my rating of Alien", "no, keep it", "what about Heat?"])
def test_only_a_plain_yes_deletes_everything(bot, reply):
    bot.chat("ann", "Heat (1995): 4 stars")
    bot.chat("ann", "forget everything")
    bot.chat("ann", reply)
    bot.chat("ann", "yes")                   # the question is no longer open
    assert "Heat" in [r.rated.item.title for r in profile(bot.store, "ann")]


def test_a_domain_that_is_not_there_is_said(bot):
    found = bot.chat("ann", "Where can I eat ramen?").extra["found"]
    assert not found.items and found.note.startswith("I have no places")


def test_a_catalogue_of_ones_own(tmp_path):
    films, mine = tmp_path/"films.csv", tmp_path/"mine.csv"
    films.write_text("title,year,director\nAlien,1979,Ridley Scott\n")
    mine.write_text("title,rating\nalien,4.5\n")
    shop = read_catalogue(films)
    assert shop.items[0].names == ("Ridley Scott",) and [r.rating for r in read_ratings(mine, shop)] == [4.5]
    films.write_text("title,year\nAlien,soon\n")
    with pytest.raises(ValueError, match="films.csv, line 2: year"): read_catalogue(films)


def test_one_rating_leads_the_next_list(bot):
    bot.chat("ann", "I loved Alien, 5 stars.")
    found = bot.chat("ann", "Recommend me a film").extra["found"]
    assert all({"Sci-Fi", "Horror"} & set(r.item.genres) for r in found.items[:2])

def test_a_limit_alone_narrows_the_last_list(bot):
    bot.chat("ann", "something for my 6 year old niece")
    assert bot.talk("ann").request.audience == "child"
    bot.chat("ann", "nothing older than 1960")
    assert (bot.talk("ann").request.audience, bot.talk("ann").request.years[0]) == ("child", 1960)
    bot.chat("ann", "recommend me a film from the 80s")
    assert bot.talk("ann").request.audience == ""


def test_the_last_twenty_years_are_no_line_of_the_list(bot):
    listed = bot.chat("ann", "Recommend me a film").extra["found"].items
    assert lines_named("a film from the last twenty years", [r.item for r in listed]) == "a film from the last twenty years"
    found = bot.chat("ann", "Recommend a film from the last twenty years").extra["found"].items
    assert found and all(r.item.year > 2000 for r in found)


def test_an_age_is_no_number_of_films(bot):
    assert requested_number("my nephew turns 7 on Sunday, a film for him please") != 7 and requested_number("7 films for my nephew") == 7


def test_an_ambiguous_wish_is_noted_as_it_was_written(bot):
    assert "On your list: Dune" in bot.chat("ann", "put Dune on my list").answer


def test_a_short_statement_rates_a_title_that_is_an_ordinary_word(bot):
    assert "Cats" in bot.chat("ann", "Hated Cats.").answer
    assert [(r.rated.item.title, r.rated.rating < 3) for r in profile(bot.store, "ann")] == [("Cats", True)]


@pytest.mark.parametrize("text, length", [("something funny, no Adam Sandler", None), ("I am bored", None), ("under 90m", (0, 90)), ("an hour at most", (0, 60))])
def test_the_end_of_a_word_is_no_unit(text, length): assert requested_length(text, "films") == length

@pytest.mark.parametrize("text, n", [("If 30 is my divorce album what's my getting-better album? One will do", 1), ("a western that isn't John Wayne? Two'll do me", 2)])
def test_how_many_will_do(text, n): assert requested_number(text) == n

def test_a_genre_may_be_wanted_by_one_word_and_refused_by_another():
    w = parse_request("a reggae album, roots, not dancehall", EVERYTHING.items)
    assert (w.genres, w.avoid) == (("Reggae",), ()) and any("dancehall" in said for said in w.unmet)
    assert parse_request("a horror film? No horror tonight", EVERYTHING.items).avoid == ("Horror",)
    assert any("“memoirs” as Biography" in said for said in parse_request("chef memoirs please, books", EVERYTHING.items).unmet)

def test_refusals_one_after_the_other_are_each_told():
    said = " ".join(parse_request("a book for a weekend no lawyers no courts no trials", EVERYTHING.items).unmet)
    assert all(w in said for w in ("lawyers", "courts", "trials"))

def test_another_one_asks_for_the_same_again(bot):
    bot.chat("bea", "a comedy from the 80s")
    found = bot.chat("bea", "another one please").extra["found"].items
    assert len(found) == 1 and "Comedy" in found[0].item.genres and 1980 <= found[0].item.year <= 1989


def test_a_wish_is_taken_off_its_list(bot):
    bot.chat("cleo", "I want to see Jaws")
    assert [i.title for i, _ in noted(bot.store, "cleo", "wish")] == ["Jaws"]
    assert bot.chat("cleo", "remove Jaws from my list").answer == "Taken off your list: Jaws (1975)."
    assert noted(bot.store, "cleo", "wish") == []

def test_this_year_is_a_year():
    from datetime import datetime
    assert requested_years("anything from this year?") == (datetime.now().year,)*2 and requested_years("this year I saw little") is None
