"What nbs/walkthroughs/3_mark asks, worked out in another way than there: from the stores' logs and the formulas themselves."
from memkit.store.store import MemoryStore


def trust(outcomes):  # appendix 1 of MARK, with its constants
    score, right = 1/4, 0
    for total, outcome in enumerate(outcomes, 1):
        right += outcome is True
        score = .8*score + .2*(right + 1)/(total + 4)
    return score


def persistence(outcomes): return len(outcomes)/(len(outcomes) + .5*sum(o is False for o in outcomes))


def owner(ns):
    store = ns["real"].store
    ids = {h.item.id for h in ns["told"].recalled}
    found = [name for name in ("ann", "ben", "domain:shared") if ids & {e.memory for e in store.events(name, kinds=["injected"])}]
    return {"ann": "to Ann", "ben": "to Ben", "domain:shared": "to the domain"}[found[0]]


def confirmations(ns): return next(n for n in range(1, 100) if trust([None]*3 + [True]*n) > 1/4)


def blamed(ns):
    lower = [f(["", "", False]) < f([None]*3) - 1e-12 for f in (trust, persistence)]
    return {(True, True): "both are lower", (True, False): "only its trust is lower", (False, True): "only its persistence is lower", (False, False): "nothing is"}[tuple(lower)]


def decided(ns):
    "From the record of the truth: shown four times, never judged; the lie was never shown."
    store = ns["paper"].store
    [e] = store.events("domain:shared", kinds=["superseded"])
    shown = [sum(i.kind == "injected" for i in store.events("domain:shared", [m])) for m in (e.memory, e.other)]
    return "which of the two was trusted more" if trust([None]*shown[0]) < trust([None]*shown[1]) else "which was said later"


def objection(ns):
    "The same people in a store that is read directly: what is in force, not what a search finds."
    again = ns["ward"](ns["QuorumSettings"]())
    say = lambda user, claim: ns["talk"](again, user, ns["QUESTION"], f"No, {claim}.")
    claims = ns["TRUTH"], ns["LIE"]
    texts = lambda: [m.text.lower() for m in again.store.list("domain:shared", "residual")]
    held = lambda: [claim for text in texts() for claim in claims if claim.lower() in text]
    assert isinstance(again.store, MemoryStore)
    say("ann", ns["TRUTH"])
    for liar in ns["LIARS"][:3]: say(liar, ns["LIE"])
    assert held() == [ns["LIE"]], "readers get the lie, as the question says"
    say("fay", ns["TRUTH"])
    return {ns["TRUTH"]: "the truth again", ns["LIE"]: "the lie still"}[held()[-1]]


ANSWERS = [owner, confirmations, blamed, decided, objection]
