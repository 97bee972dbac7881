"The domain adapter: off is off to the bit in three families, the two losses against oracles, training, files, corpora, and what is refused."
import io
import json
import tarfile
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.files import own_data
from memkit.models.local import LocalLM
from memkit.records import Message
from memkit.train.sequences import TokenRow, answer_loss
from memkit.malp.injection import (DomainAdapter, InjectionSettings, decoder_blocks, hide, inject, injection_examples, injection_loss,
                                   load_injected, load_injection, model_digest, read_injection, sample_loss, save_injection, train_injection)
from memkit.malp.injection import CORPORA, injection_corpus, part_of

torch = pytest.importorskip("torch")
VOCABULARY = 60
LOUD = InjectionSettings(learning_rate=.02, masked=None, batch=4, sample_weight=0., width=4)


def tiny(family: str = "Llama", layers: int = 3, vocabulary: int = VOCABULARY, dtype=torch.float32):
    "A random model of a family, d 32."
    import transformers
    torch.manual_seed(3)
    heads = {} if family == "Phi" else {"num_key_value_heads": 2}
    if family == "Qwen3": heads["head_dim"] = 16
    config = getattr(transformers, f"{family}Config")(vocab_size=vocabulary, hidden_size=32, intermediate_size=48, num_hidden_layers=layers, num_attention_heads=2, max_position_embeddings=256,
                                                      initializer_range=.2, bos_token_id=1, eos_token_id=2, pad_token_id=0, **heads)
    return getattr(transformers, f"{family}ForCausalLM")(config).eval().to(dtype)


def logits(model, rows: int = 2):
    ids = torch.from_numpy(np.random.default_rng(1).integers(3, VOCABULARY, (rows, 14)))
    with torch.inference_mode(): return model(input_ids=ids).logits


def filled(adapter: DomainAdapter, size: float = .1, seed: int = 0) -> DomainAdapter:
    rng = np.random.default_rng(seed)
    adapter.fill({k: (rng.normal(size=w.shape)*size).astype(np.float32) for k, w in adapter.weights().items()})
    return adapter


