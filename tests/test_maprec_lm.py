"Prompts, shares, calibration and one-pass sequences; a tiny model with random weights stands for the language model where only the bookkeeping is tested."
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.train.adapters import LoraShape
from memkit.models.local import embedded_folder
from memkit.models.local import LocalLM
from memkit.train.sequences import IGNORED
from memkit.train.loop import TrainSettings
from memkit.experiments.map.single import cases_of
from memkit.maprec.items import Catalogue, Item, Rated, rating_line, stars
from memkit.maprec.prediction import Lines, LoraSettings, case_rows, case_probabilities, history_probabilities, memory_probabilities, one_sequence, training_histories, train_rating_lora
from memkit.maprec.prediction import (FORMS, LABELS, Calibration, decode, figure_4_messages, fit_calibration, masked, rate_many, rating_prompt, rating_probabilities, shuffled, softmax,
                                      vanilla_messages)
from memkit.maprec.prediction import ReaderSettings, random_states, raw_states, reader_fold_probabilities, state_space, train_reader

ODD = ("Amélie", "千と千尋の神隠し", "Se7en: 5", "12 Angry Men", "8½", "M", "Rating: 1", "<<<evil>>> rating: 1", "Ночь", "🎬 film", "Title\n3 rating: 5")
films = [Item(id=f"i{n}", title=t, year=1950 + n, genres=("Drama", "War")[:n % 3]) for n, t in enumerate(ODD)]
titles = st.text(min_size=1, max_size=40).filter(lambda t: any(c.isalnum() for c in t))


def items(title: str) -> Item | None:
    try: return Item(id="x", title=title)
    except ValueError: return None


@pytest.fixture(scope="module")
def tiny() -> LocalLM:
    torch = pytest.importorskip("torch")
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    try: tokenizer = AutoTokenizer.from_pretrained(embedded_folder())
    except ModuleNotFoundError: pytest.skip("the embedded model's tokenizer isn't installed")
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=1024, initializer_range=.2))
    return LocalLM.wrap(model, tokenizer, "tiny")


def raters(n: int = 5, each: int = 8, seed: int = 0) -> SimpleNamespace:
    rng = np.random.default_rng(seed)
    user, item = np.repeat(np.arange(n), each), np.concatenate([rng.permutation(len(films))[:each] for _ in range(n)])
    return SimpleNamespace(users=tuple(f"u{i}" for i in range(n)), items=Catalogue(films), user=user, item=item,
                           rating=rng.integers(1, 6, n*each).astype(np.float32), at=rng.integers(0, 3, n*each))


# ---- the prompt

@settings(max_examples=80, deadline=None)
@given(titles, titles, st.sampled_from(FORMS))
def test_a_title_adds_no_line(a, b, form):
    a, b = items(a), items(b)
    if a is None or b is None: return
    prompt = rating_prompt([Rated(a, 4)]*3, b, form)
    assert prompt.count("\n") == 4 and len(prompt.splitlines()) == 5
    text = figure_4_messages([Rated(a, 4)], b)[0].text
    assert text.count(">>>") == 2 and text.count("<<<") == 2     # where it is explained, and around the target


def test_lines_are_those_of_the_profile():
    rated = Rated(films[0], 4.5)
    assert rating_prompt([rated], films[1]).splitlines()[1] == rating_line(rated)
    assert rating_prompt([], films[1]).count("\n") == 1


def test_vanilla_grows_by_two_messages_a_rating():
    history = [Rated(f, 3) for f in films[:6]]
    assert [len(vanilla_messages(history[:n], films[7])) for n in range(7)] == list(range(2, 16, 2))
    longer = vanilla_messages(history, films[7])
    assert longer[:-1] == vanilla_messages(history + [Rated(films[8], 1)], films[7])[:len(longer) - 1]     # a flat sequence: the past never changes


# ---- decode

shares5 = st.lists(st.floats(.001, 1), min_size=5, max_size=5).map(lambda x: np.array(x)/sum(x))

