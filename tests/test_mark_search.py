"Search over refined memories: against a naive oracle, with memories nobody may see, while others write, and with vectors of any size."
import logging
import threading
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memkit.records import to_dict
from memkit.store.store import MemoryStore
from memkit.mark.search import Caller, allowed, read_policy
from memkit.mark.refined import DOMAIN, KINDS, QUESTION, RESIDUAL, RESPONSE
from memkit.mark.scoring import PART_NAMES, PRESETS, TEST, Components, relevance
from memkit.mark.search import AS_PRINTED, BY_KIND, RefinedSearch, SearchSettings, considered, why

NOW = datetime(2026, 4, 1, tzinfo=timezone.utc)
RULES = {"region": {"rule": "within", "holds": {"EU": ["DE", "FR"]}}, "department": "equals"}
POLICY = read_policy(RULES)
SECRET = "Operation Bluebird"


class Plane:
    "Texts as points of a plane: a number in the text is the angle."
    name, dim = "plane", 2
    def embed(self, texts, kind="document"): return np.array([angle(float(t.split()[-1])) for t in texts], np.float32)


def angle(degrees: float) -> np.ndarray: return np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], np.float32)


def put(store, text, vector, kind=RESIDUAL, user="ann", agent="a", metadata=None, days=0., recalls=0, correct=0, incorrect=0):
    owner = DOMAIN if kind == RESIDUAL else user
    m = store.add(owner, text, vector=vector, kind=kind, at=NOW - timedelta(days=days), meta={"agent": agent, "metadata": metadata or {}}, encoder="plane")
    return store.count(owner, m.id, recalls=recalls, correct=correct, incorrect=incorrect) if recalls else m


def make(store, weights="Default", policy=None, **more): return RefinedSearch(store, Plane(), SearchSettings(weights=weights, **{"at_least": -1., "relevant": 0.} | more), policy, clock=lambda: NOW)


rows = st.fixed_dictionaries({"kind": st.sampled_from(KINDS), "user": st.sampled_from(["ann", "bob"]), "agent": st.sampled_from(["a", "b"]), "angle": st.sampled_from([0, 10, 45, 45.01, 90, 180]), "size": st.sampled_from([1., 3.]),
                              "metadata": st.dictionaries(st.sampled_from(["region", "department"]), st.sampled_from(["EU", "DE", "US", "x"]), max_size=2), "days": st.sampled_from([0., 1., 9., 400.]),
                              "recalls": st.integers(0, 3), "right": st.integers(0, 3), "fate": st.sampled_from(["kept", "kept", "kept", "superseded", "dropped"])})
def row_of(**given): return {"kind": RESIDUAL, "user": "ann", "agent": "a", "angle": 10, "size": 1., "metadata": {}, "days": 0., "recalls": 0, "right": 0, "fate": "kept"} | given
callers = st.builds(Caller, user=st.sampled_from(["ann", "bob", "eve"]), agent=st.sampled_from(["a", "b"]), attributes=st.dictionaries(st.sampled_from(["region", "department"]), st.sampled_from(["EU", "DE", "x"]), max_size=2))


def fill(store, drawn):
    made = []
    for i, r in enumerate(drawn):
        right = min(r["right"], r["recalls"])
        m = put(store, f"m{i}", r["size"]*angle(r["angle"]), r["kind"], r["user"], r["agent"], r["metadata"], r["days"], r["recalls"], right, r["recalls"] - right)
        if r["fate"] == "dropped": store.move(m.user, [m.id], f"dropped:{m.kind}", "tried")
        if r["fate"] == "superseded": store.supersede(m.user, m.id, store.add(m.user, "newer", kind="other").id, "tried")
        if r["fate"] == "kept": made.append(m)
    return made


