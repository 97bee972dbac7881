"Sequences, readings and the training loop: what is learned, that nothing leaks, the oracles, faults, resuming, two processes."
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.train.sequences import answer_loss, end_to_end, mean_loss, negative_log_likelihood
from memkit.records import Message
from memkit.train.sequences import IGNORED, TokenRow, answer_end, batches_of, chat_examples, packs, shares, text_examples
from memkit.models.local import chat_prompt, text_ids
from memkit.train.loop import CheckpointFile, NotFinite, TrainSettings, check_checkpoint, rate, train

ROOT, WORDS = Path(__file__).resolve().parents[1], 97
QUICK = TrainSettings(learning_rate=.02, batch=4, epochs=3, room=64, look_every=4)


def say(*turns, system=""):
    "A conversation: user and assistant in turns."
    opening = [Message(role="system", text=system)] if system else []
    return opening + [Message(role=("user", "assistant")[i % 2], text=t) for i, t in enumerate(turns)]


@pytest.fixture(scope="module")
def make_tokenizer():
    "A tokenizer of whole words and spaces that any template can be given."
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    def make(template=None):
        letters = [chr(c) for c in range(32, 127)] + ["\n"]
        t = Tokenizer(models.WordLevel({w: i for i, w in enumerate(letters)}, unk_token=" "))
        t.pre_tokenizer = pre_tokenizers.Split(Regex("(.|\n)"), "isolated")
        t.decoder = decoders.Fuse()
        t.add_special_tokens([AddedToken(w, special=True, normalized=False) for w in ("<s>", "</s>", "<|end|>")])
        return PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>", chat_template=template)
    return make


PLAIN_CHAT = "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}{% if add_generation_prompt %}<s>assistant\n{% endif %}"
NO_SYSTEM = ("{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ '[U]' if m['role'] == 'user' else '[A]' }}{{ m['content'] }}"
             "{{ '</s>' if m['role'] == 'assistant' else '' }}{% endfor %}{% if add_generation_prompt %}[A]{% endif %}")
FORGETFUL = ("{% for m in messages %}{% if m['role'] == 'user' or loop.last %}{{ m['role'] }}: {{ m['content'] }}{{ '</s>' if m['role'] == 'assistant' else ' ' }}{% endif %}{% endfor %}"
             "{% if add_generation_prompt %}assistant: {% endif %}")


# --- conversations

def learned(tokenizer, e):
    "The targets as text, with a bar where they are interrupted."
    out, gap = "", False
    for i, l in zip(e.ids, e.labels):
        if l != IGNORED: out += ("¦" if gap and out else "") + tokenizer.decode([i]); gap = False
        else: gap = True
    return out


def test_every_answer_and_its_end_are_targets(make_tokenizer):
    t = make_tokenizer(PLAIN_CHAT)
    (e,) = chat_examples(t, [say("hi", "hello", "bye", "so long", system="be kind")])
    assert answer_end(t) == "<|end|>" and learned(t, e) == "hello<|end|>¦so long<|end|>"
    assert t.decode(e.ids).startswith("<s>system\nbe kind<|end|>\n<s>user\nhi") and t.decode(e.ids).endswith("so long<|end|>")


def test_the_prompt_is_read_as_the_model_reads_it_when_it_answers(make_tokenizer):
    for template in (PLAIN_CHAT, NO_SYSTEM, FORGETFUL, None):
        t, talk = make_tokenizer(template), say("a b", "c", "d", "e f", "g", "h", system="s")
        rows = chat_examples(t, [talk])
        assert len(rows) == (3 if template == FORGETFUL else 1)
        prompt = text_ids(t, chat_prompt(t, talk[:2]))
        assert rows[0].ids[:len(prompt)].tolist() == prompt and (rows[0].labels[:len(prompt)] == IGNORED).all()


def test_a_model_without_a_template_learns_to_stop_where_the_next_would_speak(make_tokenizer):
    t = make_tokenizer()
    (e,) = chat_examples(t, [say("hi", "hello", "bye", "ciao")])
    assert learned(t, e) == " hello\nInstruct:¦ ciao\nInstruct:"


def test_markers_in_what_was_said_end_nothing(make_tokenizer):
    t = make_tokenizer(PLAIN_CHAT)
    (e,) = chat_examples(t, [say("hi<|end|>", "he<|end|>llo")])
    assert list(e.ids).count(t.convert_tokens_to_ids("<|end|>")) == 2 and learned(t, e).count("<|end|>") == 1


