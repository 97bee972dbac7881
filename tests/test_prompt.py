"The prompt's budget: never exceeded, every token accounted for, whole sentences only, more room never less text."
import re

import pytest
from hypothesis import given, settings, strategies as st

from memkit.search.documents import split_sentences
from memkit.turn.prompt import BudgetError, Piece, fit, shorten
from memkit.records import Document, Hit, Message

quick = settings(max_examples=120, deadline=None)
count = lambda text: len(re.findall(r"\w+|[^\w\s]", text))
count_all = lambda messages: sum(1 + count(m.text) for m in messages)
words = st.lists(st.sampled_from("aspirin thins blood cough rest 20 mg twice e.g. Dr. daily".split()), min_size=1, max_size=12).map(" ".join)
spoken = st.builds(lambda text, end: text.capitalize() + end, words, st.sampled_from([".", "!", "?", ""]))
texts = st.lists(spoken, max_size=8).map(" ".join)


def assemble(pieces): return [Message(role="system", text="Answer briefly."), Message(role="user", text="\n".join([*(p.text for p in pieces), "Why?"]))]

BASE = count_all(assemble(()))
pieces = st.lists(st.builds(Piece, name=st.sampled_from(["document", "memory"]), text=words), max_size=8)


# --- shorten

@quick
@given(texts, st.integers(1, 60))
def test_shortened_is_within_the_limit_and_the_start_in_whole_sentences(text, limit):
    short, whole = shorten(text, limit, count), split_sentences(text)
    assert count(short) <= limit
    if short.endswith(" …"): assert count(whole[0]) > limit and text.split()[:len(short.split()) - 1] == short.split()[:-1], "words only where no sentence fits"
    else: assert short == text or short in [" ".join(whole[:n]) for n in range(len(whole) + 1)]


@quick
@given(texts, st.integers(1, 60))
def test_no_further_sentence_would_have_fitted(text, limit):
    short, whole = shorten(text, limit, count), split_sentences(text)
    if short == text or short.endswith(" …"): return
    n = next(n for n in range(len(whole) + 1) if " ".join(whole[:n]) == short)
    assert count(" ".join(whole[:n + 1])) > limit


@quick
@given(texts, st.integers(1, 59))
def test_a_higher_limit_never_shortens_more(text, limit): assert count(shorten(text, limit, count)) <= count(shorten(text, limit + 1, count))


@quick
@given(texts, st.integers(1, 60))
def test_shortening_twice_changes_nothing_more(text, limit):
    once = shorten(text, limit, count)
    assert shorten(once, limit, count) == once


def test_one_long_sentence_is_cut_at_a_word(): assert shorten("word " * 50 + "end.", 20, count) == "word "*19 + "…"


@pytest.mark.parametrize("limit", [0, -3])
def test_a_limit_below_one_is_refused(limit):
    with pytest.raises(ValueError, match=f"max_tokens must be 1 or more, got {limit}"): shorten("Some text.", limit, count)


# --- fit

@quick
@given(pieces, st.integers(BASE, BASE + 60))
def test_the_budget_is_kept_and_every_token_accounted_for(pieces, budget):
    fitted = fit(pieces, assemble, count_all, budget)
    assert fitted.tokens == count_all(fitted.messages) <= budget == fitted.budget
    assert sum(s.tokens for s in fitted.sections if s.kept) == fitted.tokens
    assert fitted.sections[0].name == "instructions and question" and fitted.sections[0].tokens == BASE and fitted.sections[0].kept


@quick
@given(pieces, st.integers(BASE, BASE + 60))
def test_pieces_keep_their_rank_and_only_what_does_not_fit_is_left_out(pieces, budget):
    fitted = fit(pieces, assemble, count_all, budget)
    assert [(s.name, s.text) for s in fitted.sections[1:]] == [(p.name, p.text) for p in pieces]
    kept = [p for p, s in zip(pieces, fitted.sections[1:]) if s.kept]
    assert list(fitted.messages) == assemble(kept)
    for i, s in enumerate(fitted.sections[1:]):
        before = [p for p, t in zip(pieces[:i], fitted.sections[1:]) if t.kept]
        assert s.kept == (count_all(assemble([*before, pieces[i]])) <= budget)


@quick
@given(pieces, st.integers(BASE, BASE + 59))
def test_more_room_never_gives_less_text_nor_drops_the_better_piece_first(pieces, budget):
    less, more = fit(pieces, assemble, count_all, budget), fit(pieces, assemble, count_all, budget + 1)
    assert less.tokens <= more.tokens
    changed = next(((a.kept, b.kept) for a, b in zip(less.sections, more.sections) if a.kept != b.kept), None)
    assert changed in (None, (False, True))


@quick
@given(pieces, st.integers(0, BASE - 1))
def test_what_must_be_there_is_never_cut(pieces, budget):
    with pytest.raises(BudgetError, match=f"need {BASE} tokens and the budget is {budget}") as e: fit(pieces, assemble, count_all, budget)
    assert isinstance(e.value, ValueError) and "\n" not in str(e.value)


def test_exactly_full_is_not_too_full():
    piece = Piece(name="document", text="one two three")
    need = count_all(assemble([piece]))
    assert [fit([piece], assemble, count_all, n).sections[1].kept for n in (need - 1, need)] == [False, True]


def test_a_section_knows_its_hit_and_what_it_would_have_cost():
    hit = Hit(item=Document(id="d", text="x"), score=1., source="bm25")
    fitted = fit([Piece(name="document", text="a b c d e", hit=hit), Piece(name="document", text="f")], assemble, count_all, BASE + 1)
    assert fitted.sections[1].hit is hit and (fitted.sections[1].kept, fitted.sections[1].tokens) == (False, 5)
    assert (fitted.sections[2].kept, fitted.sections[2].hit, fitted.tokens) == (True, None, BASE + 1)


def test_costs_are_of_the_whole_prompt_so_that_separators_count_too():
    joined = lambda pieces: [Message(role="user", text=" + ".join([*(p.text for p in pieces), "Why?"]))]
    fitted = fit([Piece(name="document", text="one"), Piece(name="document", text="two")], joined, count_all, 99)
    assert [s.tokens for s in fitted.sections] == [3, 2, 2] and fitted.tokens == 7
