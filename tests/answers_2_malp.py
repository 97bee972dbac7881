"The five answers of the second walkthrough, worked out from the store's events and rows."
from memkit.malp.triage import moves_of


def moves(ns) -> list: return moves_of(ns["memory"].store.events("eva"))
def rows(ns, words: str) -> list: return [m for m in ns["memory"].store.list("eva", superseded=True) if words in m.text]


def the_coffee_with_seven_places(ns) -> str:
    "The coffee took the sixth place away in round 5: with it, no round before the refresh has more than seven rows."
    rows_of = [len(ns["memory"].dpem.state("eva", r).short_term) + (r >= 5) for r in range(1, 8)]
    return ns["HOW"]["refreshed" if max(rows_of) <= 7 else "evicted"]


def promoted_with_two(ns) -> int:
    "The round of the second sentence that has the dose in milligrams, by what was said."
    said = [i for i, (user, _) in enumerate(ns["SAID"], 1) if "bisoprolol" in user and "mg" in user]
    return said[1]


def wasp(ns) -> str: return rows(ns, "wasp")[-1].kind


def swept_out(ns) -> int:
    "What came to history in round 8, less what was evicted or got new words."
    before, after = (ns["memory"].dpem.state("eva", r) for r in (7, 8))
    came = set(after.history) - set(before.history)
    assert not after.short_term
    return len(came - {m.memory for m in moves(ns) if m.round == 8 and m.kind in ("evicted", "superseded")})


def rank_four(ns) -> int: return len([(i, j) for j in range(4) for i in range(ns["d"] + ns["k"])])


ANSWERS = [the_coffee_with_seven_places, promoted_with_two, wasp, swept_out, rank_four]