def oracle(made, caller, policy, query, s, kind):
    "Filter, cosine, the top, relevance: one memory at a time."
    mine = [m for m in made if m.kind == kind and (kind == RESIDUAL or m.user == caller.user and m.meta["agent"] == caller.agent) and allowed(policy, m.meta["metadata"], caller)]
    unit = query.astype(float)/np.linalg.norm(query.astype(float))
    near = {m.id: float((m_vector[m.id]*unit).sum()/np.linalg.norm(m_vector[m.id])) for m in mine}
    top = sorted(sorted(mine, key=lambda m: (-round(near[m.id], 6), m.id))[:s.top], key=lambda m: m.id)
    def score(m): return relevance(Components(m.recalls, abs((NOW - m.at).total_seconds())/86_400, near[m.id], (m.correct - m.incorrect)/max(m.correct + m.incorrect, 1)), s.weights[kind], s.literal).total
    return sorted([(round(score(m), 9), m.id) for m in top if near[m.id] >= s.at_least], key=lambda p: (-p[0], p[1]))


m_vector: dict[int, np.ndarray] = {}   # as they are stored: a rounded vector decides between equals


@settings(deadline=None, max_examples=60)
@given(st.lists(rows, max_size=25), callers, st.sampled_from([None, POLICY]), st.integers(1, 6), st.sampled_from([*PRESETS, "test", BY_KIND]), st.booleans(), st.sampled_from([-1., .5]), st.sampled_from([5., 100.]))
@example([row_of(), row_of(), row_of(size=3.)], Caller(user="ann", agent="a", attributes={}), None, 1, "Default", False, -1., 5.)   # a tie
def test_search_is_what_a_plain_loop_finds(drawn, caller, policy, top, weights, literal, at_least, towards):
    with MemoryStore(":memory:") as store:
        made = fill(store, drawn)
        m_vector.clear()
        for m in made:
            r = drawn[int(m.text[1:])]
            m_vector[m.id] = (r["size"]*angle(r["angle"])).astype(np.float32).astype(float)
        search = make(store, weights, policy, top=top, literal=literal, at_least=at_least)
        found = search.find(caller, f"towards {towards}")
        for kind in KINDS:
            hand, hits = oracle(made, caller, policy, angle(towards), search.settings, kind), found.hits[kind]
            totals = {h.item.id: sum(h.parts[n] for n in PART_NAMES) for h in hits}
            assert totals.keys() == {id for _, id in hand}
            assert np.allclose([totals[id] for _, id in hand], [s for s, _ in hand], atol=1e-6)
            assert [(-totals[h.item.id], h.item.id) for h in hits] == sorted((-t, id) for id, t in totals.items())
            assert (kind in found.nothing) == (not hits) == (kind not in found.chosen) and why(found, kind).startswith(kind)
        again = search.find(caller, f"towards {towards}")
        assert to_dict(again.hits) == to_dict(found.hits)


@settings(deadline=None, max_examples=15)
@given(st.lists(rows, max_size=12), st.lists(rows, min_size=1, max_size=12), callers, st.booleans())
def test_what_may_not_be_seen_changes_nothing(drawn, hidden, caller, literal):
    "A store with hidden memories answers as one without: words, scores to the last digit, explanations, reasons."
    def hide(r): return r | {"metadata": {"region": "US", "department": "x"}} if r["kind"] == RESIDUAL or (r["user"], r["agent"]) == (caller.user, caller.agent) else r
    told = []
    for more in ([], hidden):
        with MemoryStore(":memory:") as store:
            fill(store, drawn)
            for i, r in enumerate(map(hide, more)): put(store, f"{SECRET} {i}", r["size"]*angle(r["angle"]), r["kind"], r["user"], r["agent"], r["metadata"], r["days"], r["recalls"])
            found = make(store, policy=POLICY, literal=literal, top=4).find(caller, "towards 5")
            told.append((repr(found), {k: [(h.item.text, h.score, h.parts) for h in hits] for k, hits in found.hits.items()}, found.nothing, [why(found, k).count("\n") for k in KINDS]))
    assert told[0] == told[1] and SECRET not in str(told)


