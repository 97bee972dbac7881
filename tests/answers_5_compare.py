"The five answers of the comparing walkthrough, worked out from the turns, the stores and the searches themselves."


def without_a_note(ns) -> int:
    return sum(not t["MaLP"].wrote for t in ns["turns"])


def only_the_old_dose(ns) -> str:
    question, found = ns["DOSE"], {}
    found["hybrid"] = [h.item.text for h in ns["hybrid"].memory.nearest("ann", question, 2)]
    found["MaLP"] = [m.text for m in ns["malp"].store.list("ann")]
    vector = ns["mark"].search.embedder.embed([question], "query")[0]
    counts = {e.memory for e in ns["mark"].store.events("ann") if e.kind == "recalled"}
    doses = [m for m in ns["mark"].store.list("ann") if "lisinopril" in m.text]
    near = ns["mark"].search.embedder.embed([m.text for m in doses]) @ vector
    first = max(range(len(doses)), key=lambda i: .7*near[i] + .1*bool(doses[i].id in counts)/2)
    found["MARK"] = [doses[first].text]
    found["MAP"] = [m.text for m in ns["map_"].store.list("ann")]
    [only] = [n for n, texts in found.items() if any("20 mg" in t for t in texts) and not any("40 mg" in t for t in texts)]
    return only


def what_bob_gets(ns) -> int:
    "Nothing is Bob's, so only what is nobody's own can reach him."
    assert not any(a.store.list("bob") for a in ns["four"].values())
    return sum(any("paracetamol" in m.text for m in a.store.list("domain:shared")) for a in ns["four"].values())


def ratings_in_force(ns) -> int:
    "Ann rated Alien twice; both rows are there, and so many are in force."
    rows = [m for m in ns["map_"].store.list("ann", superseded=True) if m.text.startswith("Alien (")]
    assert len(rows) == 2
    return len(rows) - sum(e.kind == "superseded" for e in ns["map_"].store.events("ann"))


def who_still_holds_it(ns) -> str:
    "Whose receipt removed nothing; the message itself has been taken back since, so that nobody holds it now."
    assert not any("penicillin" in t.question for a in ns["four"].values() for t in a.store.turns("ann"))
    [name] = [n for n, receipt in ns["receipts"].items() if "removed" not in receipt]
    return name


ANSWERS = [without_a_note, only_the_old_dose, what_bob_gets, ratings_in_force, who_still_holds_it]
