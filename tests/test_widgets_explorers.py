"The prompt's budget, rank fusion and memory relevance under one's hands: what is shown is what the mechanism does."
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from memkit.search.fusion import rrf
from memkit.turn.prompt import BudgetError
from memkit.records import Document, Hit, Memory, Message, Section, Turn
from memkit.search.documents import PAPER, RetrieveSettings, index_documents
from memkit.mark.scoring import PART_NAMES, PRESETS, Components, Weights, preset
from memkit.widgets.explorers import prompt as ep
from memkit.widgets.draw.pictures import cuts

AT = datetime(2026, 3, 1, tzinfo=timezone.utc)
NASTY = "</text><script>alert(1)</script>\x00\x1b\u202e $x$ & \U0001f600"


def parsed(scene):
    tree = ElementTree.fromstring(scene.svg())
    assert {e.tag.split("}")[1] for e in tree.iter()} <= {"svg", "title", "desc", "style", "rect", "text", "path", "g"}
    return tree


# --- the budget

def memory(id, text, kind="note", **counts): return Memory(id=id, user="ann", text=text, kind=kind, at=AT, **counts)

def a_turn(base, costs, budget):
    "A turn whose sections were packed by hand: whatever fits, in this order."
    sections, used = [Section(name="instructions and question", tokens=base)], base
    for i, tokens in enumerate(costs):
        item = Document(id=f"d{i}", text=f"Text {i}.", title=f"Title {i}") if i % 2 else memory(i + 1, f"Memory {i}.")
        fits = used + tokens <= budget
        sections.append(Section(name="document" if i % 2 else "memory", tokens=tokens, text=f"Text {i}.", kept=fits, hit=Hit(item=item, score=1., source="memory")))
        used += tokens if fits else 0
    return Turn(id="t", user="ann", session="s", at=AT, text="May I?", messages=(Message(role="system", text="Be brief."), Message(role="user", text="May I?")), sections=tuple(sections), budget=budget, prompt_tokens=used)

packed = st.builds(lambda base, costs, more: a_turn(base, costs, base + more), st.integers(1, 90), st.lists(st.integers(1, 60), max_size=9), st.integers(0, 200))

@given(turn=packed, budget=st.integers(1, 400))
def test_packing_anew_is_the_rule_and_nothing_else(turn, budget):
    base = turn.sections[0].tokens
    same = ep.repack(turn, turn.budget)
    assert [s.kept for s in same.sections] == [s.kept for s in turn.sections] and same.prompt_tokens == turn.prompt_tokens
    if budget < base:
        with pytest.raises(BudgetError): ep.repack(turn, budget)
        return
    again, used, expected = ep.repack(turn, budget), base, []
    for s in turn.sections[1:]:
        expected.append(used + s.tokens <= budget)
        used += s.tokens if expected[-1] else 0
    assert [s.kept for s in again.sections[1:]] == expected and again.prompt_tokens == used <= budget


@given(turn=packed, chosen=st.integers(0, 20))
def test_lanes_add_up_and_say_by_how_much_a_piece_missed(turn, chosen):
    rows = ep.lanes(turn).rows
    assert sum(int(r.note) for r in rows if not r.gone) == turn.prompt_tokens
    assert [r.how for r in rows if r.gone] == [f"{c.missed} too many" for c in cuts(turn)] and all(c.missed > 0 for c in cuts(turn))
    scene = ep.draw_lanes(turn, chosen)
    assert f"{turn.budget - turn.prompt_tokens} free." in scene.words and ("no room" in scene.words) == any(r.gone for r in rows)
    parsed(scene)


def test_the_budget_panel_moves_says_what_is_too_small_and_keeps_its_place():
    pytest.importorskip("ipywidgets")
    turn = a_turn(60, [20, 30, 40], 100)
    panel = ep.explore_budget(turn, key="test-budget")
    assert "no room" in panel.scene.words
    as_it_was, everything = panel.widget.children[0].children[1:]
    everything.click()
    assert panel.values()["budget"] == 150 and "everything has room" in panel.scene.words
    panel.set({"budget": 40, "section": 0})
    assert "need 60 tokens and the budget is 40" in panel.error and "everything has room" in panel.scene.words
    as_it_was.click()
    assert not panel.error and panel.values() == {"budget": 100, "section": 0}
    panel.controls["budget"].value = 101
    assert ep.explore_budget(turn, key="test-budget").values()["budget"] == 101
    with pytest.raises(ValueError, match="no prompt"): ep.explore_budget(replace(turn, sections=()))


# --- fusion

