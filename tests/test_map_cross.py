"MAP's cross-domain experiment: whose films and which book, prompts read as a tree, nothing learned from those who are scored."
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.records import Message, utc_now
from memkit.experiments.map.single import folds
from memkit.experiments.map.cross import (
    CrossSize, ask_cross, control_predictions, cross_cases, cross_memories, cross_messages, cross_prompt, cross_rows, run_cross)
from memkit.experiments.map.run import figure_7, smoothed
from memkit.experiments.result import provenance, result
from memkit.maprec.items import Item, Rated
from memkit.maprec.ratings import Ratings, simulated_ratings
from memkit.maprec.prediction import asked_probabilities, text_cosine, genre_overlap, prefix_tree, prefix_tree_probabilities


class Counting:
    "Scores a star by how often it stands in the prompt: reads what it is shown, and nothing else."
    name = "counts stars"
    def render(self, messages): return "\n".join(m.text for m in messages)
    def count_tokens(self, text): return len(text.split())
    def score_labels(self, prompts, labels, prefix=""):
        counts = np.array([[sum(w == l.strip() for w in (prefix + p).split()) for l in labels] for p in prompts], float) + 1
        return np.log(counts/counts.sum(1, keepdims=True))


@pytest.fixture(scope="module")
def ratings(): return simulated_ratings(60)


def test_eighteen_earliest_films_then_a_later_book(ratings):
    cases = cross_cases(ratings, range(60), (1, 18))
    domain = np.array([i.domain for i in ratings.items])
    for u in set(cases.user.tolist()):
        mine = cases.of([u])
        rows = ratings.of(u)
        films = ratings.item[rows][domain[ratings.item[rows]] == "films"][:18]
        whole = mine.known[(mine.h == 18) & (mine.order == 0)][0]
        at = dict(zip(ratings.item[rows].tolist(), ratings.at[rows].tolist()))
        assert [at[i] for i in whole] == [at[i] for i in films] and set(mine.known[(mine.h == 18) & (mine.order == 1)][0]) == set(whole)   # ties may stand otherwise
        assert len(set(mine.target)) == 1 and domain[mine.target[0]] == "books"
        books = rows[domain[ratings.item[rows]] == "books"]
        if (ratings.at[books] > at[whole[-1]]).any(): assert at[mine.target[0]] >= at[whole[-1]]


def test_known_ratings_are_those_of_the_known_films(ratings):
    cases = cross_cases(ratings, range(20))
    given_to = {(u, i): r for u, i, r in zip(ratings.user.tolist(), ratings.item.tolist(), ratings.rating.tolist())}
    for u, h, known, rated, target, truth in zip(cases.user, cases.h, cases.known, cases.known_rating, cases.target, cases.truth):
        assert (known >= 0).sum() == h and (rated > 0).sum() == h and truth == given_to[u, target]
        assert all(r == given_to[u, i] for i, r in zip(known[:h], rated[:h]))


def test_a_seed_moves_books_and_shuffling_and_nothing_else(ratings):
    a, b, c = (cross_cases(ratings, range(30), seed=s) for s in (0, 0, 1))
    assert (a.known == b.known).all() and (a.target == b.target).all()
    assert (a.known[a.order == 0] == c.known[c.order == 0]).all() and (a.known[a.order == 1] != c.known[c.order == 1]).any() and (a.target != c.target).any()


def test_users_with_too_little_are_left_out(ratings):
    keep = ~((ratings.user == 0) & np.array([ratings.items.items[i].domain == "books" for i in ratings.item]))
    few = Ratings(ratings.users, ratings.items, *(getattr(ratings, c)[keep] for c in ("user", "item", "rating", "at")))
    assert 0 not in cross_cases(few, range(5)).user
    with pytest.raises(ValueError, match="18 films"): cross_cases(few, [0])
    with pytest.raises(ValueError, match="1..18"): cross_cases(ratings, [0], lengths=(19,))
    with pytest.raises(ValueError, match="1..18"): cross_cases(ratings, [0], lengths=())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6).map(tuple), min_size=1, max_size=8))
def test_every_branch_of_a_tree_is_its_prompt(rows):
    token, depth, sees, ends = prefix_tree(rows)
    for row, end in zip(rows, ends):
        seen = np.flatnonzero(sees[end])
        order = seen[np.argsort(depth[seen])]
        assert tuple(token[order]) == row and depth[order].tolist() == list(range(len(row)))
    assert len(token) == len({r[:n] for r in rows for n in range(1, len(r) + 1)})


def test_a_tree_says_what_prompts_alone_say():
    "A small network with random weights, in 32 bits, with the embedded model's tokenizer."
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from memkit.models.local import LocalLM, embedded_folder
    try: tokenizer = AutoTokenizer.from_pretrained(embedded_folder())
    except ModuleNotFoundError: pytest.skip("the embedded model's tokenizer isn't installed")
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=512)).eval()
    lm, labels = LocalLM.wrap(model, tokenizer, "small"), [f" {n}" for n in range(1, 6)]
    prompts = ["Films:\nAlien: 5\nBooks:\nDune:", "Films:\nAlien: 5\nHeat: 2\nBooks:\nDune:", "Books:\nDune:", "Films:\nAlien: 5\nBooks:\nDune:"]
    alone = lm.score_labels(prompts, labels)
    alone = np.exp(alone)/np.exp(alone).sum(1, keepdims=True)
    for room in (1, 12, 640): assert np.allclose(prefix_tree_probabilities(lm, prompts, labels, room), alone, atol=1e-5)
    assert prefix_tree_probabilities(lm, [], labels).shape == (0, 5)
    with pytest.raises(ValueError, match="one token each"): prefix_tree_probabilities(lm, prompts, [" one", " two", " three", " four", " thirty-five"])