def everything_said(search, caller) -> str:
    "Whatever a search lets out, errors too."
    found, out = search.find(caller, "towards 3"), []
    for broken in (lambda: search.find(caller, " "), lambda: why(found, "rumour"), lambda: search.find(None, "q 1")):
        with pytest.raises((ValueError, TypeError)) as e: broken()
        out.append(f"{e.value!r}{e.getrepr(style='short')}")
    return "".join([repr(found), str(found), str(vars(found)), str(to_dict(found)), str(considered(found, [])), *(why(found, k) for k in KINDS), *out, repr(search), str({k: v for k, v in vars(search).items() if k != "store"})])


def test_a_secret_outside_the_policy_gets_nowhere(tmp_path, caplog, capsys):
    with MemoryStore(tmp_path/"s.db") as store:
        for kind in KINDS:
            put(store, f"seen {kind}", angle(0), kind, metadata={"region": "DE", "department": "x"})
            for metadata in ({"region": "US", "department": "x"}, {"region": "DE"}, {}): put(store, f"{SECRET} {kind}", angle(3), kind, metadata={**metadata, "note": SECRET}, recalls=3, correct=3)
        caplog.set_level(logging.DEBUG)
        for attributes in ({"region": "EU", "department": "x"}, {"region": "EU"}, {}):
            caller = Caller(user="ann", agent="a", attributes=attributes)
            said = everything_said(make(store, policy=POLICY), caller)
            assert SECRET not in said and ("seen residual" in said) == (len(attributes) == 2)
        out = capsys.readouterr()
        assert SECRET not in caplog.text + out.out + out.err
        assert SECRET in str(to_dict(make(store).find(caller, "towards 3")))     # without a policy it is found: the test looks for the right words


def test_residual_is_everybodys_the_rest_is_ones_own_with_this_agent():
    with MemoryStore(":memory:") as store:
        for kind in KINDS:
            for user in ("ann", "bob"):
                for agent in ("a", "b"): put(store, f"{kind} {user} {agent}", angle(0), kind, user, agent)
        put(store, "a residual under the wrong owner", angle(0), QUESTION); store.add("ann", "stray", angle(0), kind=RESIDUAL, meta={"agent": "a"}, encoder="plane"); store.add(DOMAIN, "stray", angle(0), kind=QUESTION, meta={"agent": "a"}, encoder="plane")
        found = make(store).find(Caller(user="ann", agent="b"), "towards 0")
        assert {k: sorted(h.item.text for h in hits) for k, hits in found.hits.items()} == {RESIDUAL: sorted(f"residual {u} {a}" for u in ("ann", "bob") for a in "ab"), QUESTION: ["user-question ann b"], RESPONSE: ["llm-response ann b"]}


def test_moved_superseded_forgotten_and_new_ones_are_followed():
    with MemoryStore(":memory:") as store:
        search, ann = make(store, policy=POLICY), Caller(user="ann", agent="a", attributes={"region": "EU", "department": "x"})
        def texts(): return sorted(h.item.text for h in search.find(ann, "towards 0").hits[QUESTION])
        ids = {t: put(store, t, angle(i), QUESTION, metadata={"region": "DE", "department": "x"}).id for i, t in enumerate("pqrs")}
        assert texts() == list("pqrs")
        for i in range(3): put(store, SECRET, angle(0), QUESTION, metadata={"region": "US", "department": "x"})
        put(store, "w", angle(9), QUESTION, metadata={"region": "EU", "department": "x"}); assert texts() == list("pqrsw")
        store.forget("ann", [store.list("ann")[-1].id]); assert texts() == list("pqrs")
        store.move("ann", [ids["p"]], "dropped:user-question", "tried"); assert texts() == list("qrs")
        store.supersede("ann", ids["q"], ids["r"], "tried"); assert texts() == list("rs")
        store.forget("ann", [ids["r"]]); assert texts() == ["s"]
        store.move("ann", [ids["p"]], QUESTION, "undone"); assert texts() == ["p", "s"]
        put(store, "t", angle(0), QUESTION, metadata={"region": "FR", "department": "x"}); assert texts() == ["p", "s", "t"]
        store.count("ann", ids["s"], recalls=1); assert [h.item.recalls for h in search.find(ann, "towards 0").hits[QUESTION] if h.item.text == "s"] == [1]
        store.forget("ann"); assert texts() == []
        put(store, "u", angle(0), QUESTION, metadata={"region": "FR", "department": "x"}); assert texts() == ["u"]