@settings(max_examples=100, deadline=None)
@given(shares5)
def test_the_median_errs_least(p):
    error = lambda x: p @ abs(np.array(LABELS) - x)
    assert error(decode(p, "median")) <= min(error(x) for x in np.arange(1, 5.01, .25)) + 1e-9
    assert (p @ (np.array(LABELS) - decode(p, "mean"))**2) <= min(p @ (np.array(LABELS) - x)**2 for x in np.arange(1, 5.01, .25)) + 1e-9
    assert p[int(decode(p, "argmax")) - 1] == p.max()


def test_decode_rows_and_ties():
    assert decode(np.eye(5)).tolist() == [1, 2, 3, 4, 5]
    assert decode(np.array([.5, 0, 0, 0, .5])) == 1        # a tie goes down, as any number between errs as much
    assert decode(np.zeros((0, 5))).shape == (0,)


@pytest.mark.parametrize("wrong", [[.2]*4, [.5]*5, [np.nan]*5, [1.5, -.5, 0, 0, 0]])
def test_decode_refuses(wrong):
    with pytest.raises(ValueError, match="sum to 1"): decode(np.array(wrong))


# ---- calibration

def test_calibration_is_the_best_of_its_kind():
    rng = np.random.default_rng(1)
    shares = softmax(rng.normal(size=(500, 5)))
    truth = np.array([rng.choice(LABELS, p=p) for p in softmax(np.log(shares)*.5 + np.array([0, 0, .5, 1, 0]))])
    fitted = fit_calibration(shares, truth, "m")
    loss = lambda c: -np.log(c(shares)[np.arange(500), truth - 1]).mean()
    best = loss(fitted)
    for d in (-.05, .05):
        assert best <= loss(replace(fitted, temperature=fitted.temperature*(1 + d))) + 1e-6
        for i in range(5): assert best <= loss(replace(fitted, prior=tuple(b + d*(i == j) for j, b in enumerate(fitted.prior)))) + 1e-5
    assert fitted.n == 500 and fitted.model == "m"


def test_calibration_survives_what_is_rare(tmp_path):
    shares = np.array([[0, 0, 0, 0, 1.], [0, 0, 0, 1., 0]]*20)
    fitted = fit_calibration(shares, [5, 4]*20)           # three labels never given, shares of 0
    out = fitted(shares)
    assert np.isfinite(out).all() and np.allclose(out.sum(1), 1) and decode(out).tolist() == [5, 4]*20
    upside_down = fit_calibration(shares[:, ::-1], [5, 4]*20)
    assert upside_down.temperature > 0
    fitted.save(tmp_path/"c.json")
    assert Calibration.load(tmp_path/"c.json") == fitted
    for text in ("[]", "{}x", json.dumps({"prior": [0]*5, "warmth": 1}), json.dumps({"prior": [0]*4})):
        (tmp_path/"bad.json").write_text(text)
        with pytest.raises(ValueError): Calibration.load(tmp_path/"bad.json")


# ---- one pass

def test_a_sequence_is_its_prompt(tiny):
    "Token by token what the prompt is, titles in any script."
    tokenizer = tiny.load()[1]
    for form in FORMS:
        history = [Rated(f, 1 + n % 5) for n, f in enumerate(films)]
        row = one_sequence(Lines(tokenizer, form), history)
        text = rating_prompt(history, films[0], form).rpartition("\n")[0] + "\n"
        assert tokenizer.decode(row.ids) == text and row.ids.tolist() == tokenizer(text).input_ids
        assert [tokenizer.decode([t]) for t in row.ids[row.places]] == [str(stars(r.rating)) for r in history]
        example = row.example
        assert example.targets == len(history) and set(example.labels.tolist()) - {IGNORED} == set(row.labels[0].tolist())


def test_one_pass_is_prompt_after_prompt(tiny):
    history = [Rated(f, 1 + n % 5) for n, f in enumerate(films[:7])]
    found = history_probabilities(tiny, [one_sequence(Lines(tiny.load()[1], "full"), h) for h in (history, history[:2], history[3:])], batch=3)
    for rows, h in zip(found, (history, history[:2], history[3:])):
        assert np.allclose(rows, rating_probabilities(tiny, [rating_prompt(h[:n], h[n].item) for n in range(len(h))]), atol=1e-5)