def test_words_before_the_first_question_and_empty_answers_are_no_targets(make_tokenizer):
    t = make_tokenizer(PLAIN_CHAT)
    talk = [Message(role="assistant", text="welcome"), *say("hi", "", "and?", "yes")]
    (e,) = chat_examples(t, [talk])
    assert learned(t, e) == "yes<|end|>"
    for nothing in ([], [say("hi")], [[Message(role="assistant", text="welcome")]], [[]], [say("hi", "")]):
        with pytest.raises(ValueError, match="nothing to learn"): chat_examples(t, nothing)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(40, 160))
@settings(max_examples=40, deadline=None)
def test_long_conversations_are_split_between_rounds(make_tokenizer, sizes, room):
    t = make_tokenizer(PLAIN_CHAT)
    talk = say(*(x for i, n in enumerate(sizes) for x in (f"q{i}", f"{i}" + "x"*n)), system="sys")
    rows = chat_examples(t, [talk], room)
    assert all(len(e) <= room for e in rows)
    said = [p for e in rows for p in learned(t, e).split("¦")]
    assert len(said) == len(sizes) and all(p.endswith("<|end|>") and f"{i}{'x'*n}<|end|>".endswith(p) for i, (n, p) in enumerate(zip(sizes, said)))
    assert all("<s>system\nsys" in t.decode(e.ids) for e in rows if len(e) < room)


def test_one_answer_each_keeps_as_much_before_it_as_fits(make_tokenizer):
    t = make_tokenizer(FORGETFUL)
    talk = say("aaaa", "1", "bbbb", "2", "cccc", "3")
    wide, narrow = chat_examples(t, [talk], 200), chat_examples(t, [talk], 40)
    assert [learned(t, e) for e in wide] == [learned(t, e) for e in narrow] == ["1</s>", "2</s>", "3</s>"]
    assert "aaaa" in t.decode(wide[2].ids) and "aaaa" not in t.decode(narrow[2].ids) and "cccc" in t.decode(narrow[2].ids)


# --- texts

@given(st.integers(1, 50), st.integers(2, 12))
@settings(max_examples=60, deadline=None)
def test_windows_make_every_token_but_the_first_a_target_once(make_tokenizer, n, window):
    t = make_tokenizer()
    text = "".join(chr(97 + i % 26) for i in range(n))
    if n < 2: return
    rows = text_examples(t, [text], window)
    assert "".join(t.decode(e.ids[1:]) for e in rows) in (text, text[1:]) and all(len(e) <= window for e in rows)


# --- what is read together

lengths = st.lists(st.integers(2, 40), min_size=1, max_size=30)


@given(lengths, st.integers(1, 60), st.integers(1, 4))
@settings(max_examples=80, deadline=None)
def test_everything_is_read_once_within_the_room(sizes, room, n):
    parts = packs(sizes, room)
    assert sorted(i for p in parts for i in p) == list(range(len(sizes)))
    assert all(len(p) == 1 or sum(sizes[i] for i in p) <= room for p in parts)
    found = shares(sizes, n)
    assert sorted(i for p in found for i in p) == list(range(len(sizes)))
    load = [sum(sizes[i] for i in p) for p in found]
    assert max(load) - min(load) <= max(sizes)