@pytest.mark.parametrize("meta", [{}, {"agent": None}, {"agent": 3, "metadata": []}, {"agent": "a", "metadata": {"region": ["EU"]}}, {"agent": "a", "metadata": None}])
def test_memories_with_odd_labels_are_hidden_and_harm_nothing(meta):
    with MemoryStore(":memory:") as store:
        for owner, kind in (("ann", QUESTION), (DOMAIN, RESIDUAL)): store.add(owner, SECRET, angle(0), kind=kind, meta=meta, encoder="plane")
        found = make(store, policy=POLICY).find(Caller(user="ann", agent="a", attributes={"region": "EU", "department": "x"}), "towards 0")
        assert not any(found.hits.values())


def test_ties_go_to_the_older_memory():
    with MemoryStore(":memory:") as store:
        ids = [put(store, f"m{i}", angle(30)).id for i in range(30)]
        found = make(store).find(Caller(user="eve"), "towards 30")
        assert [h.item.id for h in found.hits[RESIDUAL]] == ids[:20]
        assert "no part differs" in why(found, RESIDUAL)


def test_explanations_give_every_candidate_its_part_of_the_truth():
    with MemoryStore(":memory:") as store:
        put(store, "near", angle(0)); put(store, "liked", angle(40), recalls=5, correct=5); put(store, "far", angle(170))
        found = make(store, "Similarity + Feedback", at_least=.2).find(Caller(user="eve"), "towards 0")
        first, second = found.hits[RESIDUAL]
        text = why(found, RESIDUAL)
        assert first.item.text == "liked" and text.splitlines()[1].startswith(f"2. memory {second.item.id}") and "feedback +0.150" in text
        assert first.score == pytest.approx(sum(first.parts[n] for n in PART_NAMES)) and first.parts["cosine"] == pytest.approx(np.cos(np.radians(40)), abs=1e-6)
        assert "no such memory" in why(found, QUESTION)
        trace = considered(found, [first.item.id])
        assert [(c.shown, c.outcome) for c in trace] == [(True, "shown"), (False, "ranked 2 of 2, the best of each kind are shown")]
        assert considered(found, [])[0].outcome.endswith("did not fit the budget")
        assert "below 0.99" in make(store, at_least=.99).find(Caller(user="eve"), "towards 100").nothing[RESIDUAL]


def test_labels_follow_their_memories_when_earlier_ones_go():
    with MemoryStore(":memory:") as store:
        search, ann = make(store, policy=POLICY), Caller(user="ann", agent="a", attributes={"region": "EU", "department": "x"})
        ids = [put(store, f"m{i}", (1 + i)*angle(i), metadata={"region": "DE" if i % 3 else "US", "department": "x"}).id for i in range(12)]
        def found(): return sorted(int(h.item.text[1:]) for h in search.find(ann, "towards 0").hits[RESIDUAL])
        assert found() == [i for i in range(12) if i % 3]
        store.forget(DOMAIN, [ids[1], ids[3]]); put(store, "m12", angle(12), metadata={"region": "US", "department": "x"})
        assert found() == [2, 4, 5, 7, 8, 10, 11]
        hits = search.find(ann, "towards 0").hits[RESIDUAL]
        assert [h.parts["cosine"] for h in hits] == pytest.approx([np.cos(np.radians(int(h.item.text[1:]))) for h in hits], abs=1e-6)


def test_threads_may_share_a_search_while_others_write(tmp_path):
    with MemoryStore(tmp_path/"s.db") as store:
        for i in range(20): put(store, f"r{i}", angle(i)); put(store, f"q{i}", angle(i), QUESTION)
        search, failed = make(store), []
        def ask():
            try:
                for _ in range(15):
                    found = search.find(Caller(user="ann", agent="a"), "towards 0")
                    assert len(found.hits[RESIDUAL]) == len(found.hits[QUESTION]) == 20 and not found.hits[RESPONSE]
            except BaseException as e: failed.append(e)
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for t in threads: t.start()
        for i in range(15): put(store, f"later {i}", angle(5), QUESTION if i % 2 else RESIDUAL)
        for t in threads: t.join()
        assert not failed