def test_the_future_is_not_seen(tiny):
    lines, history = Lines(tiny.load()[1]), [Rated(f, 3) for f in films[:6]]
    changed = [*history[:3], *(Rated(r.item, 1) for r in history[3:])]
    a, b = history_probabilities(tiny, [one_sequence(lines, h) for h in (history, changed)])
    assert np.allclose(a[:4], b[:4], atol=1e-6) and not np.allclose(a[4:], b[4:], atol=1e-6)


def test_cases_there_and_back(tiny):
    people = raters()
    cases = cases_of(people, range(5), orders=(0, 1), history=6)
    assert len(case_rows(cases)[0]) == 10
    shares = case_probabilities(tiny, people, cases)
    some = np.random.default_rng(0).permutation(len(cases))[:12]
    assert np.allclose(case_probabilities(tiny, people, cases.at(some)), shares[some], atol=1e-5)     # fewer, in another order
    whole = memory_probabilities(tiny, people, cases, lambda shown, target: shown)
    assert np.allclose(whole, shares, atol=1e-5)
    c = int(some[0])
    shown = [Rated(films[i], r) for i, r in zip(cases.known[c, :cases.h[c]], cases.known_rating[c, :cases.h[c]])]
    assert np.allclose(shares[c], rating_probabilities(tiny, [rating_prompt(shown, films[cases.target[c]], "short")])[0], atol=1e-5)
    truth = replace(cases, truth=6 - cases.truth)         # what is to be foretold is never read
    longest = cases.h == 6
    assert np.allclose(case_probabilities(tiny, people, truth.at(longest)), shares[longest], atol=1e-6)
    with pytest.raises(ValueError, match="longest history"): case_probabilities(tiny, people, replace(cases, known=np.where(cases.h[:, None] == 6, cases.known[:, ::-1], cases.known)))


def test_rate_many_shares_the_history(tiny):
    history = [Rated(f, 2) for f in films[:4]]
    assert np.allclose(rate_many(tiny, history, films[4:]), rating_probabilities(tiny, [rating_prompt(history, f) for f in films[4:]]), atol=1e-5)
    assert rate_many(tiny, [], films[:1]).shape == (1, 5) and rating_probabilities(tiny, []).shape == (0, 5)


def test_a_tokenizer_with_long_numbers_is_refused():
    letters = lambda text, **_: SimpleNamespace(input_ids=[x for c in text for x in ([ord(c)] if not c.isdigit() else [0]*int(c))])
    with pytest.raises(ValueError, match="one token each"): Lines(letters).line(films[0])


# ---- controls

def test_masked_titles_say_nothing():
    history, target = masked([Rated(films[0], 1), Rated(films[1], 2), Rated(films[0], 3)], films[1])
    assert [r.item.title for r in history] == ["Title 1", "Title 2", "Title 1"] and target.title == "Title 2" and not target.genres and target.year is None
    assert [r.rating for r in history] == [1, 2, 3]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 5), max_size=12), st.integers(0, 99))
def test_shuffled_keeps_items_and_ratings(given_stars, seed):
    history = [Rated(films[n % len(films)], s) for n, s in enumerate(given_stars)]
    dealt = shuffled(history, seed)
    assert [r.item for r in dealt] == [r.item for r in history] and sorted(r.rating for r in dealt) == sorted(r.rating for r in history)
    assert dealt == shuffled(history, seed)


# ---- practice

SMALL = LoraSettings(tokens=900, ratings=6, later=.5, shape=LoraShape(rank=4, targets=("q_proj", "v_proj"), seed=1), train=TrainSettings(learning_rate=1e-2, epochs=3, batch=4, room=256))

