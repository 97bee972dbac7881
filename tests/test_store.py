"The memory store: what goes in comes out, of this user alone, and a search agrees with a naive one."
import threading
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from memkit.records import new_id
from memkit.store.schema import NotFound, StoreError, owners
from memkit.store.slices import Kept, Slice, SliceCache, check_vector
from memkit.store.store import MemoryStore

quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=300).filter(str.strip)


@pytest.fixture(params=["file", "memory", "postgres"])
def store(request, tmp_path):
    target = {"file": tmp_path/"store.db", "memory": ":memory:"}.get(request.param) or request.getfixturevalue("pg")
    with MemoryStore(target) as s: yield s


# --- what goes in comes out

@quick
@given(text=texts, user=texts, kind=texts, reason=st.one_of(st.just(""), texts), key=texts, meta=st.dictionaries(texts, st.one_of(texts, st.integers(-9, 9), st.none()), max_size=3))
def test_any_text_survives(store, text, user, kind, reason, key, meta):
    m = store.add(user, text, kind=kind, meta=meta, reason=reason)
    assert store.get(user, m.id) == m == store.list(user)[-1]
    assert (m.text, m.user, m.kind, m.meta) == (text, user, kind, meta)
    assert store.events(user)[-1].reason == reason
    store.set_state(user, key, [text, meta])
    assert store.state(user, key) == [text, meta]
    t = store.add_turn(user, text, text, text)
    assert store.turns(user, session=text)[-1].id == t
    store.forget(user)
    assert store.list(user) == store.turns(user) == store.events(user) == [] and store.state(user, key) is None


@quick
@given(at=st.datetimes(timezones=st.timezones()))
def test_times_keep_every_microsecond(store, at):
    try: utc = at.astimezone(timezone.utc)
    except OverflowError: return                       # the first and last hours of the calendar have no UTC
    assert store.add("u", "x", at=at).at == store.list("u")[-1].at == utc


def test_vectors_come_back_bit_by_bit(store):
    v = np.array([1e-45, -0., 3.4e38, 1/3], "<f4")
    m = store.add("u", "x", v)
    ids, matrix = store.vectors("u")
    assert ids.tolist() == [m.id] and matrix.tobytes() == v.tobytes() and not matrix.flags.writeable


def test_a_megabyte_of_text(store):
    text = "é" * 500_000
    assert store.get("u", store.add("u", text).id).text == text


def test_names_are_compared_as_they_are(store):
    for user in ("Zoë", "Zoe\u0308", "zoë", " Zoë", "Robert'); DROP TABLE owners;--"): store.add(user, f"of {user!r}")
    for user in ("Zoë", "Zoe\u0308", "zoë", " Zoë", "Robert'); DROP TABLE owners;--"): assert [m.text for m in store.list(user)] == [f"of {user!r}"]


def test_many_owners_in_one_bucket_stay_apart(store):
    "The index sees 16 bits: make them all equal."
    for i in range(5): store.add(f"user {i}", f"memory {i}")
    with store._db.engine.begin() as conn: digests = conn.execute(owners.select()).all()
    with store._db.engine.begin() as conn: conn.execute(owners.update().values(bucket=7))
    import memkit.store.schema as schema
    real, schema.bucket = schema.bucket, lambda digest: 7
    try: assert [store.list(f"user {i}")[0].text for i in range(5)] == [f"memory {i}" for i in range(5)]
    finally: schema.bucket = real
    assert len({d.digest for d in digests}) == 5


def test_a_callers_later_change_reaches_nothing(store):
    meta = {"a": [1]}
    m = store.add("u", "x", [1, 0], meta=meta)
    meta["a"].append(2)
    store.search("u", [1, 0])[0].item.meta["a"].append(3)
    m.meta["a"].append(4)
    assert store.get("u", m.id).meta == store.search("u", [1, 0])[0].item.meta == {"a": [1]}


# --- whose is it

def test_nothing_of_others(store):
    mine, yours = store.add("me", "mine", [1, 0]), store.add("you", "yours", [1, 0])
    turn = store.add_turn("you", "s", "q", "a")
    unknown = yours.id + 1000
    for call in (lambda id: store.get("me", id), lambda id: store.count("me", id, recalls=1), lambda id: store.supersede("me", id, mine.id, "r"),
                 lambda id: store.supersede("me", mine.id, id, "r"), lambda id: store.forget("me", [mine.id, id])):
        told = []
        for id in (yours.id, unknown):
            with pytest.raises(KeyError) as e: call(id)
            told.append(str(e.value).replace(str(id), "N"))
        assert told[0] == told[1] == "this user has no memory N"
    with pytest.raises(LookupError, match="no turn"): store.add("me", "x", turns=[turn])
    assert [h.item.text for h in store.search("me", [1, 0])] == ["mine"] and [m.text for m in store.list("me")] == ["mine"]
    assert store.turns("me") == [] and store.get("you", yours.id) == yours and len(store.events("me")) == 1


def test_somebody_unknown_has_nothing(store):
    assert store.list("x") == store.turns("x") == store.events("x") == store.search("x", [1.]) == [] and store.superseded("x") == {}
    assert store.state("x", "k", 5) == 5 and store.vectors("x")[1].size == 0
    receipt = store.forget("x")
    assert receipt.erased and receipt.memories == () and not any(receipt.removed.values())
    for call in (lambda: store.get("x", 1), lambda: store.count("x", 1, recalls=1), lambda: store.forget("x", [1]), lambda: store.supersede("x", 1, 2, "r")):
        with pytest.raises(NotFound, match="^this user has no memory 1$"): call()
    with store._db.engine.begin() as conn: assert conn.execute(owners.select()).all() == []      # asking made nobody