@given(lengths, st.integers(1, 6), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_steps_take_everything_once_in_an_order_of_their_own(sizes, batch, epoch):
    steps = batches_of(sizes, batch, 5, epoch)
    assert sorted(i for s in steps for i in s) == list(range(len(sizes))) and len(steps) == -(-len(sizes)//batch)
    assert all(len(s) <= batch for s in steps) and steps == batches_of(sizes, batch, 5, epoch)


# --- the loss

def tiny(kind="Llama", **more):
    "A model with random weights of which the norms learn."
    import torch
    import transformers
    torch.manual_seed(0)
    small = dict(vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
    if kind == "GPT2": small = dict(vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0, resid_pdrop=0., embd_pdrop=0., attn_pdrop=0.)
    if kind == "Bloom": small = dict(vocab_size=WORDS, hidden_size=32, n_layer=2, n_head=4)
    if kind == "Phi3": more = {"pad_token_id": 0, "eos_token_id": 0} | more
    if kind == "Phi": more = {"resid_pdrop": 0.} | more
    if kind == "Gemma2": more = {"head_dim": 8} | more
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, f"{kind}Config")(**small, **more)).requires_grad_(False)
    for name, p in model.named_parameters(): p.requires_grad_("norm" in name.lower() or "ln_" in name)
    return model.eval()


def examples(n=10, seed=0, longest=60, share=.5):
    rng = np.random.default_rng(seed)
    rows = [rng.integers(0, WORDS, k) for k in rng.integers(3, longest, n)]
    out = [TokenRow(r, np.where(rng.random(len(r)) < share, r, IGNORED)) for r in rows]
    return [e if e.targets else TokenRow(e.ids, e.ids) for e in out]


def plainly(model, few):
    "The oracle: each example by itself, all scores, PyTorch's own loss."
    import torch
    losses = []
    for e in few:
        scores, labels = model(input_ids=torch.tensor(e.ids[None].astype(np.int64))).logits[0, :-1].float(), torch.tensor(e.labels[1:].astype(np.int64))
        losses.append(torch.nn.functional.cross_entropy(scores, labels, ignore_index=IGNORED, reduction="sum"))
    return losses


FAMILIES = {"Llama": {"num_key_value_heads": 2}, "Phi": {}, "Phi3": {}, "Qwen2": {"num_key_value_heads": 2}, "Mistral": {"num_key_value_heads": 2, "sliding_window": 30},
            "GPT2": {}, "Bloom": {}, "Gemma2": {"num_key_value_heads": 2}, "Cohere": {"num_key_value_heads": 2}}


@pytest.mark.parametrize("kind", FAMILIES)
def test_loss_and_slope_are_those_of_the_plain_way(kind):
    import torch
    model, few = tiny(kind, **FAMILIES[kind]), [*examples(4), *examples(1, 1, 300)]
    loss, learn = answer_loss(model), [p for p in model.parameters() if p.requires_grad]
    want = plainly(model, few)
    assert np.allclose(mean_loss(loss, few)[:, 0], [x.item() for x in want], rtol=1e-4) and mean_loss(model, few)[:, 1].tolist() == [e.targets for e in few]
    rows = [loss(*end_to_end(part)) for part in ([few] if loss.packs else [[e] for e in few])]
    total, n = sum(x for x, _ in rows), sum(k for _, k in rows)
    assert n == sum(e.targets for e in few)
    for a, b in zip(torch.autograd.grad(total, learn), torch.autograd.grad(sum(want), learn)): assert torch.allclose(a, b, rtol=1e-3, atol=1e-3*float(b.abs().max()))
    assert (loss.packs, loss.fused) == (kind != "Bloom", kind not in ("Gemma2", "Cohere"))


def test_an_example_never_sees_its_neighbours():
    loss, (a, b, c) = answer_loss(tiny()), examples(3)
    other = TokenRow((b.ids + 1) % WORDS, np.where(b.labels == IGNORED, IGNORED, (b.ids + 1) % WORDS))
    rows = [loss.each(*end_to_end([a, x, c])).detach().numpy() for x in (b, other)]
    assert np.allclose(rows[0][:a.targets], rows[1][:a.targets], atol=1e-6) and np.allclose(rows[0][-c.targets:], rows[1][-c.targets:], atol=1e-6)


def test_an_output_layer_that_learns_gets_its_slope():
    import torch
    model, few = tiny(tie_word_embeddings=False), examples(3)
    model.lm_head.weight.requires_grad_(True)
    loss = answer_loss(model)
    (a,), (b,) = torch.autograd.grad(loss(*end_to_end(few))[0], [model.lm_head.weight]), torch.autograd.grad(sum(plainly(model, few)), [model.lm_head.weight])
    assert not loss.fused and torch.allclose(a, b, atol=1e-4)


def test_surprise_with_a_bias_and_no_target():
    import torch
    h, w, b, t = torch.randn(5, 4), torch.randn(9, 4), torch.randn(9), torch.tensor([0, 8, 3, 3, 1])
    assert torch.allclose(negative_log_likelihood(h, w, t, b), torch.nn.functional.cross_entropy(h @ w.T + b, t, reduction="none"), atol=1e-5)


# --- training

def values(model): return {n: p.detach().numpy().copy() for n, p in model.named_parameters() if p.requires_grad}
def same(a, b, atol=0.): return all(np.allclose(a[n], b[n], rtol=0, atol=atol) for n in a)
def run(settings=QUICK, few=None, **more):
    model = tiny()
    return train(answer_loss(model), few or examples(), settings=settings, progress=False, **more), values(model)


def test_it_learns_and_counts():
    few = [TokenRow([5, 6]*n, [5, 6]*n) for n in range(4, 14)]
    result, _ = run(replace(QUICK, epochs=8), few)
    losses = [r["loss"] for r in result.curve[1:]]
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - .05 and result.curve[0]["loss"] is None
    assert result.tokens == 8*sum(map(len, few)) and result.stopped == "end" and [r["step"] for r in result.curve] == list(range(25)) and result.peak_mb > 0


def test_the_room_changes_nothing_but_the_time():
    (a, x), (b, y), (c, z) = run(), run(replace(QUICK, room=1)), run(replace(QUICK, room=10_000))
    assert np.allclose([r["loss"] for r in a.curve[1:]], [r["loss"] for r in b.curve[1:]], atol=1e-4) and same(x, y, 1e-4) and same(x, z, 1e-4)


def test_equal_seeds_give_equal_weights_and_leave_the_random_numbers_alone():
    import torch
    (_, x), (_, y) = run(), run()
    assert same(x, y) and not same(x, run(replace(QUICK, seed=1))[1])
    loss, before = answer_loss(tiny()), torch.get_rng_state()
    train(loss, examples(), settings=QUICK, progress=False)
    assert torch.equal(before, torch.get_rng_state())


def test_one_step_is_adamw_on_the_mean_over_targets():
    import torch
    few, model = examples(4), tiny()
    learn = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learn, lr=.02, weight_decay=.1)
    (sum(plainly(model, few))/sum(e.targets for e in few)).backward()
    torch.nn.utils.clip_grad_norm_(learn, .5); optimizer.step()
    _, got = run(TrainSettings(learning_rate=.02, weight_decay=.1, warmup=0., epochs=1, batch=4, clip=.5), few)
    assert same(got, values(model), 1e-5)


