"Recall: an index that grows must find what one made at once finds, and nobody else's memories."
import threading
from dataclasses import replace
from math import log

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from memkit.search.memories import MemorySearch, RecallSettings, WordIndex, best_rows, said_before, stems, weighted_words
from memkit.store.store import MemoryStore

WORDS = st.sampled_from("knee back pain dog walk sleep night tablet".split())
BAGS = st.dictionaries(WORDS, st.sampled_from([.25, .5, 1., 2.]), max_size=5)


class Letters:
    "Vectors of letter counts: an embedder that needs no model."
    name, dim, unit = "letters", 26, True

    def embed(self, texts, kind="document"):
        v = np.array([[t.lower().count(chr(97 + i)) + 1e-3 for i in range(26)] for t in texts], np.float32)
        return v/np.linalg.norm(v, axis=1, keepdims=True)


def brute(bags: dict[int, dict[str, float]], words, k1=.9, b=.4):
    "BM25 over weighted bags, written down once more from the formula."
    n, lengths = len(bags), {i: sum(bag.values()) for i, bag in bags.items()}
    mean = sum(lengths.values())/n if n and sum(lengths.values()) else 1.
    out = dict.fromkeys(bags, 0.)
    for w in set(words):
        held = [i for i in bags if w in bags[i]]
        for i in held:
            f = bags[i][w]
            out[i] += log(1 + (n - len(held) + .5)/(len(held) + .5))*f*(k1 + 1)/(f + k1*(1 - b + b*lengths[i]/mean))
    return out


@settings(max_examples=60, deadline=None)
@given(st.lists(BAGS, min_size=1, max_size=12), st.lists(WORDS, max_size=4))
def test_an_index_that_grows_equals_the_formula(bags, asked):
    index = WordIndex()
    for i, bag in enumerate(bags):
        index.add(bag)
        assert np.allclose(index.scores(asked), list(brute(dict(enumerate(bags[:i + 1])), asked).values()))
    assert len(index) == len(bags)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 5), st.floats(-1, 1)), max_size=20), st.floats(0, 1), st.integers(1, 25))
def test_best_rows_is_a_full_sort(pairs, share, k):
    words, meaning = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
    got = best_rows(words, meaning, share, k)
    everything = best_rows(words, meaning, share, max(1, len(pairs)))
    assert got == everything[:k] and len(got) == min(k, len(pairs))
    assert [s for _, s in got] == sorted((s for _, s in got), reverse=True)


def test_empty_and_unknown():
    assert stems("") == [] and weighted_words([]) == {}
    assert len(WordIndex().scores(["knee"])) == 0
    assert best_rows(np.zeros(0), np.zeros(0), .5, 3) == []
    assert weighted_words([("knee knee", 1.), ("knee", .5), ("dog", 0.)]) == {"knee": 2.5}


def filled(store: MemoryStore, user="ann"):
    turns = [store.add_turn(user, s, q, a) for s, q, a in [("s-1", "my knee hurts", "take naproxen"), ("s-1", "and my back", "rest it"), ("s-2", "hello again", "welcome")]]
    for text, at, speaker in [("the user's knee hurts", 0, "user"), ("the assistant prescribed naproxen", 0, "assistant"), ("the user's back hurts", 1, "user")]:
        store.add(user, text, Letters().embed([text])[0], kind="short-term", encoder="letters", turns=[turns[at]], meta={"speaker": speaker})
    return turns


def test_said_before_stays_in_its_session():
    with MemoryStore(":memory:") as store:
        filled(store)
        turns = store.turns("ann")
        assert said_before(turns, 1, "assistant", 2) == ["rest it", "and my back", "take naproxen"]
        assert said_before(turns, 1, "user", 2) == ["and my back", "take naproxen", "my knee hurts"]
        assert said_before(turns, 2, "user", 2) == ["hello again"]


def test_context_finds_an_answer_by_the_words_of_its_question():
    with MemoryStore(":memory:") as store:
        filled(store)
        with_context, without = (MemorySearch(store, Letters(), s).search("ann", "knee?", k=3) for s in (RecallSettings(), RecallSettings(message=0, before=())))
        words = lambda hits: {h.item.text: h.parts["words"] for h in hits}
        assert words(with_context)["the assistant prescribed naproxen"] > 0 == words(without)["the assistant prescribed naproxen"]


def test_follows_writes_moves_and_forgetting():
    with MemoryStore(":memory:") as store:
        filled(store)
        search = MemorySearch(store, Letters())
        found = lambda q, **how: [h.item.text for h in search.search("ann", q, k=9, **how)]
        assert len(found("knee")) == 3
        new = store.add("ann", "the user's dog is ill", Letters().embed(["the user's dog is ill"])[0], kind="long-term", encoder="letters")
        assert found("dog")[0] == "the user's dog is ill"
        assert found("dog", kinds=("short-term",)) and "the user's dog is ill" not in found("dog", kinds=("short-term",))
        store.supersede("ann", 1, by=new.id, reason="test")
        assert "the user's knee hurts" not in found("knee") and len(found("knee")) == 3
        store.move("ann", [new.id], "short-term", "test")
        assert "the user's dog is ill" in found("dog", kinds=("short-term",))
        store.forget("ann")
        assert found("knee") == []