def test_identifiers_are_never_used_again(store):
    first = store.add("u", "x")
    store.forget("u")
    assert store.add("u", "y").id > first.id
    with pytest.raises(NotFound): store.get("u", first.id)


# --- what is refused, before anything is written

@pytest.mark.parametrize("call, error, said", [
    (lambda s: s.add("", "x"), ValueError, "user is empty"), (lambda s: s.add("u", "a\0b"), ValueError, "NUL"), (lambda s: s.add("u", "\ud800"), ValueError, "surrogate"),
    (lambda s: s.add("u\ud800", "x"), ValueError, "surrogate"), (lambda s: s.list(None), TypeError, "NoneType"), (lambda s: s.add("u", "x", kind=" "), ValueError, "kind is empty"),
    (lambda s: s.add("u", "x", at=datetime(2026, 1, 1)), ValueError, "no zone"), (lambda s: s.add("u", "x", meta={"a": object()}), ValueError, "JSON"),
    (lambda s: s.add("u", "x", meta={"a": "\ud800"}), ValueError, "surrogate|JSON"), (lambda s: s.add("u", "x", turns="t-1"), TypeError, "one string"),
    (lambda s: s.add("u", "x", turns=["Anna said"]), ValueError, "random identifier"), (lambda s: s.add_turn("u", "s", "q", "a", id="first visit"), ValueError, "random identifier"),
    (lambda s: s.add_turn("u", "s", " ", "a"), ValueError, "question is empty"), (lambda s: s.add_turn("u", "", "q", "a"), ValueError, "session is empty"),
    (lambda s: s.add("u", "x", [[1.]]), ValueError, "shape"), (lambda s: s.add("u", "x", []), ValueError, "shape"), (lambda s: s.add("u", "x", [float("inf")]), ValueError, "finite"),
    (lambda s: s.add("u", "x", [1e39]), ValueError, "finite"), (lambda s: s.add("u", "x", "vector"), ValueError, "numbers"), (lambda s: s.search("u", [1.], k=0), ValueError, "k must be"),
    (lambda s: s.search("u", [float("nan")]), ValueError, "the query holds"), (lambda s: s.count("u", 1), ValueError, "nothing to count"),
    (lambda s: s.count("u", 1, recalls=-1), ValueError, "recalls must be"), (lambda s: s.count("u", 1, correct=True), ValueError, "correct must be"),
    (lambda s: s.count("u", 1, incorrect=1.5), ValueError, "incorrect must be"), (lambda s: s.get("u", "1"), TypeError, "integer"), (lambda s: s.get("u", 1 << 70), KeyError, "no memory"),
    (lambda s: s.get("u", -1), KeyError, "no memory"), (lambda s: s.set_state("u", "k", {1, 2}), ValueError, "JSON"), (lambda s: s.set_state("u", "k", float("nan")), ValueError, "JSON"),
    (lambda s: s.forget("u", ["1"]), TypeError, "integer"), (lambda s: s.supersede("u", 1, 1, "r"), ValueError, "own place"),
    (lambda s: MemoryStore(":memory:", timeout=0), ValueError, "timeout"),
])
def test_bad_input_is_one_line_and_changes_nothing(store, call, error, said):
    with pytest.raises(error, match=said) as e: call(store)
    assert "\n" not in str(e.value)
    assert store.events("u") == []


def test_one_dimension_per_user_and_encoder(store):
    store.add("u", "x", [1, 0], encoder="a")
    with pytest.raises(ValueError, match="3 dimensions, this user's other vectors of encoder 'a' have 2"): store.add("u", "y", [1, 0, 0], encoder="a")
    store.add("u", "z", [1, 0, 0], encoder="b")
    store.add("v", "z", [1, 0, 0], encoder="a")
    with pytest.raises(ValueError, match="2 encoders"): store.search("u", [1, 0])
    with pytest.raises(ValueError, match="the query has 3"): store.search("u", [1, 0, 0], encoder="a")
    assert [h.item.text for h in store.search("u", [1, 0, 0], encoder="b")] == ["z"] and store.search("u", [1], encoder="c") == []
    assert len(store.list("u")) == 2


def test_a_turn_is_kept_once(store):
    id = store.add_turn("u", "s", "q", "")
    for user in ("u", "v"):
        with pytest.raises(ValueError, match="already there"): store.add_turn(user, "s", "q", "a", id=id)
    assert len(store.turns("u")) == 1 and store.turns("v") == [] and store.turns("u", session="other") == []


# --- search

small = st.lists(st.integers(-3, 3), min_size=3, max_size=3)      # whole numbers: the oracle's products are exact

@quick
@given(rows=st.lists(st.tuples(small, st.sampled_from(["note", "exchange"])), max_size=30), query=small, k=st.integers(1, 8),
       kind=st.sampled_from([None, "note", "exchange", ("note", "exchange"), "none such"]), at_least=st.sampled_from([-np.inf, -2, 0, 3]))
