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


def errors_of(ns, h: int, way) -> np.ndarray:
    "Each rater's mean error over the last six ratings; `way` predicts from the h ratings before."
    return np.array([np.mean([abs(way(p[:-6][-h:] if h else [], r.item) - r.rating) for r in p[-6:]]) for p in ns["people"]])


def mean_is_clearly_better(ns) -> int:
    "By the normal interval, 1.96 standard errors, of the paired differences."
    def high(h: int) -> float:
        off = errors_of(ns, h, lambda known, _: np.mean([x.rating for x in known]) if known else 3.5) - errors_of(ns, h, lambda *_: 3.5)
        return off.mean() + 1.96*off.std(ddof=1)/len(off)**.5
    return next(h for h in ns["KNOWN"] if high(h) < 0)


def for_whom_memory_helps(ns) -> int:
    return int((errors_of(ns, 16, lambda known, item: expected(ns, known, item)) < errors_of(ns, 16, lambda *_: 3.5)).sum())


ANSWERS = [with_whole_level, who_writes_a_row, versions_of_alien, mean_is_clearly_better, for_whom_memory_helps]