class Words:
    "A vector for each of a few words."
    name, dim, unit = "words", 8, True
    WORDS = ("ear", "cold", "antibiotic", "pain", "burn", "cough", "water", "night")
    def embed(self, texts, kind="document"):
        rows = np.array([[(w in t.lower()) + .01*(i + 1) for i, w in enumerate(self.WORDS)] for t in texts], dtype=np.float32)
        return rows/np.linalg.norm(rows, axis=1, keepdims=True)

DOCS = [Document(id=f"d{i}", title=f"Note {i} {NASTY.replace(chr(0), '')}", text=" ".join(Words.WORDS[j] for j in range(8) if (i*37 + 11) >> j & 1) or "water") for i in range(1, 30)]

@pytest.fixture(scope="module", params=["ours", "paper"])
def retriever(request): return index_documents(DOCS, Words(), PAPER if request.param == "paper" else RetrieveSettings(several=False))

ASK = "My ear hurts at night since the cold, do I need an antibiotic?"

def test_with_its_own_weights_the_chart_shows_what_the_retriever_finds(retriever):
    own, found = retriever.settings, retriever.find(ASK, retriever.settings.pool)
    how = ep.Fusion() if own.fusion == "rrf" else ep.Fusion(way=ep.BY_SCORE, words=own.bm25_weight, meaning=own.passage_weight + own.whole_weight)
    mine = [DOCS[i].id for i in ep.fuse_by(found, own, how)["fused"][:5]]
    assert mine == [h.item.id for h in retriever.search(ASK, 5)]


@lru_cache(1)
def small(): return index_documents(DOCS[:12], Words(), RetrieveSettings(several=False))

@given(k=st.integers(0, 100), words=st.floats(0, 1), meaning=st.floats(0, 1), way=st.sampled_from(ep.WAYS))
@settings(deadline=None, max_examples=40)
def test_any_setting_is_drawn_and_ranks_are_rrfs(k, words, meaning, way):
    r = small()
    if not words + meaning > 0:
        with pytest.raises(ValueError, match="nobody has a vote"): ep.Fusion(words=words, meaning=meaning)
        return
    found = r.find(ASK, 50)
    how = ep.Fusion(way=way, k=k, words=words, meaning=meaning)
    left, fused, right = ep.fuse_by(found, r.settings, how).values()
    if way == ep.BY_RANK: assert [i for i, _ in rrf([left, right], k, (words, meaning))] == list(fused)
    assert set(fused) == set(left) | set(right)
    scene = ep.draw_fusion(r, found, ASK, {"d1": 2, "d3": 1}, how)
    parsed(scene)
    assert scene.svg().count("✓</text>") == sum(DOCS[i].id in ("d1", "d3") for order in (left, fused, right) for i in order[:10]), "a sign, not only a colour"


def test_a_weight_of_nothing_leaves_the_other_sides_order():
    r = index_documents(DOCS, Words(), RetrieveSettings(several=False))
    found = r.find(ASK, 50)
    for way in ep.WAYS:
        f = ep.fuse_by(found, r.settings, ep.Fusion(way=way, words=0, meaning=1))
        assert [i for i in f["fused"] if i in f["by meaning"]][:5] == f["by meaning"][:5]


def test_what_a_ranking_is_worth_by_hand():
    perfect, late = ep.worth([["a", "b", "c"], ["c", "x", "a"]], ["a"])
    assert perfect["nDCG@10"] == 1 and late["nDCG@10"] == pytest.approx(1/np.log2(4)) and late["R@5"] == 1
    assert ep.worth([["a"]], ()) == ep.worth([["a"]], {"a": 0, "b": 0}) == [{}], "labels of irrelevant documents alone measure nothing"


def test_the_fusion_panel_takes_another_question_and_refuses_none():
    pytest.importorskip("ipywidgets")
    r = index_documents(DOCS, Words(), RetrieveSettings(several=False))
    panel = ep.explore_fusion(r, ASK, ["d3"])
    assert "nDCG@10" in panel.scene.words and "k 60" in panel.scene.words
    assert "nDCG@10" in panel._below.value and "✓" in panel.scene.svg()
    panel.set({"query": "burn"})
    assert panel.scene.words.startswith("“burn”") and panel.scene.caption == ep.UNLABELLED and "nothing to measure against" in panel._below.value
    for sign in ("nDCG", "R@5", "0.00", "✓"): assert sign not in panel.scene.svg(), "the ranking only"
    assert "1 Note" in panel.scene.words
    panel.set({"query": f" {ASK.upper()} "})
    assert "nDCG@10" in panel.scene.words and "✓" in panel.scene.svg(), "the labelled question again"
    panel.set({"query": "burn"})
    panel.set({"query": " "})
    assert "empty" in panel.error and panel.scene.words.startswith("“burn”")
    panel.set({"query": "burn", "way": ep.BY_SCORE, "words": 0., "meaning": 0.})
    assert "nobody has a vote" in panel.error
    for none in ((), {"d3": 0}):
        svg = ep.explore_fusion(r, ASK, none).scene.svg()
        assert "no relevant documents are labelled" in svg and "nDCG" not in svg
    with pytest.raises(ValueError, match="not in this corpus"): ep.explore_fusion(r, ASK, ["x"])
    with pytest.raises(TypeError, match="both sides"): ep.explore_fusion(index_documents(DOCS[:2], settings=RetrieveSettings(fusion="bm25")), ASK)


