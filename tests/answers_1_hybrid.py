"The five answers of the first walkthrough, worked out from the store, the encoder and plain arithmetic."


def cosines(ns, query: str, turns) -> list[float]:
    "Of a question and what each turn stored, by the encoder itself."
    bot, ids = ns["bot"], [t.wrote[0] for t in turns]
    stored = [m for m in bot.store.list("ann") if m.id in ids]
    return (bot.embedder.embed([m.text for m in stored]) @ bot.embedder.embed([query], "query")[0]).tolist()


def allergy_in_a_year(ns) -> str:
    "No clock is asked: its cosine, and how many of Ann's exchanges are nearer."
    bot, memory = ns["bot"], ns["bot"].settings.memory
    stored = {m.id: m.text for m in bot.store.list("ann")}
    near = dict(zip(stored, bot.embedder.embed(list(stored.values())) @ bot.embedder.embed([ns["throat"].text], "query")[0]))
    mine = near[ns["allergy"].wrote[0]]
    assert mine > memory.above and sum(c > mine for c in near.values()) < memory.k
    return "it is recalled"


def above_a_quarter(ns) -> int:
    found = cosines(ns, ns["dentist"].query, [ns["allergy"], ns["sleep"], ns["throat"]])
    return min(ns["bot"].settings.memory.k, sum(c > .25 for c in found))


def last_rank(ns) -> int:
    r, first = 1, ns["rrf"]([["a"], []], ns["k"])[0][1]
    filler = [f"x{i}" for i in range(300)]
    while dict(ns["rrf"]([[*filler[:r], "d"], [*filler[150:150 + r], "d"]], ns["k"]))["d"] > first: r += 1
    return r      # "d" stood at rank r + 1 when it lost


def documents_in_400(ns) -> int:
    first, *rest = ns["throat"].sections
    used, shown = first.tokens, 0
    for s in rest:
        if used + s.tokens <= 400: used += s.tokens; shown += s.name == "document"
    return shown


def for_bob(ns) -> str:
    bot = ns["bot"]
    assert not bot.has_consent("bob")
    searched = any(e.kind == "recalled" for e in bot.store.events("bob"))
    return ("its memories are searched, " if searched else "nothing is searched, ") + ("and the exchange is stored" if bot.store.list("bob") else "and nothing is stored")


ANSWERS = [allergy_in_a_year, above_a_quarter, last_rank, documents_in_400, for_bob]
