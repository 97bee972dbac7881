"The five answers of the comparing walkthrough, worked out from the stores, the turns and plain arithmetic."


def told_by(ns, user: str, *texts: str) -> dict[str, list[str]]:
    "What each store holds of a user who said these texts, before and after the conversation ends; then the user is forgotten."
    ns["hybrid"].consent(user)
    for text in texts: ns["tell"](user, text)
    before = {n: a.store.list(user) for n, a in ns["four"].items()}
    ns["end_conversation"](user)
    after = {n: a.store.list(user) for n, a in ns["four"].items()}
    for a in ns["four"].values(): a.forget(user)
    return {"before": before, "after": after}


def stored_of_a_film(ns) -> int:
    "A film that was rated, and thanks: two messages; one of them tells something."
    held = told_by(ns, "eva", "Solaris was wonderful, 5 stars.", "Is it late already? Thank you!")["after"]
    assert len(held["hybrid"]) == 2 and all("Solaris" in m.text for n in ("MaLP", "MARK", "MAP") for m in held[n])
    return sum(map(len, held.values()))


def who_reads_late(ns) -> str:
    "The only store in which the end of a conversation writes something."
    held = told_by(ns, "finn", "I am allergic to latex.")
    [name] = [n for n in ns["four"] if len(held["after"][n]) > len(held["before"][n])]
    return name


def recall_part(ns) -> float: return .1*3/(1 + 3)


def ratings_in_force(ns) -> int:
    "Ann rated Alien twice; both rows are there, and so many are in force."
    rows = [m for m in ns["map_"].store.list("ann", superseded=True) if m.text.startswith("Alien (")]
    assert len(rows) == 2
    return len(rows) - sum(e.kind == "superseded" for e in ns["map_"].store.events("ann"))


def shared_without_its_message(ns) -> int:
    "What MARK shares and no turn of that conversation stands behind: in the walk's own store each shared memory cites it."
    [taught] = [t.id for t in ns["mark"].store.turns("ann") if "limit is 2 g" in t.question]
    shared = [m for m in ns["mark"].store.list("domain:shared") if "paracetamol" in m.text]
    assert shared
    return sum(not any(taught in s["turns"] for s in m.meta["sources"]) for m in shared)


ANSWERS = [stored_of_a_film, who_reads_late, recall_part, ratings_in_force, shared_without_its_message]