def texts(n: int = 12, length: int = 20) -> list[TokenRow]:
    "Rows that repeat themselves: something to learn."
    rng = np.random.default_rng(5)
    return [TokenRow(row, row) for row in (np.tile(rng.integers(3, VOCABULARY, 4), length//4) for _ in range(n))]


def reading(rows):
    "Rows of one length as the loss reads them: end to end."
    ids = torch.from_numpy(np.concatenate([e.ids for e in rows]).astype(np.int64))[None]
    mask = torch.from_numpy(np.concatenate([np.full(len(e), i) for i, e in enumerate(rows, 1)]))[None]
    return ids, mask, torch.from_numpy(np.concatenate([e.labels for e in rows]).astype(np.int64))[None]


# --- the adapter

@pytest.mark.parametrize("family", ["Llama", "Phi", "Qwen2", "Qwen3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_off_is_off_to_the_bit(family, dtype):
    model = tiny(family, dtype=dtype)
    before, names = logits(model), {n: p.clone() for n, p in model.named_parameters()}
    adapter = inject(model, InjectionSettings(layers=(0, 2), width=4))
    assert torch.equal(logits(model), before), "a fresh adapter changes nothing"
    filled(adapter)
    changed = logits(model)
    assert not torch.equal(changed, before)
    with adapter.without():
        assert not adapter.active and torch.equal(logits(model), before)
    assert adapter.active and torch.equal(logits(model), changed)
    adapter.switch(False)
    with adapter.without(): pass
    assert not adapter.active, "off stays off"
    adapter.switch(True)
    assert adapter.layers == (0, 2) and adapter.width == 4 and all(p.dtype == torch.float32 for p in adapter.parameters())
    adapter.remove()
    assert torch.equal(logits(model), before)
    assert {n for n, _ in model.named_parameters()} == set(names) and all(torch.equal(p, names[n]) for n, p in model.named_parameters())


def test_the_change_is_the_formula():
    model = tiny()
    adapter = filled(inject(model, InjectionSettings(layers=(1,), width=3)))
    mlp, w = model.model.layers[1].mlp, {k.rpartition(".")[2]: torch.from_numpy(v) for k, v in adapter.weights().items()}
    x = torch.randn(5, 32)
    with torch.no_grad():
        h = mlp.mlp(x)
        by_hand = torch.stack([row + w["up"] @ torch.clamp(w["down"] @ row + w["down_bias"], min=0) + w["up_bias"] for row in h])
        torch.testing.assert_close(mlp(x), by_hand)


def test_width_and_layers_by_default():
    model = tiny()
    adapter = inject(model)
    assert adapter.layers == (0, 1, 2) and adapter.width == 32//16


@pytest.mark.parametrize("what, words", [(dict(masked=0.), "masked"), (dict(masked=1.), "masked"), (dict(sample_weight=-1.), "sample_weight"), (dict(sample_weight=float("nan")), "sample_weight"),
                                         (dict(layers=()), "layers"), (dict(layers=(1, 1)), "layers"), (dict(width=0), "width")])
def test_settings_that_cannot_be(what, words):
    with pytest.raises(ValueError, match=words): InjectionSettings(**what)


def test_other_models_are_refused():
    from transformers import GPT2Config, GPT2LMHeadModel, OPTConfig, OPTForCausalLM
    opt = OPTForCausalLM(OPTConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, ffn_dim=16, max_position_embeddings=32, word_embed_proj_dim=16))
    gpt = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=16, n_layer=1, n_head=2, n_positions=32))
    for model in (opt, gpt):
        with pytest.raises(ValueError, match="LLaMA, SmolLM2, Phi and Qwen"): inject(model)


def test_twice_and_layers_that_are_not_there():
    model = tiny()
    with pytest.raises(ValueError, match=r"0\.\.2"): inject(model, InjectionSettings(layers=(3,)))
    inject(model)
    with pytest.raises(ValueError, match="already"): inject(model)


def test_weights_that_do_not_fit():
    adapter = inject(tiny(), InjectionSettings(layers=(1,), width=3))
    good = adapter.weights()
    for bad in ({}, {**good, "layers.0.up": good["layers.1.up"]}, {**good, "layers.1.up": good["layers.1.up"].T}, {**good, "layers.1.up": good["layers.1.up"]*np.nan}):
        with pytest.raises(ValueError, match="don't fit"): adapter.fill(bad)
    assert all((v == good[k]).all() for k, v in adapter.weights().items())


# --- together with peft and LocalLM

def lora(model, targets):
    import warnings
    from peft import LoraConfig, get_peft_model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        return get_peft_model(model, LoraConfig(r=2, target_modules=targets, init_lora_weights=False))


@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], ["down_proj"], "all-linear"])
def test_lora_on_top(targets):
    model = tiny()
    plain, digest = logits(model), model_digest(model)
    adapter = filled(inject(model, InjectionSettings(layers=(0, 1), width=4)))
    injected = logits(model)
    both = lora(model, targets)
    assert not any(p.requires_grad for p in adapter.parameters()), "the LoRA learns alone"
    assert not any("lora" in n and n.rpartition(".")[2] in ("down", "up") for n, _ in both.named_parameters())
    mixed = logits(both)
    with both.disable_adapter():
        assert torch.equal(logits(both), injected), "without the LoRA: the injected model"
        with adapter.without(): assert torch.equal(logits(both), plain), "without either: the base"
    assert torch.equal(logits(both), mixed) and not torch.equal(mixed, injected)
    assert DomainAdapter(both).digest == adapter.digest and model_digest(both) == digest