def test_a_forgotten_turn_leaves_the_context_of_others():
    with MemoryStore(":memory:") as store:
        filled(store)
        search = MemorySearch(store, Letters())
        before = {h.item.id: h.parts["words"] for h in search.search("ann", "naproxen", k=9)}
        assert before[3] > 0                       # the message before it said so
        store.forget("ann", [1, 2])                # with their turn
        after = {h.item.id: h.parts["words"] for h in search.search("ann", "naproxen", k=9)}
        assert after == {3: 0.}


def test_somebody_forgotten_who_comes_back():
    with MemoryStore(":memory:") as store:
        filled(store)
        search = MemorySearch(store, Letters())
        search.search("ann", "knee")
        store.forget("ann")
        filled(store)                              # as many writes as before: the same version
        assert {h.item.id for h in search.search("ann", "knee", k=9)} == {m.id for m in store.list("ann")}


def test_the_last_turn_forgotten_with_an_old_wording():
    with MemoryStore(":memory:") as store:
        filled(store)
        search, last = MemorySearch(store, Letters()), store.turns("ann")[-1].id
        old = store.add("ann", "an old wording", Letters().embed(["an old wording"])[0], encoder="letters", turns=[last])
        new = store.add("ann", "a new wording", Letters().embed(["a new wording"])[0], encoder="letters")
        store.supersede("ann", old.id, by=new.id, reason="test")
        search.search("ann", "wording")
        store.forget("ann", [old.id])
        assert "a new wording" in [h.item.text for h in search.search("ann", "wording")]


def test_users_are_apart_and_few_are_kept():
    with MemoryStore(":memory:") as store:
        for user in ("ann", "bob", "cy"): filled(store, user)
        search = MemorySearch(store, Letters(), users=2)
        for user in ("ann", "bob", "cy", "ann"): assert {h.item.user for h in search.search(user, "knee", k=9)} == {user}
        assert len(search._known) == 2
        assert search.search("dee", "knee") == []


def test_memories_without_vector_or_turn():
    with MemoryStore(":memory:") as store:
        filled(store)
        store.add("ann", "no vector here")
        store.add("ann", "no turn, knee", Letters().embed(["no turn, knee"])[0], encoder="letters")
        texts = [h.item.text for h in MemorySearch(store, Letters()).search("ann", "knee", k=9)]
        assert "no turn, knee" in texts and "no vector here" not in texts


@pytest.mark.parametrize("query, k", [("", 3), (" \n", 3), ("knee", 0)])
def test_bad_queries(query, k):
    with MemoryStore(":memory:") as store:
        filled(store)
        with pytest.raises(ValueError): MemorySearch(store, Letters()).search("ann", query, k)


@pytest.mark.parametrize("query", ["膝盖疼吗？", "😀😀", "knee "*3000, "¿rodilla?"])
def test_any_text_is_a_query(query):
    with MemoryStore(":memory:") as store:
        filled(store)
        assert len(MemorySearch(store, Letters()).search("ann", query, k=9)) == 3


@pytest.mark.parametrize("wrong", [{"words": -.1}, {"words": 1.1}, {"message": -1}, {"before": (.5, -.1)}])
def test_bad_settings(wrong):
    with pytest.raises(ValueError): RecallSettings(**wrong)


def test_threads_share_a_search(tmp_path):
    with MemoryStore(tmp_path/"m.db") as store:
        filled(store)
        search, wrong = MemorySearch(store, Letters()), []
        def ask(user):
            for _ in range(30):
                if {h.item.user for h in search.search("ann", "knee", k=5)} != {"ann"}: wrong.append(user)
        def write():
            for i in range(20): store.add("ann", f"fact {i}", Letters().embed([f"fact {i}"])[0], encoder="letters")
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)] + [threading.Thread(target=write)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert not wrong and len(search.search("ann", "knee", k=99)) == 23


def test_a_rewritten_memory_is_found_by_its_new_words_only():
    store = MemoryStore(":memory:")
    embedder = Letters()
    m = store.add("u", "knee pain", embedder.embed(["knee pain"])[0], encoder=embedder.name)
    search = MemorySearch(store, embedder)
    assert search.search("u", "knee")[0].parts["words"] > 0
    store.rewrite("u", [replace(m, text="back pain")], "a mistake", {m.id: embedder.embed(["back pain"])[0]})
    assert search.search("u", "knee")[0].parts["words"] == 0 < search.search("u", "back")[0].parts["words"]


def test_forgotten_words_leave_the_search():
    with MemoryStore(":memory:") as store:
        filled(store)
        search = MemorySearch(store, Letters())
        search.search("ann", "knee?", k=3)
        assert "ann" in search._known
        search.forget("ann")
        assert "ann" not in search._known