def test_prompts_hold_films_and_book_and_no_markup():
    film = Item(id="f", title="Alien", year=1979, genres=("Horror",))
    book = Item(id="b", title="Dune", year=1965, genres=("Sci-Fi",), domain="books")
    assert cross_prompt([Rated(film, 4.5)], book).endswith("Films:\nAlien [Horror]: 4.5\nBooks:\nDune [Sci-Fi]:")
    assert "Films:" not in cross_prompt([], book)
    assert [m.role for m in cross_messages([Rated(film, 4)]*3, book)] == ["user"]*4


def test_ways_to_choose(ratings):
    films = [Rated(Item(id=str(n), title=f"Film {n}", genres=("Horror",) if n % 2 else ("War",)), float(1 + n % 5)) for n in range(8)]
    book = Item(id="b", title="A book", genres=("Horror",), domain="books")
    few, every = cross_memories(4, genre_overlap), cross_memories(8, genre_overlap)
    assert {r.item.id for r in few["MAP"](films, book, 0)} == {"1", "3", "5", "7"} and len(few["random memory"](films, book, 5)) == 4
    dealt = every["shuffled stars"](films, book, 1)
    assert sorted(r.rating for r in dealt) == sorted(r.rating for r in films) and [r.rating for r in dealt] != [r.rating for r in films]


def test_a_model_that_only_writes():
    class Writer:
        name = "writes"
        def generate(self, conversations, max_tokens=0): return [SimpleNamespace(text=t) for t in ("I say 4.", "none")][:len(conversations)]
    found = asked_probabilities(Writer(), [[Message(role="user", text="?")]]*2)
    assert found.tolist() == [[0, 0, 0, 1, 0], [.2]*5] and asked_probabilities(Writer(), []).shape == (0, 5)


def test_nothing_is_learned_from_those_who_are_scored(ratings, embedder):
    "Other truths for one fold's test users leave their predictions as they are."
    parts = folds(ratings, 3, tune=.5)
    cases = cross_cases(ratings, range(60), (1, 9))
    test = np.isin(cases.user, parts[0].test)
    turned = Ratings(ratings.users, ratings.items, ratings.user, ratings.item, np.where(np.isin(ratings.user, parts[0].test) & np.array([ratings.items.items[i].domain == "books" for i in ratings.item]),
                     6 - ratings.rating, ratings.rating), ratings.at, ratings.name)
    moved = cross_cases(turned, range(60), (1, 9))
    assert (moved.truth[test] != cases.truth[test]).any()
    for r, c, out in ((ratings, cases, (a := {})), (turned, moved, (b := {}))):
        out |= ask_cross(r, c, parts, Counting(), text_cosine(embedder, "genres"), (2, 4))[0] | control_predictions(r, c, parts)
    for name in a: assert np.array_equal(a[name][test], b[name][test], equal_nan=True), name
    assert any(not np.array_equal(a[name][~test], b[name][~test], equal_nan=True) for name in a)


def test_rows_of_a_run(ratings):
    rows, parts = run_cross(model=Counting(), size=CrossSize(users=60, scored=30, lengths=(1, 5), ks=(2, 3)), progress=False)
    found = result("map cross", provenance(0, started=utc_now(), **parts), rows)
    by = {(r["table"], r["row"], r["metric"]): r for r in found["rows"]}
    table = "Table 3 (simulated raters)"
    assert by[table, "MAP", "MAE"]["n"] == 30 and by[table, "user median", "MAE"]["control"] and not by[table, "MAP", "MAE"]["control"]
    assert all(r["paper"] is None for r in found["rows"] if r["table"] != "Table 4") and by["Table 4", "MAP", "dollars / 10 histories"]["paper"] == .00156
    assert by["Table 4", "vanilla", "tokens of a prompt"]["ours"] > by["Table 4", "MAP, plain lines", "tokens of a prompt"]["ours"]
    picture = figure_7({**found, "experiment": "map"})
    assert len(picture.figure.axes[0].get_lines()) > 6 and "simulated raters" in picture.alt
    with pytest.raises(ValueError, match="no Figure 7"): figure_7({"experiment": "map", "rows": []})


def test_the_papers_errors_stand_beside_amazons_only(ratings):
    cases = cross_cases(ratings, range(10), (5, 17))
    predicted = dict.fromkeys(("MAP", "vanilla", "user median"), np.full(len(cases), 4.))
    rows = {(r["row"], r["metric"]): r for r in cross_rows(cases, predicted, ["user median"], simulated=False) if r["table"] == "Table 3"}
    assert (rows["MAP", "MAE, 17 known"]["paper"], rows["vanilla", "MAE, 5 known"]["paper"], rows["user median", "MAE, 5 known"]["paper"]) == (.7037, .8218, None)
    assert not [r for r in cross_rows(cases, predicted, [], simulated=True) if r["paper"] is not None]


def test_smoothing_keeps_length_and_level():
    assert smoothed([2, 2, 2]).tolist() == [2, 2, 2] and smoothed([0, 4, 0]).tolist() == [1, 2, 1] and len(smoothed([3])) == 1