def test_injected_under_a_lora_that_is_there_already():
    model = lora(tiny(), ["q_proj"])
    before = logits(model)
    adapter = inject(model, LOUD)
    assert torch.equal(logits(model), before)
    filled(adapter)
    with adapter.without(): assert torch.equal(logits(model), before)


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer
    from memkit.models.local import embedded_folder
    return AutoTokenizer.from_pretrained(embedded_folder())


def test_a_local_lm_with_it(tokenizer):
    model = tiny(vocabulary=len(tokenizer))
    lm, talk = LocalLM.wrap(model, tokenizer, "tiny"), [[Message(role="user", text="My head hurts.")]]
    before = [r.text for r in lm.generate(talk, max_tokens=8)]
    adapter = filled(inject(model, LOUD), .5)
    assert [r.text for r in lm.generate(talk, max_tokens=8)] != before
    with adapter.without(): assert [r.text for r in lm.generate(talk, max_tokens=8)] == before


# --- the losses

@given(st.integers(2, 60), st.floats(.01, .99), st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_what_is_hidden(n, share, seed):
    row = np.arange(100, 100 + n)
    labels = np.where(np.arange(n) % 3 == 2, -100, row)   # some are only read
    labels[-1] = row[-1]
    whole = TokenRow(row, labels)
    damaged, = hide([whole], share, token=7, seed=seed)
    gone = damaged.labels != -100
    assert gone.sum() == damaged.targets == max(1, round(share*whole.targets))
    assert (damaged.ids[gone] == 7).all() and (damaged.labels[gone] == row[gone]).all() and (damaged.ids[~gone] == row[~gone]).all()
    assert not gone[whole.labels == -100].any() and not gone[0]
    assert (hide([whole], share, 7, seed)[0].ids == damaged.ids).all()


def test_each_pass_and_each_text_has_its_own_damage():
    rows = texts(2, 40)
    first, second = hide(rows, .2, 0, seed=0), hide(rows, .2, 0, seed=1)
    assert ((first[0].labels == -100) != (second[0].labels == -100)).any()
    assert ((first[0].labels == -100) != (first[1].labels == -100)).any()
    assert (rows[0].ids >= 3).all(), "the examples themselves stay whole"


@given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 4), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_sample_loss_is_the_plain_mean(layers, tokens, padding, seed):
    rng = np.random.default_rng(seed)
    changes = rng.normal(size=(layers, 1, tokens + padding, 6))
    mask = np.array([[1]*tokens + [0]*padding])
    by_hand = np.mean([np.mean([sum(x*x for x in changes[l, 0, t]) for t in range(tokens)]) for l in range(layers)])
    np.testing.assert_allclose(sample_loss([torch.from_numpy(c) for c in changes], torch.from_numpy(mask)).item(), by_hand, rtol=1e-5)


def test_loss_against_an_oracle():
    "L_K from the whole logits, L_S from the block outputs: one text at a time, by hand."
    model = tiny()
    adapter = filled(inject(model, InjectionSettings(layers=(0, 2), width=4)))
    rows = hide(texts(3), .2, token=2)
    total, n = injection_loss(model, .3)(*reading(rows))
    surprise, distances = [], []
    for e in rows:
        ids = torch.from_numpy(e.ids.astype(np.int64))[None]
        with torch.no_grad():
            logp = model(input_ids=ids).logits[0].log_softmax(-1)
            surprise += [-logp[i - 1, e.labels[i]].item() for i in np.flatnonzero(e.labels != -100)]
            distances += [_alone(model, i, ids, adapter) for i in (0, 2)]
    assert n == len(surprise)
    np.testing.assert_allclose(total.item()/n, np.mean(surprise) + .3*np.mean(distances), rtol=1e-4)


def _block(model, i, ids):
    seen = []
    hook = model.model.layers[i].register_forward_hook(lambda m, a, out: seen.append(out[0] if isinstance(out, tuple) else out))
    with torch.no_grad(): model(input_ids=ids)
    hook.remove()
    return seen[0]