# --- relevance

part = st.builds(Components, st.integers(0, 90), st.floats(0, 900), st.floats(-1, 1), st.sampled_from([-1., -.5, 0., 1/3, 1.]))
crowd = st.lists(part, min_size=1, max_size=12).map(lambda cs: [ep.PromptCandidate(id=i, text=f"Memory {i} {NASTY}", kind="residual", components=c) for i, c in enumerate(cs, 1)])
weight = st.floats(0, 1)

@given(candidates=crowd, given_weights=st.tuples(weight, weight, weight, weight), literal=st.booleans())
def test_standings_are_sorted_by_what_their_parts_add_up_to(candidates, given_weights, literal):
    if not sum(given_weights) > 0:
        with pytest.raises(ValueError, match="all four weights are 0"): ep.shares_of(*given_weights)
        return
    w = ep.shares_of(*given_weights)
    assert sum(w.shares) == pytest.approx(1)
    ranked = ep.standings(candidates, w, literal)
    totals = [s.score.total for s in ranked]
    assert totals == sorted(totals, reverse=True) and sorted(s.candidate.id for s in ranked) == [c.id for c in candidates]
    assert sorted(s.near for s in ranked) == sorted(s.rank for s in ranked) == list(range(1, len(ranked) + 1))
    for s in ranked:
        c = s.candidate.components
        if not literal: assert s.score.total == pytest.approx(w.recall*c.recall_count/(1 + c.recall_count) + w.recency/(1 + c.age_days) + w.similarity*min(1, max(0, c.similarity)) + w.feedback*(c.feedback + 1)/2)
    scene = ep.draw_standings(ranked, w, literal)
    parsed(scene)
    assert scene.words.startswith(f"Weights {ep.name_of_weights(w)}")


def test_every_preset_is_known_by_its_name_and_nothing_else_is():
    for name, w in PRESETS.items(): assert ep.name_of_weights(w) == name and ep.name_of_weights(ep.shares_of(*(3*s for s in w.shares))) == name
    assert ep.name_of_weights(preset("test")) == "test" and ep.name_of_weights(Weights(.25, .25, .25, .25)) == "your own"


def hits(): return [Hit(item=memory(i, f"Memory {i}.", "residual", recalls=10*i, correct=i, incorrect=0), score=.5, source="residual", parts={"cosine": .9 - .2*i}) for i in (1, 2, 3)]

def test_candidates_from_hits_and_what_is_refused():
    found = ep.candidates_of(hits(), AT + timedelta(days=2))
    assert [(c.components.recall_count, c.components.age_days, round(c.components.similarity, 2), c.components.feedback) for c in found] == [(10, 2., .7, 1.), (20, 2., .5, 1.), (30, 2., .3, 1.)]
    with pytest.raises(ValueError, match="ages are counted"): ep.candidates_of(hits())
    with pytest.raises(ValueError, match="nothing was found"): ep.candidates_of([])
    with pytest.raises(TypeError, match="score of memories"): ep.candidates_of([Hit(item=DOCS[0], score=1., source="fused")], AT)


def test_the_menu_moves_the_sliders_and_follows_them():
    pytest.importorskip("ipywidgets")
    panel = ep.explore_mrs(ep.candidates_of(hits(), AT + timedelta(days=2)), "Balanced")
    menu = panel.widget.children[2].children[0]
    assert menu.value == "Balanced" and panel.scene.words.startswith("Weights Balanced")
    for name, w in PRESETS.items():
        menu.value = name
        assert tuple(panel.values()[n] for n in PART_NAMES) == tuple(round(s, 2) for s in w.shares) and panel.scene.words.startswith(f"Weights {name}")
    menu.value = "test"
    assert "“Memory 1.”" in panel.scene.words[:60]
    panel.set({"recall": 1., "similarity": .0})
    assert menu.value == "your own" and "“Memory 3.”" in panel.scene.words[:60]
    panel.set(dict.fromkeys(PART_NAMES, 0.))
    assert "all four weights are 0" in panel.error and menu.value == "your own"
    panel.set({"literal": True, "feedback": .5})
    assert not panel.error and "as printed" in panel.scene.words