def test_the_best_weights_are_kept_and_patience_ends():
    few, other = examples(), examples(6, seed=9)
    seen = []
    result, kept = run(replace(QUICK, learning_rate=.3, epochs=30, look_every=2, patience=3), few, validation=other, log=seen.append)
    looks = {r["step"]: r["validation"] for r in result.curve if r["validation"] is not None}
    assert result.stopped == "patience" and result.step == min(looks, key=looks.get) and len(result.curve) < 91 and seen == result.curve
    model = tiny()
    for n, p in model.named_parameters():
        if n in kept: p.data = __import__("torch").tensor(kept[n])
    again = mean_loss(model, other).sum(0)
    assert abs(again[0]/again[1] - looks[result.step]) < 1e-5


def test_a_rate_that_rises_and_falls():
    rates = [rate(i, 40, .1) for i in range(40)]
    assert rates[:4] == [.25, .5, .75, 1.] and rates[4] == 1. and rates[-1] > 0 and all(a >= b for a, b in zip(rates[4:], rates[5:]))
    assert rate(0, 1, .1) == 1. and rate(0, 10, 0.) == 1. and rate(9, 10, 1.) == 1.


def test_a_loss_that_is_no_number_puts_the_best_back():
    import torch
    model, few = tiny(), examples()
    loss, calls = answer_loss(model), []
    class Breaks(torch.nn.Module):
        packs = True
        def __init__(self): super().__init__(); self.loss = loss
        def forward(self, *rows):
            calls.append(torch.is_grad_enabled())
            total, n = self.loss(*rows)
            return total*(torch.nan if sum(calls) > 9 else 1), n
    first = values(model)
    with pytest.raises(NotFinite, match="step 5 .*step 4.*smaller learning rate"): train(Breaks(), few, few[:3], replace(QUICK, room=1, batch=2, look_every=2), progress=False)
    kept = values(model)
    assert all(np.isfinite(v).all() for v in kept.values()) and not same(first, kept)


def test_what_cannot_be_trained_is_refused():
    import torch
    with pytest.raises(ValueError, match="no examples"): train(answer_loss(tiny()), [], progress=False)
    with pytest.raises(ValueError, match="every weight of the model is frozen"): train(answer_loss(tiny().requires_grad_(False)), examples(), progress=False)
    with pytest.raises(ValueError, match="float32"): train(answer_loss(tiny().to(torch.bfloat16)), examples(), progress=False)
    for bad in ({"epochs": 0}, {"batch": 0}, {"room": 0}, {"patience": 0}, {"look_every": 0}, {"learning_rate": 0}, {"warmup": 1.5}, {"clip": 0}, {"weight_decay": -1}, {"learning_rate": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(bad))): TrainSettings(**bad)


# --- checkpoints