def _alone(model, i, ids, adapter) -> float:
    "Layer i with its adapter less the same layer without, all others as they are."
    mlp = model.model.layers[i].mlp
    with_it = _block(model, i, ids)
    mlp.on = False
    without = _block(model, i, ids)
    mlp.on = True
    return (with_it - without).square().sum(-1).mean().item()


def test_weight_zero_is_the_loss_on_answers():
    model = tiny()
    filled(inject(model, LOUD))
    rows = reading(texts(2))
    loss = injection_loss(model, 0.)
    assert loss(*rows)[0].item() == answer_loss(model)(*rows)[0].item()
    assert loss.parts[1] == 0.


def test_only_the_adapter_gets_a_gradient():
    model = tiny(dtype=torch.bfloat16)
    adapter = filled(inject(model, InjectionSettings(width=4)))
    adapter.learn_alone(model)
    loss, _ = injection_loss(model, 1.)(*reading(texts(2)))
    loss.backward()
    learned = [n for n, p in model.named_parameters() if p.grad is not None]
    assert len(learned) == len(adapter.parameters()) and all(p.grad.abs().sum() > 0 for p in adapter.parameters())


# --- training

WORDS = SimpleNamespace(eos_token_id=2)   # all that training asks of a tokenizer

def test_it_learns_and_nothing_else_changes():
    model = tiny()
    lm, before = LocalLM.wrap(model, WORDS, "tiny"), logits(model)
    found = train_injection(lm, texts(16), settings=InjectionSettings(**{**vars(LOUD), "epochs": 6}), progress=False)
    losses = [row["loss"] for row in found.training.curve if row["loss"] is not None]
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - .2
    with found.adapter.without(): assert torch.equal(logits(model), before)
    assert not model.training


def test_the_sample_loss_holds_it_back():
    moved = []
    for w in (0., .1, 10.):
        model = tiny()
        train_injection(LocalLM.wrap(model, WORDS, "tiny"), texts(12), settings=InjectionSettings(**{**vars(LOUD), "epochs": 4, "sample_weight": w}), progress=False)
        loss = injection_loss(model, 1.)
        loss(*reading(texts(4)))
        moved.append(loss.parts[1])
    assert moved[0] > moved[1] > moved[2] > 0


def test_hidden_tokens_are_trained_on():
    model = tiny()
    found = train_injection(LocalLM.wrap(model, WORDS, "tiny"), texts(8), settings=InjectionSettings(learning_rate=.01, batch=4, epochs=2, width=4, sample_weight=1.), progress=False)
    assert found.training.tokens == 2*8*20
    assert any(np.abs(w).sum() for k, w in found.adapter.weights().items() if k.endswith(".up"))


def test_a_failed_training_leaves_no_adapter():
    model = tiny()
    with pytest.raises(ValueError): train_injection(LocalLM.wrap(model, WORDS, "tiny"), [], settings=LOUD, progress=False)
    with pytest.raises(ValueError, match="no domain adapter"): DomainAdapter(model)


def test_a_training_that_is_stopped_goes_on(tmp_path):
    "What a killed run's folder holds leads to the same weights."
    def run(folder, stop=None):
        model = tiny()
        lm = LocalLM.wrap(model, WORDS, "tiny")
        how = InjectionSettings(learning_rate=.01, batch=4, epochs=3, width=4, sample_weight=.5)
        if stop is None: return train_injection(lm, texts(12), settings=how, folder=folder, progress=False, look_every=2).adapter.weights()
        seen = []
        def count(module, given, out):
            seen.append(1)
            if len(seen) == stop: raise KeyboardInterrupt
        hook = decoder_blocks(model)[0].register_forward_hook(count)
        with pytest.raises(KeyboardInterrupt): train_injection(lm, texts(12), settings=how, folder=folder, progress=False, look_every=2)
        hook.remove()
        return None
    whole = run(tmp_path/"whole")
    run(tmp_path/"cut", stop=6)
    resumed = run(tmp_path/"cut")
    for k in whole: np.testing.assert_array_equal(whole[k], resumed[k])