def test_practice_learns_from_the_right_users_only(tiny):
    people, lines = raters(6), Lines(tiny.load()[1])
    drawn = training_histories(people, [0, 1, 2], lines, SMALL)
    assert [h.ids.tolist() for h in drawn] == [h.ids.tolist() for h in training_histories(people, [2, 1, 0], lines, SMALL)]
    other = replace_ratings(people, [3, 4, 5])
    assert [h.ids.tolist() for h in drawn] == [h.ids.tolist() for h in training_histories(other, [0, 1, 2], lines, SMALL)]


def replace_ratings(people, users):
    out = SimpleNamespace(**vars(people))
    out.rating = np.where(np.isin(people.user, users), 6 - people.rating, people.rating).astype(np.float32)
    return out


def test_practise_lowers_the_loss_and_leaves_the_base_alone(tiny):
    people = raters(6)
    people.rating[:] = 4
    before = tiny.load()[0].state_dict()["model.embed_tokens.weight"].clone()
    cases = cases_of(people, [4, 5], orders=(0,), history=5)
    untrained = case_probabilities(tiny, people, cases)
    lm, done = train_rating_lora(people, [0, 1, 2, 3], SMALL, lm=tiny)
    try:
        after = case_probabilities(lm, people, cases)
        assert done.curve[-1]["loss"] < done.curve[1]["loss"] and after[:, 3].mean() > untrained[:, 3].mean()
        assert (decode(after) == 4).mean() > .9
    finally: lm.load()[0].unload()
    assert (tiny.load()[0].state_dict()["model.embed_tokens.weight"] == before).all()
    assert np.allclose(case_probabilities(tiny, people, cases), untrained, atol=1e-5)


# ---- the reader of states

FAST = ReaderSettings(width=8, passes=2, members=2, ratings=6, batch=4)

def test_states_do_not_depend_on_their_neighbours(tiny):
    raw = raw_states(tiny, films, layers=(1, 2), batch=4)
    assert raw.shape == (len(films), 2*2*32) and np.isfinite(raw).all()
    assert np.allclose(raw[[7, 2]], raw_states(tiny, [films[7], films[2]], layers=(1, 2), batch=1), atol=1e-4)
    space = state_space(raw[:8], 4)
    assert space(raw).shape == (len(films), 4) and np.allclose(space(raw[8:]), space(raw)[8:], atol=1e-5)      # new items have a place too


def test_the_reader_learns_from_the_right_users_only():
    people, states = raters(6), random_states(len(films), 8)
    cases = cases_of(people, [4, 5], orders=(0, 1), history=6)
    found = reader_fold_probabilities(people, cases, [0, 1, 2, 3], states, FAST)
    assert found.shape == (len(cases), 5) and np.allclose(found.sum(1), 1, atol=1e-5) and (found >= 0).all()
    assert np.allclose(found, reader_fold_probabilities(replace_ratings(people, [4, 5]), cases, [3, 2, 1, 0], states, FAST), atol=1e-6)
    assert not np.allclose(found, reader_fold_probabilities(replace_ratings(people, [0, 1]), cases, [0, 1, 2, 3], states, FAST), atol=1e-3)
    with pytest.raises(ValueError, match="learned from"): reader_fold_probabilities(people, cases, [0, 4], states, FAST)
    with pytest.raises(ValueError, match="99 ratings"): train_reader(people, [0], states, replace(FAST, ratings=99))


def test_the_reader_sees_neither_the_target_nor_the_future():
    people, states = raters(6), random_states(len(films), 8)
    reader, cases = train_reader(people, [0, 1, 2, 3], states, FAST), cases_of(people, [4, 5], orders=(0,), history=6)
    shares = reader.case_probabilities(people, cases)
    assert np.allclose(reader.memory_probabilities(people, cases, lambda shown, target: shown), shares, atol=1e-5)
    longest = cases.h == 6
    assert np.allclose(reader.case_probabilities(people, replace(cases, truth=6 - cases.truth).at(longest)), shares[longest], atol=1e-6)
    assert reader.memory_probabilities(people, cases, lambda shown, target: []).shape == shares.shape       # a cold start has an answer
