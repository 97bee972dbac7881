"The five answers of the fourth walkthrough, worked out from the store's rows, the predictor and plain arithmetic."
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


def raised_most(ns) -> str:
    rateds, book = known_then(ns), first_book(ns)
    return named(min(rateds, key=lambda r: expected(ns, [x for x in rateds if x is not r], book)).item)


def wrote_nothing(ns) -> str:
    store = ns["cinema"].store
    cited = {id for m in store.list("ann", superseded=True) for id in m.turns}
    return next(t.question for t in store.turns("ann")[:4] if t.id not in cited)


def versions_of_alien(ns) -> int:
    return sum(m.text.startswith("Alien (1979)") for m in ns["cinema"].store.list("ann", superseded=True))


def without_the_lowest(ns) -> str:
    rateds, book = known_then(ns), first_book(ns)
    rest = sorted(rateds, key=lambda r: r.rating)[1:]
    change = expected(ns, rest, book) - expected(ns, rateds, book)
    return "they stay the same" if abs(change) <= .005 else "they rise" if change > 0 else "they fall"


def fall_of_the_error(ns) -> float:
    def mean_error(h: int) -> float:
        off = [abs(expected(ns, p[:-6][-h:] if h else [], r.item) - r.rating) for p in ns["people"] for r in p[-6:]]
        return sum(off)/len(off)
    return round(mean_error(0) - mean_error(16), 2)


ANSWERS = [raised_most, wrote_nothing, versions_of_alien, without_the_lowest, fall_of_the_error]