def test_search_agrees_with_a_naive_one(store, rows, query, k, kind, at_least):
    user = new_id()
    made = [(store.add(user, "x", v, kind=kd).id, v, kd) for v, kd in rows]
    score = lambda v: sum(a*b for a, b in zip(v, query))
    wanted = [(id, score(v)) for id, v, kd in made if kind is None or kd in ((kind,) if isinstance(kind, str) else kind)]
    wanted = sorted([(id, s) for id, s in wanted if s >= at_least], key=lambda p: (-p[1], p[0]))[:k]
    found = store.search(user, query, k, kind=kind, at_least=at_least)
    assert [(h.item.id, h.score) for h in found] == wanted
    assert all(h.parts["inner product"] == h.score and h.item.user == user for h in found)


@pytest.mark.parametrize("n", [1, 7, 64, 1000])
def test_real_vectors_in_double_precision(n):
    rng = np.random.default_rng(n)
    m, q = rng.normal(size=(n, 384)).astype("<f4"), rng.normal(size=384).astype("<f4")
    m[n//2:] = m[:n - n//2]                                            # every row twice
    part = Slice(np.arange(1, n + 1), np.array(["note"]*n), m, float(np.linalg.norm(m, axis=1).max()))
    exact = [sum(float(a)*float(b) for a, b in zip(row, q)) for row in m[:50]]
    best = dict(part.best(q, n))
    np.testing.assert_allclose([best[i + 1] for i in range(min(n, 50))], exact, atol=1e-10)
    assert part.best(q, min(10, n)) == part.best(q, n)[:10]           # the candidates miss nothing
    for id in range(1, n//2): assert best[id] == best[id + n - (n - n//2)]


def test_huge_numbers_do_not_hide_a_hit():
    m = np.array([[3e38, 3e38], [3e38, -3e38], [1, 1]], "<f4")
    part = Slice(np.arange(1, 4), np.array(["n"]*3), m, float(np.linalg.norm(m.astype(float), axis=1).max()))
    assert [i for i, _ in part.best(m[0], 1)] == [1] and [i for i, _ in part.best(m[0], 2)] == [1, 3]


def test_search_sees_each_change_at_once(store):
    a, b = store.add("u", "a", [1, 0]), store.add("u", "b", [.5, 0])
    seen = lambda: [h.item.id for h in store.search("u", [1, 0])]
    assert seen() == [a.id, b.id]
    store.count("u", b.id, recalls=2)
    assert store.search("u", [1, 0])[1].item.recalls == 2
    c = store.add("u", "c", [2, 0]); assert seen() == [c.id, a.id, b.id]
    store.supersede("u", a.id, c.id, "newer"); assert seen() == [c.id, b.id]
    store.forget("u", [c.id]); assert seen() == [b.id]                 # what was out of date stays so
    store.add("u", "no vector"); assert seen() == [b.id]
    assert store.superseded("u") == {a.id: 0}


def test_the_cache_is_bounded_and_does_not_matter(tmp_path):
    with MemoryStore(tmp_path/"s.db", cache_bytes=6000) as s, MemoryStore(tmp_path/"s.db", cache_bytes=0) as without:
        for u in range(12): s.add(f"u{u}", f"x{u}", np.eye(64)[u])
        for _ in range(2):
            for u in range(12): assert s.search(f"u{u}", np.eye(64)[u]) == without.search(f"u{u}", np.eye(64)[u])
        assert 0 < len(s._cache.kept) < 12 and s._cache.used <= 6000 and not without._cache.kept


def test_two_stores_on_one_file_see_each_other_at_once(tmp_path):
    with MemoryStore(tmp_path/"s.db") as a, MemoryStore(tmp_path/"s.db") as b:
        for i in range(5):
            first, second = (a, b) if i % 2 else (b, a)
            m = first.add("u", f"x{i}", [1, i])
            assert second.search("u", [0, 1], k=1)[0].item.id == m.id and second.get("u", m.id).text == f"x{i}"
        a.forget("u")
        assert b.search("u", [0, 1]) == []


# --- log, counters, supersession, state

def test_every_write_leaves_one_event(store):
    day = datetime(2026, 3, 1, tzinfo=timezone.utc)
    t = store.add_turn("u", "s", "q", "a", at=day)
    a = store.add("u", "a", at=day, turns=[t, t], reason="told"); b = store.add("u", "b")
    store.count("u", a.id, recalls=2, correct=1, at=day + timedelta(days=1), reason="nod")
    store.supersede("u", a.id, b.id, "newer")
    store.set_state("u", "consent", True); store.set_state("u", "consent", None)
    log = [(e.kind, e.memory, e.other, e.turn, e.reason, dict(e.data)) for e in store.events("u")]
    assert log == [("turn", None, None, t, "", {}), ("added", a.id, None, None, "told", {}), ("added", b.id, None, None, "", {}), ("recalled", a.id, None, None, "nod", {"recalls": 2}),
        ("feedback", a.id, None, None, "nod", {"correct": 1}), ("superseded", a.id, b.id, None, "newer", {}), ("state", None, None, None, "", {"set": True}), ("state", None, None, None, "", {"set": False})]
    assert store.events("u")[3].at == day + timedelta(days=1) and a.turns == (t,) == store.get("u", a.id).turns
    assert store.state("u", "consent", "unset") == "unset"
    assert (m := store.get("u", a.id)).recalls == 2 and m.correct == 1 and m.incorrect == 0


def test_citations_keep_their_order(store):
    ts = [store.add_turn("u", "s", f"q{i}", "a") for i in range(5)]
    m = store.add("u", "x", turns=reversed(ts))
    assert store.get("u", m.id).turns == tuple(reversed(ts))


def test_supersession_cannot_go_round(store):
    a, b, c = (store.add("u", t) for t in "abc")
    store.supersede("u", a.id, b.id, "r")
    for id, by in ((b, a), (a, c), (c, a)):
        with pytest.raises(ValueError, match="superseded before"): store.supersede("u", id.id, by.id, "r")
    store.supersede("u", b.id, c.id, "r")
    assert store.superseded("u") == {a.id: b.id, b.id: c.id}
    assert [m.id for m in store.list("u")] == [c.id] and len(store.list("u", superseded=True)) == 3 and store.list("u", kind="other") == []


# --- transactions

def test_all_or_nothing(store):
    keep = store.add("u", "before", [1, 0])
    def fails():
        with store.transaction("u") as s:
            t = s.add_turn("u", "s", "q", "a"); s.add("u", "new", [1, 0], turns=[t]); s.count("u", keep.id, recalls=5); s.set_state("u", "k", 1)
            assert len(s.search("u", [1, 0])) == 2 and s.get("u", keep.id).recalls == 5 and s.state("u", "k") == 1     # it sees itself
            raise RuntimeError("stop")
    with pytest.raises(RuntimeError, match="stop"): fails()
    assert store.list("u") == [keep] and store.turns("u") == [] and store.state("u", "k") is None and len(store.events("u")) == 1
    assert len(store.search("u", [1, 0])) == 1


def test_a_dropped_transaction_leaves_no_slice(store):
    "Its version number comes again with other content."
    store.add("u", "a", [1, 0])
    with pytest.raises(RuntimeError):
        with store.transaction("u"):
            store.add("u", "ghost", [5, 0]); assert store.search("u", [1, 0])[0].item.text == "ghost"
            raise RuntimeError
    b = store.add("u", "b", [2, 0])
    assert [h.item.text for h in store.search("u", [1, 0])] == ["b", "a"] and store.search("u", [1, 0])[0].item.id == b.id


def test_nested_parts_fail_alone(store):
    with store.transaction("u"):
        store.add("u", "outer")
        with pytest.raises(NotFound):
            with store.transaction("u"): store.add("u", "inner"); store.get("u", 99)
        with pytest.raises(NotFound): store.add("u", "cites nothing", turns=[new_id("t")])
        with store.transaction("u"): store.add("u", "second inner")
    assert [m.text for m in store.list("u")] == ["outer", "second inner"]
    assert [e.kind for e in store.events("u")] == ["added", "added"]


def test_a_transaction_is_one_users(store):
    with store.transaction("u"):
        store.add("u", "x")
        for call in (lambda: store.add("v", "y"), lambda: store.list("v"), lambda: store.forget("v")):
            with pytest.raises(ValueError, match="one user's"): call()
        with pytest.raises(StoreError, match="stands alone"): store.forget("u")
    assert len(store.list("u")) == 1 and store.list("v") == []


def test_others_do_not_see_what_is_not_committed(tmp_path):
    with MemoryStore(tmp_path/"s.db") as s:
        s.add("u", "a", [1, 0]); seen = []
        with s.transaction("u"):
            s.add("u", "b", [1, 0])
            t = threading.Thread(target=lambda: seen.append(len(s.search("u", [1, 0])))); t.start(); t.join()
        assert seen == [1] and len(s.search("u", [1, 0])) == 2


def test_closed_is_closed(store):
    store.close(); store.close()
    for call in (lambda: store.list("u"), lambda: store.add("u", "x"), lambda: store.forget("u")):
        with pytest.raises(StoreError, match="closed"): call()


# --- forgetting, as rows

def test_what_falls_with_a_memory(store):
    only, shared, free = (store.add_turn("u", "s", f"q{i}", "a") for i in range(3))
    a = store.add("u", "a", turns=[only, shared]); b = store.add("u", "b", turns=[shared]); other = store.add("v", "a")
    store.count("u", a.id, recalls=1); store.supersede("u", a.id, b.id, "r")
    receipt = store.forget("u", [a.id])
    assert receipt.memories == (a.id,) and receipt.removed == {"citations": 2, "events": 4, "memories": 1, "turns": 1, "adapters": 0} and receipt.erased and receipt.pending == ""
    assert [t.id for t in store.turns("u")] == [shared, free] and store.get("u", b.id).turns == (shared,)
    assert [e.kind for e in store.events("u")] == ["turn", "turn", "added", "forgotten"] and store.events("u")[-1].data == {"memories": 1, "turns": 1, "turns still cited": 1}
    assert store.get("v", other.id) == other
    assert store.forget("u", [b.id]).removed["turns"] == 1 and [t.id for t in store.turns("u")] == [free]


def test_nothing_chosen_is_nothing_forgotten(store):
    m = store.add("u", "x")
    receipt = store.forget("u", [])
    assert receipt.memories == () and receipt.erased and store.list("u") == [m] and len(store.events("u")) == 1


def test_an_unknown_one_among_many_stops_it(store):
    ids = [store.add("u", f"{i}").id for i in range(4)]
    with pytest.raises(NotFound, match="no memory 99"): store.forget("u", [*ids, 99])
    assert len(store.list("u")) == 4 and len(store.events("u")) == 4


def test_everything_of_a_user_and_of_nobody_else(store):
    for u in "uv":
        t = store.add_turn(u, "s", "q", "a"); a = store.add(u, "a", [1, 0], turns=[t]); b = store.add(u, "b", [1, 0])
        store.supersede(u, a.id, b.id, "r"); store.set_state(u, "k", 1)
    receipt = store.forget("u")
    assert receipt.removed == {"citations": 1, "events": 5, "memories": 2, "turns": 1, "state": 1, "adapters": 0, "owners": 1} and len(receipt.memories) == 2
    assert store.list("u", superseded=True) == store.turns("u") == store.events("u") == [] and store.state("u", "k") is None
    assert len(store.list("v", superseded=True)) == 2 and len(store.events("v")) == 5 and store.state("v", "k") == 1


def test_more_than_a_statement_holds(store):
    with store.transaction("u"):
        ids = [store.add("u", f"m{i}", turns=[store.add_turn("u", "s", f"q{i}", "a")]).id for i in range(620)]
    receipt = store.forget("u", ids[:570])
    assert receipt.removed["memories"] == receipt.removed["turns"] == receipt.removed["citations"] == 570
    assert [m.id for m in store.list("u")] == ids[570:]


class Life(RuleBasedStateMachine):
    "Any order of verbs by two users, beside a plain dictionary."
    def __init__(self):
        super().__init__()
        self.store, self.model, self.versions = MemoryStore(":memory:"), {"u": {}, "v": {}}, 0

    @rule(user=st.sampled_from("uv"), x=st.integers(-3, 3))
    def add(self, user, x): self.model[user][self.store.add(user, f"m{x}", [x, 1]).id] = [x, 0, True]

    @precondition(lambda self: self.model["u"])
    @rule(data=st.data(), n=st.integers(1, 3))
    def count(self, data, n):
        id = data.draw(st.sampled_from(sorted(self.model["u"])))
        self.model["u"][id][1] += n
        assert self.store.count("u", id, recalls=n).recalls == self.model["u"][id][1]

    @precondition(lambda self: sum(v[2] for v in self.model["u"].values()) > 1)
    @rule(data=st.data())
    def supersede(self, data):
        live = sorted(i for i, v in self.model["u"].items() if v[2])
        id = data.draw(st.sampled_from(live)); by = data.draw(st.sampled_from([i for i in live if i != id]))
        self.store.supersede("u", id, by, "r"); self.model["u"][id][2] = False

    @precondition(lambda self: self.model["u"])
    @rule(data=st.data())
    def forget_some(self, data):
        ids = data.draw(st.sets(st.sampled_from(sorted(self.model["u"])), min_size=1))
        assert self.store.forget("u", ids).removed["memories"] == len(ids)
        for id in ids: del self.model["u"][id]

    @rule(user=st.sampled_from("uv"))
    def forget_all(self, user):
        assert set(self.store.forget(user).memories) == set(self.model[user]); self.model[user] = {}

    @rule(user=st.sampled_from("uv"))
    def fail(self, user):
        with pytest.raises(ZeroDivisionError):
            with self.store.transaction(user): self.store.add(user, "ghost", [9, 9]); self.store.search(user, [1, 1]); 1/0

    @invariant()
    def agree(self):
        for user, model in self.model.items():
            live = {i: v for i, v in model.items() if v[2]}
            assert {m.id: m.recalls for m in self.store.list(user)} == {i: v[1] for i, v in live.items()}
            assert {m.id for m in self.store.list(user, superseded=True)} == set(model)
            assert [h.item.id for h in self.store.search(user, [1, 0], k=99)] == sorted(live, key=lambda i: (-live[i][0], i))

    def teardown(self): self.store.close()

Life.TestCase.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
TestLife = Life.TestCase


# --- threads

def test_threads_share_a_store(store):
    ids = [store.add("u", f"m{i}", [i, 1]).id for i in range(4)]
    wrong = []
    def work(n):
        try:
            for i in range(25):
                store.count("u", ids[i % 4], recalls=1)
                if i % 5 == 0: store.add(f"own {n}", "x", [i, 1])
                if [h.item.id for h in store.search("u", [1, 0], k=4)] != ids[::-1]: wrong.append("order")
                if [h.item.user for h in store.search(f"own {n}", [1, 0])] != [f"own {n}"] * min(5, i//5 + 1): wrong.append("user")
        except Exception as e: wrong.append(repr(e))
    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert wrong == [] and sum(m.recalls for m in store.list("u")) == 200
    assert sum(e.kind == "recalled" for e in store.events("u")) == 200


def test_the_cache_keeps_the_newer_state():
    cache, rows = SliceCache(1 << 20), {}
    cache.put(1, Kept(5, rows)); cache.put(1, Kept(4, rows))
    assert cache.get(1, 5) and cache.get(1, 4) is None


def test_check_vector_leaves_the_callers_alone():
    v = np.array([1., 2.])
    w = check_vector(v); w[0] = 9
    assert v.tolist() == [1., 2.]


# --- what is kept in memory

def kept_words(s): return [value for kept in s._cache.kept.values() for row in kept.rows.values() for value in row]


def statements(s, monkeypatch, schema):
    "Counts the transactions that read."
    seen, real = [], schema.reading
    monkeypatch.setattr("memkit.store.store.reading", lambda *a: seen.append(1) or real(*a))
    return seen


def test_a_warm_search_reads_the_version_alone_and_gives_whole_memories(tmp_path, monkeypatch):
    import memkit.store.schema as schema
    with MemoryStore(tmp_path/"s.db") as s:
        turn = s.add_turn("u", new_id("s"), "Do I have a cat?", "Yes.")
        made = [s.add("u", f"memory {i}", [1, i], turns=[turn]*(i == 1), meta={"n": [i]}) for i in range(4)]
        s.count("u", made[2].id, recalls=3)
        s.search("u", [1, 0], k=1)
        seen = statements(s, monkeypatch, schema)
        hits = s.search("u", [1, 0], k=4)
        assert seen == [] and sorted((h.item for h in hits), key=lambda m: m.id) == s.list("u")
        hits[0].item.meta["n"].append("changed by a caller")
        assert s.search("u", [1, 0], k=4) == [type(h)(item=s.get("u", h.item.id), score=h.score, source=h.source, parts=h.parts) for h in hits]


def test_a_receipt_speaks_of_a_disk_only_where_there_is_one(tmp_path):
    for place, says in ((":memory:", "this store is only in memory"), (tmp_path/"s.db", "gone from the bytes on disk")):
        with MemoryStore(place) as store:
            m = store.add("u", "A fact.")
            for receipt in (store.forget("u", [m.id]), store.forget("u"), store.drop_adapter("u")):
                assert receipt.erased and says in str(receipt) and ("disk" in str(receipt)) == (place != ":memory:")
            nobody = store.forget("nobody")           # a name that isn't known is no erasure
            assert nobody.unknown and nobody.erased and "gone" not in str(nobody)


def test_forget_leaves_no_words_in_memory(tmp_path):
    with MemoryStore(tmp_path/"s.db") as s:
        a, b = s.add("u", "likes tea with lemon", [1, 0]), s.add("u", "rides a bicycle", [0, 1])
        s.search("u", [1, 0])
        assert "likes tea with lemon" in kept_words(s)
        s.forget("u", [a.id])
        assert kept_words(s) == [] and [h.item.text for h in s.search("u", [1, 0])] == ["rides a bicycle"]
        s.forget("u")
        assert kept_words(s) == [] and s.search("u", [1, 0]) == [] and b.id


@pytest.mark.parametrize("everything", [True, False])
def test_a_search_that_read_before_a_forget_puts_nothing_back(tmp_path, monkeypatch, everything):
    with MemoryStore(tmp_path/"s.db") as s:
        a = s.add("u", "likes tea with lemon", [1, 0])
        real = SliceCache.put
        def late(cache, owner, kept): s.forget("u", None if everything else [a.id]); real(cache, owner, kept)
        monkeypatch.setattr(SliceCache, "put", late)
        assert [h.item.text for h in s.search("u", [1, 0])] == ["likes tea with lemon"]       # it began before the forget
        assert kept_words(s) == []
        monkeypatch.setattr(SliceCache, "put", real)
        assert s.search("u", [1, 0]) == [] and kept_words(s) == []


def test_what_another_store_forgot_is_found_no_more(tmp_path):
    with MemoryStore(tmp_path/"s.db") as s, MemoryStore(tmp_path/"s.db") as other:
        a, b = s.add("u", "likes tea with lemon", [1, 0]), s.add("u", "rides a bicycle", [0, 1])
        s.search("u", [1, 0])
        other.forget("u", [a.id])
        assert [h.item.text for h in s.search("u", [1, 0])] == ["rides a bicycle"] and "likes tea with lemon" not in kept_words(s)
        other.forget("u")
        assert s.search("u", [1, 0]) == [] and b.id


def test_long_texts_count_towards_what_is_kept(tmp_path):
    with MemoryStore(tmp_path/"s.db", cache_bytes=100_000) as s:
        for u in range(8): s.add(f"u{u}", "é"*30_000, [1, 0])
        for u in range(8): assert len(s.search(f"u{u}", [1, 0])) == 1
        assert 1 <= len(s._cache.kept) <= 3 and s._cache.used <= 100_000
        s.add("u0", "x"*200_000, [1, 0])
        for _ in range(2): assert len(s.search("u0", [1, 0])) == 2
        assert sum(map(len, filter(lambda w: isinstance(w, str), kept_words(s)))) <= 100_000


def test_a_search_in_a_transaction_sees_its_own_writes_and_keeps_none(tmp_path):
    with MemoryStore(tmp_path/"s.db") as s:
        s.add("u", "before", [1, 0]); s.search("u", [1, 0])
        with pytest.raises(KeyError), s.transaction("u"):
            s.add("u", "never to be", [1, 0])
            assert len(s.search("u", [1, 0])) == 2
            raise KeyError
        assert [h.item.text for h in s.search("u", [1, 0])] == ["before"] and "never to be" not in kept_words(s)


def test_a_glance_agrees_with_the_long_way_and_its_errors_are_told_in_one_line(store, monkeypatch):
    import memkit.store.schema as schema
    db = store._db
    assert schema.glance(db, "u") == (0, 0)
    for _ in range(3):
        store.add("u", "x", [1, 0])
        with schema.reading(db, "u") as conn: long_way = schema.find_owner(db, conn, "u")
        assert schema.glance(db, "u") == long_way
    def broken(*a): raise db.engine.dialect.dbapi.OperationalError("disk I/O error")
    with monkeypatch.context() as m:
        m.setattr(db.engine, "raw_connection", broken)
        with pytest.raises(StoreError, match="the disk refused a write"): store.search("u", [1, 0])
    assert len(store.search("u", [1, 0], k=9)) == 3
    store.close()
    with pytest.raises(StoreError, match="it was closed"): store.search("u", [1, 0])


# kinds that change, and events of other kinds

def test_a_memory_moves_and_says_why(store):
    a, b = (store.add("u", w, [1, 0], kind="short").id for w in ("a", "b"))
    assert [h.item.kind for h in store.search("u", [1, 0], kind="short")] == ["short", "short"]     # the slice is kept from here on
    store.move("u", [b, a], "long", "said often", event="promoted", data={"round": 3})
    assert not store.search("u", [1, 0], kind="short") and [m.kind for m in store.list("u")] == ["long", "long"]
    assert store.vectors("u", kind="long")[0].tolist() == [a, b] and not len(store.vectors("u", kind="short")[0])
    assert [(e.kind, e.memory, e.reason, e.data) for e in store.events("u")[-2:]] == [("promoted", b, "said often", {"round": 3}), ("promoted", a, "said often", {"round": 3})]
    store.move("u", [], "short", "nobody")
    assert len(store.events("u")) == 4


def test_what_cannot_be_moved_or_logged(store):
    a, b = (store.add("u", w).id for w in ("a", "b"))
    turn = store.add_turn("u", "s", "q", "a")
    store.supersede("u", a, by=b, reason="newer")
    before = store.events("u")
    for f, error, words in [(lambda: store.move("u", [b, a], "long", ""), ValueError, "superseded before"), (lambda: store.move("u", [b, 99], "long", ""), NotFound, "no memory 99"),
                            (lambda: store.move("v", [b], "long", ""), NotFound, f"no memory {b}"), (lambda: store.move("u", [b], "long", "", event="added"), ValueError, "the store's own"),
                            (lambda: store.move("u", [b], " ", ""), ValueError, "kind is empty"), (lambda: store.log("u", [{"kind": "dropped"}, {"kind": "dropped", "memory": 99}]), NotFound, "no memory 99"),
                            (lambda: store.log("u", [{"kind": "superseded"}]), ValueError, "the store's own"), (lambda: store.log("v", [{"kind": "dropped", "turn": turn}]), NotFound, "no turn"),
                            (lambda: store.log("u", [{"kind": "x", "words": "secret"}]), TypeError, "words"), (lambda: store.log("u", [{"kind": "x", "data": {"n": float("nan")}}]), ValueError, "JSON")]:
        with pytest.raises(error, match=words): f()
    assert store.events("u") == before and store.get("u", b).kind == "note" and store.events("v") == []


def test_logged_events_go_with_what_they_are_about(store):
    turn = store.add_turn("u", "s", "q", "a")
    a, b = store.add("u", "a", turns=[turn]).id, store.add("u", "b").id
    store.log("u", [{"kind": "dropped", "turn": turn, "data": {"sentence": 1}}, {"kind": "seen", "memory": a}, {"kind": "against", "memory": b, "other": a}, {"kind": "kept", "memory": b}])
    store.log("u", [])
    store.forget("u", [a])
    assert [e.kind for e in store.events("u") if e.kind in ("dropped", "seen", "against", "kept")] == ["kept"]


def test_one_turn_and_only_to_its_user(store):
    turn = store.add_turn("u", "s", "", "I begin.")
    assert store.turn("u", turn) == store.turns("u")[0] and store.turn("u", turn).question == ""
    for user, id in (("v", turn), ("u", new_id("t"))):
        with pytest.raises(NotFound, match="no turn"): store.turn(user, id)
    with pytest.raises(ValueError, match="named by a random identifier"): store.turn("u", "my turn")
    with pytest.raises(ValueError, match="question is empty"): store.add_turn("u", "s", "", "")


def test_a_transaction_reads_the_kept_slice_until_it_writes(store):
    store.add("u", "a", [1, 0])
    store.search("u", [1, 0])
    with store.transaction("u"):
        assert len(store.search("u", [1, 0])) == 1
        store.add("u", "b", [1, 0])
        assert len(store.search("u", [1, 0])) == 2
    with pytest.raises(RuntimeError):
        with store.transaction("u"):
            store.add("u", "c", [1, 0]); assert len(store.search("u", [1, 0])) == 3
            raise RuntimeError
    assert len(store.search("u", [1, 0])) == 2
    store.add("u", "d", [1, 0])
    assert [h.item.text for h in store.search("u", [1, 0])] == ["a", "b", "d"]


ops = st.lists(st.tuples(st.sampled_from(["add", "add", "add", "move", "supersede", "count", "forget", "log", "look", "fail"]), st.integers(0, 30), st.integers(0, 30)), max_size=25)

@given(ops)
@settings(max_examples=40, deadline=None)
def test_what_is_caught_up_equals_what_is_read(tmp_path_factory, ops):
    "A store that catches up by the log, beside one that reads all of it each time."
    path = tmp_path_factory.mktemp("caught")/"m.db"
    with MemoryStore(path) as one, MemoryStore(path, cache_bytes=0) as fresh:
        for op, i, j in [*ops, ("look", 0, 0)]:
            living = [m.id for m in fresh.list("u")]
            pick = lambda n: living[n % len(living)]
            if op == "add": (one if i % 2 else fresh).add("u", f"{i}", [i, j], kind="ab"[j % 2], encoder="xy"[i % 2])
            elif op == "look":
                a, b = one._kept("u"), fresh._kept("u")
                assert a.rows == b.rows and a.slices.keys() == b.slices.keys()
                for encoder, s in b.slices.items():
                    t = a.slices[encoder]
                    assert (t.ids.tolist(), t.kinds.tolist(), t.vectors.tolist()) == (s.ids.tolist(), s.kinds.tolist(), s.vectors.tolist()) and t.longest >= np.linalg.norm(s.vectors, axis=1).max() - 1e-4
            elif op == "log": one.log("u", [{"kind": "seen"}]*(700 if i == 0 else 1))
            elif not living: continue
            elif op == "move": fresh.move("u", {pick(i), pick(j)}, "a much longer kind" if i % 2 else "c", "")
            elif op == "supersede" and pick(i) != pick(j): one.supersede("u", pick(i), by=pick(j), reason="")
            elif op == "count": fresh.count("u", pick(i), recalls=1)
            elif op == "forget": (one if i % 2 else fresh).forget("u", [pick(i)])
            elif op == "fail":
                with pytest.raises(RuntimeError):
                    with one.transaction("u"):
                        one.add("u", "never", [1, 1], encoder="x"); one.search("u", [1, 1], encoder="x")
                        raise RuntimeError


# --- written anew

def test_what_is_rewritten_is_so_for_every_reader_and_keeps_its_place(store):
    v, t = np.eye(3, dtype="<f4"), store.add_turn("u", "s", "one", "two")
    a, b = store.add("u", "old words", v[0], meta={"by": "x"}), store.add("u", "other", v[1])
    store.search("u", v[0])                                             # cached
    store.rewrite("u", [replace(a, text="new words", meta={"by": "y"}, recalls=2, correct=1, turns=(t,))], "why", {a.id: v[2]})
    assert [h.item.text for h in store.search("u", v[2], k=1)] == ["new words"] and store.search("u", v[0], k=1, at_least=.5) == []
    now = store.get("u", a.id)
    assert (now.meta, now.recalls, now.correct, now.turns, now.at, now.kind) == ({"by": "y"}, 2, 1, (t,), a.at, a.kind) and store.list("u")[0] == now
    assert [(e.memory, e.reason) for e in store.events("u", of=[a.id], kinds=["rewritten"])] == [(a.id, "why")] and store.get("u", b.id) == b
    store.supersede("u", a.id, b.id, "better")
    store.rewrite("u", [replace(now, text="newest words")], "also what is out of date")
    assert store.get("u", a.id).text == "newest words" and store.superseded("u") == {a.id: b.id}


def test_rewriting_is_all_or_nothing_and_only_ones_own(store):
    a, b = store.add("u", "one", np.ones(2, "<f4")), store.add("w", "two")
    for wrong, error in (([replace(a, text="x"), replace(a, id=99)], NotFound), ([replace(a, text="x"), b], ValueError), ([replace(a, text="x", turns=(new_id("t"),))], NotFound)):
        with pytest.raises(error): store.rewrite("u", wrong, "no")
    with pytest.raises(ValueError, match="same encoder"): store.rewrite("u", [replace(a, text="x")], "no", {a.id: np.ones(3, "<f4")})
    with pytest.raises(NotFound): store.rewrite("w", [replace(a, user="w")], "no")
    assert store.get("u", a.id) == a and not store.events("u", kinds=["rewritten"])


@pytest.mark.parametrize("name", ["", "sqlalchemy.engine"])
def test_no_log_has_the_words(store, caplog, name):
    import logging
    with caplog.at_level(logging.DEBUG, name):
        store.add("ann", "Zebrafink sings", meta={"of": "Zebrafink"}); store.add_turn("ann", "s", "Zebrafink?", "Yes.")
        assert store.list("ann") and store.turns("ann")
    assert "ebrafink" not in caplog.text


def test_list_takes_only_what_cites_some_turns(store):
    one, two = (store.add_turn("ann", "s", text, "ok") for text in ("I have a cat.", "It is black."))
    both = store.add("ann", "has a black cat", turns=[one, two])
    store.add("ann", "likes tea")
    store.supersede("ann", both.id, store.add("ann", "has a cat", turns=[one]).id, "shorter")
    assert [m.text for m in store.list("ann", turns=[one])] == ["has a cat"]
    assert [m.text for m in store.list("ann", superseded=True, turns={two})] == ["has a black cat"]
    assert store.list("ann", turns=[]) == [] and store.list("bob", turns=[one]) == []


def test_list_takes_only_what_is_marked(store):
    kept = store.add("ann", "Short answers, please.", meta={"flags": ["wish"]})
    store.add("ann", "My wish is a cat.", meta={"flags": []})
    store.add("bob", "Long answers, please.", meta={"flags": ["wish"]})
    assert store.list("ann", marked='"wish"') == [kept] and store.list("ann", marked='100%"') == []
