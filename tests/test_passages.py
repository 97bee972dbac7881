"Passages: nothing is lost, nothing is too long, and cutting again changes nothing."
import pytest
from hypothesis import given, strategies as st

from memkit.search.documents import asked, ends, passages, question_readings, split_sentences

texts = st.lists(st.sampled_from(["fever", "Cough", "It", "ends.", "Why?", "so!", "3.5", "mg", "\n\n", "\n", "药", "e.g.", '"Yes."']), max_size=60).map(" ".join)


@given(texts)
def test_sentences_keep_every_word(text): assert " ".join(split_sentences(text)).split() == text.split()


@given(texts, st.integers(1, 20), st.data())
def test_passages_keep_every_word_and_their_size(text, words, data):
    overlap = data.draw(st.integers(0, words - 1))
    cut = [p.split() for p in passages(text, words, overlap)]
    assert all(0 < len(p) <= words for p in cut)
    rest = text.split()
    for i, p in enumerate(cut):
        shared = next(n for n in range(min(overlap, len(p)) + 1) if p[n:] == rest[:len(p) - n] and (n == 0 or cut[i - 1][-n:] == p[:n]))
        assert len(p) > shared
        rest = rest[len(p) - shared:]
    assert rest == []


@given(texts)
def test_a_short_text_is_one_passage(text): assert passages(text, 1000, 20) == ([" ".join(text.split())] if text.strip() else [])


def test_an_overlap_is_whole_sentences():
    cut = passages("One two three. Four five. Six seven eight. Nine.", words=8, overlap=3)
    assert cut == ["One two three. Four five. Six seven eight.", "Six seven eight. Nine."]


@pytest.mark.parametrize("message, question", [("I am 40. Is it flu? Thanks.", "Is it flu?"), ("what is flu", "what is flu"), ("Is it flu? and is it bad? Bye.", "Is it flu? and is it bad?"),
    ("Line one\n\nis it flu?\n\nBye", "is it flu?"), ("?", "?"), ("", "")])
def test_the_question(message, question): assert asked(message) == question


@given(texts, st.integers(2, 30))
def test_ends_are_bounded(text, words):
    short = ends(text, words).split()
    assert len(short) <= words and short[:1] == text.split()[:1] and short[-1:] == text.split()[-1:]


@pytest.mark.parametrize("words, overlap", [(0, 0), (5, 5), (5, -1)])
def test_refusals(words, overlap):
    with pytest.raises(ValueError, match="overlap in 0..words - 1"): passages("a b", words, overlap)


@given(texts)
def test_readings_keep_everything_but_the_other_questions(text):
    found = question_readings(text)
    if len(found) == 1: assert found == [text]
    else:
        assert all(set(f.split()) <= set(text.split()) and len(f.split()) < len(text.split()) for f in found)
        told = [s for s in split_sentences(text) if not s.endswith("?")]
        assert all(s in f for s in told for f in found)                 # what isn't asked stands in every reading
        assert 2 <= len(found) <= 4 and all("?" in f for f in found)


@pytest.mark.parametrize("message, expected", [
    ("What helps with gout pain? Is it dangerous?", 1), ("What helps with gout pain? Which food brings gout on?", 2), ("gout pain food", 1), ("", 1),
    (" ".join(f"Does medicine number{i} help against gout?" for i in range(9)), 4)])
def test_only_questions_that_say_what_they_ask_are_told_apart(message, expected): assert len(question_readings(message)) == expected