@pytest.mark.parametrize("wrong, says", [({"weights": "Freshest"}, "no preset"), ({"weights": [.5, .5, .5, 0]}, "sum to 1"), ({"weights": [2, -1, 0, 0]}, "0..1"), ({"weights": {"rumour": TEST}}, "by kind"), ({"weights": None}, "four numbers"), 
                                         ({"weights": [1]}, "four numbers"), ({"top": 0}, "top"), ({"at_least": 1.5}, "cosine"), ({"at_least": float("nan")}, "cosine"), ({"relevant": -.1}, "relevant"), ({"read": 0}, "read")])
def test_settings_that_cannot_be_are_told_in_one_line(wrong, says):
    with pytest.raises((ValueError, TypeError), match=says) as e: SearchSettings(**wrong)
    assert "\n" not in str(e.value)


class Says:
    "A reader that thinks a memory answers as far as its text says."
    def relevance(self, question, texts): return np.array([float(t.split()[0]) for t in texts])


@pytest.mark.parametrize("said, near, more, shown", [
    ((.99, .01), (60, 60), {}, [0]),                     # the second doesn't answer
    ((.01, .02), (60, 60), {}, []),
    ((.01, .01), (5, 60), {}, [0]),                      # the very question
    ((.999, .95), (60, 60), {}, [0]),                    # both answer, one of them far more surely
    ((.97, .95), (60, 60), {}, [0, 1]),
    ((.01, .01), (60, 60), {"relevant": 0.}, [0, 1])])   # nothing is read
def test_a_shared_memory_must_answer_the_question(said, near, more, shown, monkeypatch):
    monkeypatch.setattr("memkit.mark.search.load_reply_reader", Says)
    with MemoryStore(":memory:") as store:
        ids = [put(store, f"{p} m", angle(a)).id for p, a in zip(said, near)]
        own = put(store, "0.0 mine", angle(60), QUESTION, "ann").id
        settings = SearchSettings(**{"at_least": -1.} | more)
        search = RefinedSearch(store, Plane(), settings, clock=lambda: NOW)
        found = search.find(Caller(user="ann", agent="a"), "towards 0")
        assert sorted(h.item.id for h in found.hits[RESIDUAL]) == [ids[i] for i in shown]
        assert [h.item.id for h in found.hits[QUESTION]] == [own], "one's own memories aren't read"
        assert (RESIDUAL in found.nothing) == (not shown) and (shown or "answers the question" in found.nothing[RESIDUAL])


@pytest.mark.parametrize("asked, found", [("What reverses too much warfarin?", False), ("What reverses too much heroin?", False),
                                          ("What reverses too much Panadol?", True), ("What reverses too much of it?", True)])
def test_a_memory_about_another_medicine_answers_nothing(asked, found, minilm, monkeypatch):
    monkeypatch.setattr("memkit.mark.search.load_reply_reader", lambda: type("Sure", (), {"relevance": lambda self, q, texts: np.full(len(texts), .99)})())
    text = "What reverses too much paracetamol? Acetylcysteine does."
    with MemoryStore(":memory:") as store:
        store.add(DOMAIN, text, vector=minilm.embed([text])[0], kind=RESIDUAL, at=NOW, meta={"agent": "a", "metadata": {}}, encoder=minilm.name)
        got = RefinedSearch(store, minilm, clock=lambda: NOW).find(Caller(user="ann", agent="a"), asked)
        assert bool(got.hits[RESIDUAL]) == found and (found or "other medicines" in got.nothing[RESIDUAL])


def test_the_papers_settings_have_no_floor():
    assert AS_PRINTED.weights == dict.fromkeys(KINDS, TEST) and AS_PRINTED.top == 20 and AS_PRINTED.literal and not AS_PRINTED.relevant
