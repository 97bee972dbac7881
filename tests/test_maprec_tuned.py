"The tuned encoder's opinion: how it joins that of the cues, and what it learns from. Nothing here needs an encoder."
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.core.contrastive import Adapter
from memkit.maprec.detection import decided
from memkit.maprec.tuned import TunedDetector, joined, noisy, train_tuned, weighted

SHARE = st.floats(0, 1)
LOGIT = st.floats(-50, 50)


@given(SHARE, SHARE)
def test_an_encoder_without_an_opinion_changes_nothing(a, b):
    first = decided(a, b)
    d = joined(first, (0., 0.))
    assert d.shares["A"] == pytest.approx(a, abs=1e-9) and d.shares["B"] == pytest.approx(b, abs=1e-9)


@given(SHARE, SHARE, LOGIT, LOGIT, st.floats(0, 4), st.floats(.1, 3))
def test_joined_opinions_are_probabilities_and_follow_the_second(a, b, za, zb, weight, scale):
    first = decided(a, b, {"A": ("x", ("c",)), "B": ("y", ())})
    d, more = joined(first, (za, zb), weight, (scale, scale)), joined(first, (za + 1, zb), weight, (scale, scale))
    assert all(0 <= p <= 1 for p in d.shares.values()) and .25 <= d.confidence <= 1
    assert more.shares["A"] >= d.shares["A"] and more.shares["B"] == d.shares["B"]
    for t in "AB": assert d.because[t][1] == (first.because[t][1] if (d.shares[t] > .5) == (first.shares[t] > .5) else ())


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(codec="ascii", categories=("L", "P")), min_size=1, max_size=60).filter(str.strip), st.integers(0, 99))
def test_noise_keeps_a_message(text, seed):
    found = noisy(text, random.Random(seed))
    assert found and found == noisy(text, random.Random(seed)) and len(found) <= 2*len(text) + 2


def test_noise_only_now_and_then():
    line, rng = "Can you recommend something like Solaris?", random.Random(0)
    assert .3 < np.mean([noisy(line, rng) == line for _ in range(600)]) < .75


def test_an_opinion_of_no_use_gets_no_weight():
    rng = np.random.default_rng(0)
    wanted = rng.random((300, 2)) < .5
    good, noise = np.where(wanted, 2., -2.) + rng.normal(size=(300, 2)), rng.normal(size=(300, 2))*4
    assert weighted(good, noise, wanted)[0] == 0. and weighted(noise, good, wanted)[0] == 2.
    assert all(.1 <= s <= 3.001 for s in weighted(good, noise, wanted)[1])
    with pytest.raises(ValueError, match="one shape"): weighted(good, noise[:5], wanted)


def test_what_cannot_be_used():
    with pytest.raises(ValueError, match="no head"): TunedDetector(Adapter({}, {"base": "x"}))
    with pytest.raises(FileNotFoundError): TunedDetector("no/such/adapter")
    with pytest.raises(ValueError, match="labelled_messages"): train_tuned([])
