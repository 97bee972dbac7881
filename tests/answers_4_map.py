"The five answers of the fourth walkthrough, worked out from the store's rows, the predictor and plain arithmetic."
from dataclasses import replace

import numpy as np

from memkit.maprec.items import rated_of
from memkit.maprec.recommend import named

STARS = np.arange(1, 6)


def known_then(ns) -> list:
    "Ann's ratings when she asked for a book the first time: what was remembered before that message, superseded since or not."
    asked = next(t for t in ns["cinema"].store.turns("ann") if t.question == "Can you recommend me a book?")
    return [rated_of(m) for m in ns["cinema"].store.list("ann", superseded=True) if m.at < asked.at and m.kind.startswith("rating:")]


def first_book(ns):
    title = next(t.answer for t in ns["cinema"].store.turns("ann") if "book" in t.question).splitlines()[0].removeprefix("1. ").partition(", ")[0]
    return next(i for i in ns["cinema"].catalogue if i.domain == "books" and named(i) == title)


def expected(ns, rateds, item) -> float: return float(ns["cinema"].predictor.predict(rateds, [item])[0] @ STARS)


def with_whole_level(ns) -> str:
    "The level counts whole: the predictor itself, with `level` at almost nothing."
    own, rateds, book = ns["cinema"].predictor, known_then(ns), first_book(ns)
    whole = type(own)(own.space, settings=replace(own.settings, level=1e-9))
    change = float(whole.predict(rateds, [book])[0] @ STARS) - expected(ns, rateds, book)
    return "they stay the same" if abs(change) <= .005 else "they rise" if change > 0 else "they fall"


def who_writes_a_row(ns) -> str:
    "The one message that the store has a rating of, if another user sends the four."
    cinema, rows = ns["cinema"], {}
    for text in ns["CARL"]:
        cinema.chat("dora", text)
        rows[text] = len(cinema.store.list("dora", superseded=True))
    grew = [text for text, before in zip(rows, [0, *rows.values()]) if rows[text] > before]
    cinema.forget("dora")
    [only] = grew
    return only


def versions_of_alien(ns) -> int:
    return sum(m.text.startswith("Alien (1979)") for m in ns["cinema"].store.list("ann", superseded=True))


def how_many_times_as_much(ns) -> float:
    "A weight is a power of the similarity."
    power = ns["cinema"].predictor.settings.power
    return float(np.exp(power*np.log(.6/.3)))


def nothing_is_alike(ns) -> str:
    "Only the level is left, and it has the sign of the sum of what her ratings are above the usual."
    own, rateds = ns["cinema"].predictor, known_then(ns)
    above = sum(r.rating - own.settings.centre for r in rateds)
    return "exactly 3.5" if not above else "a little more than 3.5" if above > 0 else "a little less than 3.5"


ANSWERS = [with_whole_level, who_writes_a_row, versions_of_alien, how_many_times_as_much, nothing_is_alike]