# --- files

def test_there_and_back(tmp_path):
    model = tiny()
    adapter = filled(inject(model, InjectionSettings(layers=(0, 2), width=4)))
    save_injection(tmp_path/"a", model, {"note": "tiny"})
    weights, card = read_injection(tmp_path/"a")
    assert card["note"] == "tiny" and card["digest"] == adapter.digest and card["base"] == model_digest(model)
    assert all(w.dtype == np.float16 for w in weights.values())
    for dtype in (torch.float32, torch.bfloat16):
        other = tiny(dtype=dtype)
        if dtype == torch.bfloat16 and model_digest(other) != card["base"]: pytest.fail("the digest must not depend on the format")
        again = load_injection(other, tmp_path/"a")
        assert again.digest == adapter.digest and again.layers == (0, 2) and again.active and not any(p.requires_grad for p in again.parameters())


def test_files_that_are_refused(tmp_path):
    model = tiny()
    filled(inject(model, InjectionSettings(layers=(1,), width=4)))
    path = save_injection(tmp_path/"a", model)
    with pytest.raises(ValueError, match="belongs to the model"): load_injection(tiny("Qwen2"), path)
    with pytest.raises(ValueError, match="already"): load_injection(model, path)
    with pytest.raises(FileNotFoundError, match="b.safetensors"): read_injection(tmp_path/"b")
    whole = (tmp_path/"a.safetensors").read_bytes()
    for n in (0, 7, len(whole)//2, len(whole) - 1):
        (tmp_path/"a.safetensors").write_bytes(whole[:n])
        with pytest.raises(ValueError, match="can't be read"): read_injection(path)
    (tmp_path/"a.safetensors").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ValueError, match="aren't those that its card names"): read_injection(path)
    (tmp_path/"a.safetensors").write_bytes(whole)
    (tmp_path/"a.json").write_text("{")
    with pytest.raises(ValueError, match="can't be read"): read_injection(path)


def test_weights_too_large_for_the_file(tmp_path):
    model = tiny()
    adapter = inject(model, InjectionSettings(layers=(1,), width=2))
    adapter.fill({k: w + 1e5 for k, w in adapter.weights().items()})
    with pytest.raises(ValueError, match="float16"): save_injection(tmp_path/"a", model)
    assert not list(tmp_path.iterdir())


def test_the_digest_is_the_models_own():
    model = tiny()
    digest = model_digest(model)
    assert model_digest(tiny(dtype=torch.bfloat16)) == digest
    filled(inject(model, LOUD))
    assert model_digest(model) == digest
    with torch.no_grad(): model.lm_head.weight[3, 3] += 1
    assert model_digest(model) != digest


# --- corpora


@pytest.mark.parametrize("text", ['[{"a": 1}, {"b"', '[{"a": 1}, oops]', "not json"])
def test_json_that_is_broken(tmp_path, text):
    (tmp_path/"a.json").write_text(text)
    with pytest.raises(ValueError, match="a.json"): injection_corpus(tmp_path/"a.json")