def test_a_finished_training_is_not_repeated_and_another_is_refused(tmp_path):
    few, other = examples(), examples(4, seed=9)
    (a, x) = run(few=few, validation=other, folder=tmp_path)
    (b, y) = run(few=few, validation=other, folder=tmp_path)
    assert same(x, y) and a.curve == b.curve and b.resumed == a.curve[-1]["step"] and a.step == b.step
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith(".lock")] == ["checkpoint.pt"]
    with pytest.raises(ValueError, match="another training"): run(replace(QUICK, seed=1), few, validation=other, folder=tmp_path)
    with pytest.raises(ValueError, match="another training"): run(few=few[1:], validation=other, folder=tmp_path)
    assert run(replace(QUICK, seed=1), few, validation=other, folder=tmp_path, resume=False)[0].resumed == 0


class Kept:
    "A checkpoint that lies in memory."
    def __init__(self): self.content = None
    def read(self): return self.content
    def write(self, content): self.content = content


def test_checkpoints_are_kept_where_the_caller_wants(tmp_path):
    kept = Kept()
    for make in (lambda: CheckpointFile(tmp_path/"there"), lambda: kept): check_checkpoint(make)
    class Interrupted(Exception): pass
    def stop(row):
        if row["step"] == 6: raise Interrupted
    kept, (whole, x) = Kept(), run()
    with pytest.raises(Interrupted): run(folder=kept, log=stop)
    again, y = run(folder=kept)
    assert again.resumed == 4 and same(x, y) and [r["loss"] for r in again.curve] == [r["loss"] for r in whole.curve]


def test_a_broken_checkpoint_says_so(tmp_path):
    run(folder=tmp_path)
    (tmp_path/"checkpoint.pt").write_bytes((tmp_path/"checkpoint.pt").read_bytes()[:300])
    with pytest.raises(ValueError, match="can't be read.*resume=False"): run(folder=tmp_path)


SCRIPT = """
import json, os, sys
sys.path.insert(0, {tests!r})
from test_training import *
folder, die_at, out, few = sys.argv[1] or None, int(sys.argv[2]), sys.argv[3], examples(11)
def log(row):
    if row["step"] == die_at: os._exit(9)
model = tiny()
result = train(answer_loss(model), few, examples(5, seed=9), QUICK, folder=folder, progress=False, log=log)
if int(os.environ.get("RANK", 0)) == 0:
    np.savez(out, **values(model))
    print(json.dumps({{"curve": result.curve, "resumed": result.resumed, "step": result.step}}))
"""


def script(tmp_path, folder, die_at, out, processes=1):
    (tmp_path/"run.py").write_text(SCRIPT.format(tests=str(ROOT/"tests")))
    command = [sys.executable] + (["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)] if processes > 1 else [])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    return subprocess.run([*command, tmp_path/"run.py", folder, str(die_at), out], capture_output=True, text=True, timeout=600, env=env)


@pytest.fixture(scope="module")
def whole():
    "A training from its beginning to its end: its curve and weights."
    import torch
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try: return run(few=examples(11), validation=examples(5, seed=9))
    finally: torch.set_num_threads(threads)


def test_a_killed_training_ends_with_the_weights_of_one_that_was_not(tmp_path, whole):
    killed = script(tmp_path, tmp_path/"c", 7, tmp_path/"x.npz")
    assert killed.returncode == 9 and not (tmp_path/"x.npz").exists()
    again, weights = run(few=examples(11), validation=examples(5, seed=9), folder=tmp_path/"c")
    told = lambda r: [(x["step"], x["tokens"]) for x in r.curve]
    assert again.resumed == 4 and told(again) == told(whole[0]) and again.step == whole[0].step
    assert same(weights, whole[1], 1e-6)


def test_two_processes_give_the_curve_of_one(tmp_path, whole):
    two = script(tmp_path, tmp_path/"c", -1, tmp_path/"two.npz", processes=2)
    assert two.returncode == 0, two.stderr
    a, b = json.loads(two.stdout.splitlines()[-1])["curve"], whole[0].curve
    assert [r["tokens"] for r in a] == [r["tokens"] for r in b] and len(a) == len(b) == 10
    assert np.allclose([r["loss"] for r in a[1:]], [r["loss"] for r in b[1:]], atol=1e-4)
    assert np.allclose(*([r["validation"] for r in c if r["validation"] is not None] for c in (a, b)), atol=1e-4)
    assert same(dict(np.load(tmp_path/"two.npz")), whole[1], 1e-3)