def test_questions_to_doctors(tmp_path):
    rows = [{"instruction": "If you are a doctor …", "input": "My knee clicks. ", "output": " Does it hurt?"}, {"input": "", "output": "?"}, {"input": "Hm", "answer_icliniq": "Yes."}, {"other": 1}]
    (tmp_path/"mine.json").write_text(json.dumps(rows))
    found = list(injection_corpus(tmp_path/"mine.json"))
    assert [r["text"] for r in found] == ["My knee clicks.\nDoes it hurt?", "Hm\nYes."]
    (tmp_path/"mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert injection_corpus(tmp_path/"mine.jsonl") == found


def test_medquad_in_an_archive_and_a_folder(tmp_path):
    document = "<Document><Focus>Gout</Focus><QAPairs><QAPair><Question>What is gout?</Question><Answer>A   kind of\narthritis.</Answer></QAPair>" \
               "<QAPair><Question>Who gets it?</Question><Answer/></QAPair></QAPairs></Document>"
    (tmp_path/"in").mkdir()
    (tmp_path/"in"/"1.xml").write_text(document)
    with tarfile.open(tmp_path/"m.tar.gz", "w:gz") as tar:
        info = tarfile.TarInfo("MedQuAD/1.xml")
        info.size = len(document)
        tar.addfile(info, io.BytesIO(document.encode()))
    for path in (tmp_path/"in", tmp_path/"m.tar.gz"):
        assert list(injection_corpus(path)) == [{"text": "What is gout?\nA kind of arthritis.", "question": "What is gout?", "answer": "A kind of arthritis.", "about": "Gout"}]


def test_plain_text(tmp_path):
    (tmp_path/"a.txt").write_text("One.\n\n\n\nTwo.\n")
    (tmp_path/"b.txt").write_text("Three.")
    assert [r["text"] for r in injection_corpus(tmp_path/"a.txt")] == ["One.", "Two."]
    assert [(r["text"], r["about"]) for r in injection_corpus(tmp_path)] == [("One.", "a.txt"), ("Two.", "a.txt"), ("Three.", "b.txt")]


def test_corpora_that_are_not_there(tmp_path, monkeypatch):
    monkeypatch.delenv("MEMKIT_DATA", raising=False)
    for name, corpus in CORPORA.items():
        if not corpus.path: continue
        with pytest.raises(FileNotFoundError, match="MEMKIT_DATA") as e: injection_corpus(name)
        assert corpus.get in str(e.value)
    with pytest.raises(FileNotFoundError, match="no corpus and no file"): injection_corpus(tmp_path/"none.json")
    (tmp_path/"a.pdf").write_bytes(b"%PDF")
    with pytest.raises(ValueError, match="can't tell"): injection_corpus(tmp_path/"a.pdf")


def test_memkits_own_entries_by_topic(tokenizer):
    rows = list(injection_corpus("knowledge"))
    assert len(rows) == len(own_data("medical_knowledge.jsonl").read_text("utf-8").splitlines())
    parts = [part_of(r["about"]) for r in rows]
    assert set(parts) == {"train", "validation", "score"} and .6 < parts.count("train")/len(parts) < .95
    assert part_of("Gout ") == part_of("gout")
    windows = injection_examples(tokenizer, rows[:4], InjectionSettings(window=32))
    assert max(map(len, windows)) <= 32 and sum(e.targets for e in windows) > 150
    answers = injection_examples(tokenizer, rows[:4], chat=True)
    assert len(answers) == 4 and all(e.targets < len(e) for e in answers)
    with pytest.raises(ValueError, match="none of these texts has a question"): injection_examples(tokenizer, [{**rows[0], "question": ""}], chat=True)


# --- what travels with memkit

def test_the_shipped_adapter():
    path = own_data("injection_smollm2.safetensors")
    assert path.stat().st_size <= 2_500_000
    weights, card = read_injection(path.with_suffix(""))
    assert card["settings"] and card["data"] and all(d["licence"] and d["blake2b"] for d in card["data"].values())
    assert all(np.isfinite(w).all() for w in weights.values())


def test_the_shipped_adapter_in_its_model():
    lm, plain = load_injected(dtype="float32"), LocalLM.embedded(dtype="float32")
    text = ["Insulin is a hormone that is made in the pancreas, and it lets sugar into the cells of the body."]
    changed = lm.perplexity(text)
    assert changed != plain.perplexity(text) and lm.name.startswith("SmolLM2-135M-Instruct+")
    with DomainAdapter(lm.load()[0]).without(): assert lm.perplexity(text) == plain.perplexity(text)
