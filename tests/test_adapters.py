"Users' weights: packed so that damage shows, kept and forgotten with their owner, and served to many users from one base."
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from memkit.train.adapters import AdapterError, AdapterStore, LoraShape, base_digest, lora_model, lora_weights, pack, random_layers, set_lora_weights, unpack
from memkit.models.lm import check_language_model
from memkit.models.local import LocalLM
from memkit.train.adapters import PersonalLM, Rows, fitted, stacked
from memkit.records import Message
from memkit.store.schema import SCHEMA, StoreError, adapters as adapters_table, meta, tables
from memkit.store.store import ADAPTER_BYTES, MemoryStore

torch = pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[1]
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
SHAPE = LoraShape(rank=4, alpha=16, layers=(0, 2))
BASE = "0"*32


def tiny(seed=0, kind="llama"):
    from transformers import LlamaConfig, LlamaForCausalLM, PhiConfig, PhiForCausalLM, Qwen2Config, Qwen2ForCausalLM
    torch.manual_seed(seed)
    make, config = {"llama": (LlamaForCausalLM, LlamaConfig), "phi": (PhiForCausalLM, PhiConfig), "qwen": (Qwen2ForCausalLM, Qwen2Config)}[kind]
    return make(config(hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, vocab_size=128, eos_token_id=1, bos_token_id=None,
                       max_position_embeddings=512, initializer_range=.3)).eval()


@pytest.fixture(scope="session")
def letters():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    t = Tokenizer(models.WordLevel({c: i for i, c in enumerate(["<pad>", "<end>", "<unk>", *(chr(i) for i in range(32, 127))])}, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", eos_token="<end>", unk_token="<unk>")


def made_up(shape=SHAPE, seed=0, kind="llama"):
    rng, model = np.random.default_rng(seed), lora_model(tiny(kind=kind), shape)
    return {n: rng.normal(size=w.shape).astype(np.float32)/3 for n, w in lora_weights(model).items()}


def small(seed=0, n=300):
    "Weights that need no model."
    rng = np.random.default_rng(seed)
    return {f"base_model.model.layers.0.q_proj.lora_{h}.weight": rng.normal(size=(4, n) if h == "A" else (n, 4)).astype(np.float32) for h in "AB"}


def card(base=BASE, shape=SHAPE, **more): return {"base": base, "shape": shape, **more}


def same(a, b): return a.keys() == b.keys() and all(np.array_equal(np.asarray(a[k], np.float16), np.asarray(b[k], np.float16)) for k in a)


@pytest.fixture(params=["file", "memory"])
def store(request, tmp_path):
    with MemoryStore(tmp_path/"store.db" if request.param == "file" else ":memory:") as s: yield s


def python(code: str, *args) -> subprocess.Popen:
    head = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nimport os, time\nimport numpy as np\nfrom memkit.store.store import MemoryStore\nfrom memkit.train.adapters import AdapterStore\n"
    return subprocess.Popen([sys.executable, "-c", head + code, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def on_disk(path: Path, piece: bytes) -> int:
    "By another process: closing the file here would take SQLite's locks away."
    code = "import sys; print(sum(open(p, 'rb').read().count(bytes.fromhex(sys.argv[2])) for p in (sys.argv[1], sys.argv[1] + '-wal') if __import__('os').path.exists(p)))"
    return int(subprocess.check_output([sys.executable, "-S", "-c", code, path, piece.hex()]))


# --- shapes

@given(n=st.integers(1, 60), share=st.floats(.01, 1), seed=st.integers(0, 99))
def test_random_layers(n, share, seed):
    layers = random_layers(n, share, seed)
    assert layers == random_layers(n, share, seed) == tuple(sorted(set(layers))) and all(0 <= i < n for i in layers) and len(layers) == max(1, round(share*n))


@pytest.mark.parametrize("wrong", [dict(rank=0), dict(rank=300), dict(alpha=0), dict(targets=()), dict(targets="q_proj"), dict(layers=())])
def test_shapes_that_cannot_be(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))): LoraShape(**wrong)


def test_layers_are_put_in_order(): assert LoraShape(layers=[3, 1, 3]).layers == (1, 3)


@pytest.mark.parametrize("kind", ["llama", "phi", "qwen"])
def test_a_fresh_adapter_changes_no_bit_and_leaves_none_behind(kind):
    model, ids = tiny(kind=kind), torch.arange(2, 14)[None]
    with torch.inference_mode():
        before = model(ids).logits
        peft = lora_model(model, SHAPE)
        assert torch.equal(peft(ids).logits, before)
        assert [n for n, p in peft.named_parameters() if p.requires_grad] == [n for n, _ in peft.named_parameters() if ".lora_" in n]
        set_lora_weights(peft, made_up(kind=kind))
        assert not torch.equal(peft(ids).logits, before) and same(lora_weights(peft), made_up(kind=kind))
        with pytest.raises(AdapterError, match="another shape"): set_lora_weights(peft, made_up(LoraShape(rank=2, layers=(0, 2)), kind=kind))
        with pytest.raises(ValueError, match="unload"): lora_model(model, SHAPE)
        assert torch.equal(peft.unload()(ids).logits, before)
        lora_model(model, SHAPE)


def test_equal_seeds_give_equal_adapters_and_the_callers_random_numbers_go_on():
    torch.manual_seed(5); expected = torch.rand(3)
    first, second = (lora_weights(lora_model(tiny(), LoraShape(rank=4, seed=s))) for s in (1, 1))
    other = lora_weights(lora_model(tiny(), LoraShape(rank=4, seed=2)))
    assert same(first, second) and not same(first, other)
    model = tiny()
    torch.manual_seed(5); lora_model(model, SHAPE)
    assert torch.equal(torch.rand(3), expected)


# --- the base

def test_the_digest_of_a_base():
    base = tiny()
    d = base_digest(base)
    assert d == base_digest(tiny()) == base_digest(tiny().to(torch.bfloat16)) == base_digest(lora_model(tiny(), SHAPE)) and len(d) == 32
    assert len({d, base_digest(tiny(1)), base_digest(tiny(kind="qwen")), base_digest(tiny(kind="phi"))}) == 4
    with torch.no_grad(): base.model.layers[3].self_attn.q_proj.weight[0, 0] += .5
    assert base_digest(base) != d


def injected(model, layer=1):
    "A module in the place of another, with weights of its own and a switch, as memkit.malp.injection has it."
    class Bottleneck(torch.nn.Module):
        def __init__(self, mlp):
            super().__init__()
            self.mlp, self.on = mlp, True
            self.down, self.up = (torch.nn.Parameter(torch.randn(size, generator=torch.Generator().manual_seed(9))/3) for size in ((4, 32), (32, 4)))
        def forward(self, x):
            h = self.mlp(x)
            return h + torch.relu(h @ self.down.T) @ self.up.T if self.on else h
    model.model.layers[layer].mlp = part = Bottleneck(model.model.layers[layer].mlp)
    return model.eval(), part


def test_what_was_injected_belongs_to_the_base_while_it_is_on():
    plain = base_digest(tiny())
    model, part = injected(tiny())
    on = base_digest(model)
    for switched, expected in ((False, plain), (True, on), (False, plain)):
        part.on = switched
        assert base_digest(model) == expected
    model.model.layers[1].mlp = part.mlp
    assert base_digest(model) == plain != on
    with torch.no_grad(): part.up += 1
    model.model.layers[1].mlp, part.on = part, True
    assert base_digest(model) not in (plain, on)


# --- bytes

@quick
@given(seed=st.integers(0, 99), n=st.integers(1, 50), note=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_what_is_packed_comes_back(seed, n, note):
    weights = small(seed, n)
    back, told = unpack(content := pack(weights, card(note=note)))
    assert same(back, weights) and all(w.dtype == np.float16 for w in back.values())
    assert told["note"] == note and told["shape"] == asdict(SHAPE) | {"targets": list(SHAPE.targets), "layers": list(SHAPE.layers)} and told["base"] == BASE
    assert pack(back, told) == content


CONTENT = pack(small(n=40), card(note="x"))

@settings(max_examples=300, deadline=None)
@given(at=st.integers(0, len(CONTENT) - 1), bit=st.integers(0, 7))
def test_any_flipped_bit_is_noticed_or_means_nothing(at, bit):
    "The header ends in spaces that mean nothing; a tab in their place does neither."
    broken = bytearray(CONTENT); broken[at] ^= 1 << bit
    try: weights, told = unpack(bytes(broken))
    except AdapterError: return
    assert same(weights, unpack(CONTENT)[0]) and told == unpack(CONTENT)[1]


@settings(max_examples=200, deadline=None)
@given(content=st.one_of(st.binary(max_size=300), st.integers(0, len(CONTENT) - 1).map(lambda n: CONTENT[:n]), st.binary(min_size=1, max_size=9).map(lambda b: CONTENT + b)))
def test_what_never_was_an_adapter(content):
    with pytest.raises(AdapterError): unpack(content)


def test_foreign_safetensors_are_refused():
    from safetensors.numpy import save
    for foreign in (save(small()), save(small(), {"memkit": "{}"}), save(small(), {"memkit": "[1]"}), save(small(), {"memkit": "no"}), save({}, {"memkit": "{}"})):
        with pytest.raises(AdapterError): unpack(foreign)


def test_weights_that_cannot_be_packed():
    good = small()
    a, b = good
    for bad, told in (({**good, a: good[a]*np.nan}, "aren't finite"), ({**good, b: good[b] + 1e6}, "beyond 65,504"), ({a: good[a]}, "two matrices"), ({}, "two matrices"),
                      ({a: good[a], b: good[b][:, :3]}, "that fit together"), ({a: good[a][:3], b: good[b][:, :3]}, "rank 4"), ({**good, "x": good[a]}, "two matrices")):
        with pytest.raises(AdapterError, match=told): pack(bad, card())
    for wrong in ({}, {"base": BASE}, {"base": 5, "shape": SHAPE}, {"base": BASE, "shape": {"rank": 4}}, {"base": BASE, "shape": "rank 4"}):
        with pytest.raises(AdapterError, match="card"): pack(good, wrong)


# --- in the store

def test_saved_replaced_and_nobody_elses(store):
    adapters = AdapterStore(store)
    assert adapters.card("u") is None and adapters.mark("u") == (0, 0)
    with pytest.raises(LookupError, match="no adapter"): adapters.load("u", BASE)
    saved = adapters.save("u", small(1), card(rounds=3), mark=adapters.mark("u"))
    assert adapters.card("u") == saved and saved.card["rounds"] == 3 and saved.size == len(pack(small(1), card(rounds=3))) and "digest" not in saved.card
    adapters.save("u", small(2), card(), mark=adapters.mark("u"))
    weights, told = adapters.load("u", BASE)
    assert same(weights, small(2)) and told["digest"] == adapters.card("u").digest != saved.digest
    assert adapters.card("v") is None
    with pytest.raises(AdapterError, match="0{12}….* here is 1{12}…"): adapters.load("u", "1"*32, "here")
    assert [e.kind for e in store.events("u")] == ["adapter"]*2 and all(set(e.data) == {"saved"} for e in store.events("u"))


def test_too_large_and_empty(store):
    for content in (b"", bytes(ADAPTER_BYTES + 1)):
        with pytest.raises(ValueError, match="smaller rank, fewer layers or fewer targets"): store.put_adapter("u", content, BASE, "d")
    with pytest.raises(ValueError, match="smaller rank"): AdapterStore(store).save("u", small(n=130_000), card())
    store.put_adapter("u", bytes(range(256))*(ADAPTER_BYTES//256), BASE, "d")
    assert store.adapter("u").size == ADAPTER_BYTES//256*256 and store.adapter("u", content=False).content is None and store.events("v") == []


def test_forgetting_takes_it_along(store):
    adapters = AdapterStore(store)
    for u in "uv":
        a, b = store.add(u, "a"), store.add(u, "b")
        adapters.save(u, small(), card())
    receipt = store.forget("u", [a.id - 2])
    assert receipt.removed["adapters"] == 1 and receipt.erased and "1 adapter" in str(receipt) and adapters.card("u") is None and [m.text for m in store.list("u")] == ["b"]
    assert same(adapters.load("v", BASE)[0], small())
    adapters.save("u", small(), card())
    assert store.forget("u").removed["adapters"] == 1 and adapters.card("u") is None and store.events("u") == []
    assert store.forget("v", []).removed == {} and adapters.card("v")
    with pytest.raises(LookupError): store.forget("v", [a.id, 999])
    assert adapters.card("v")


def test_what_was_forgotten_during_training_is_not_saved(store):
    adapters = AdapterStore(store)
    a, b = store.add("u", "a"), store.add("u", "b")
    mark = adapters.mark("u")
    store.add("u", "c"); store.count("u", b.id, recalls=1); adapters.save("u", small(), card(), mark=mark)       # anything but forgetting is fine
    store.forget("u", [a.id])
    with pytest.raises(ValueError, match="has forgotten something since"): adapters.save("u", small(), card(), mark=mark)
    assert adapters.card("u") is None
    mark = adapters.mark("u")
    adapters.save("u", small(), card(), mark=mark)
    store.forget("u"); store.add("u", "somebody of that name comes again")
    with pytest.raises(ValueError, match="has forgotten something since"): adapters.save("u", small(), card(), mark=mark)
    assert adapters.card("u") is None


def test_inside_a_transaction(store):
    adapters = AdapterStore(store)
    with pytest.raises(RuntimeError, match="stop"), store.transaction("u"):
        adapters.save("u", small(), card())
        assert adapters.card("u")
        with pytest.raises(StoreError, match="stands alone"): adapters.drop("u")
        raise RuntimeError("stop")
    assert adapters.card("u") is None
    with store.transaction("u"): adapters.save("u", small(), card())
    assert adapters.card("u")


def test_its_bytes_leave_the_disk(tmp_path):
    "The replaced one's too; a piece of every page is looked for."
    path = tmp_path/"s.db"
    with MemoryStore(path) as store:
        adapters = AdapterStore(store)
        first, second = (pack(small(i, 40_000), card()) for i in (1, 2))
        store.add("v", "stays"); m = store.add("u", "goes")
        adapters.save("u", small(1, 40_000), card())
        assert on_disk(path, first[200_000:200_040]) == 1
        adapters.save("u", small(2, 40_000), card())
        assert on_disk(path, second[200_000:200_040]) == 1
        assert store.forget("u", [m.id]).erased
        for at in range(1000, 600_000, 60_000): assert on_disk(path, first[at:at + 40]) == on_disk(path, second[at:at + 40]) == 0
        assert [m.text for m in store.list("v")] == ["stays"]


def test_a_remnant_of_weights_is_found(tmp_path, monkeypatch):
    import memkit.store.erase as erase_module
    path, rewritten = tmp_path/"s.db", []
    with MemoryStore(path) as store:
        content = pack(small(1, 40_000), card())
        AdapterStore(store).save("u", small(1, 40_000), card())
        with sqlite3.connect(path) as conn:                                     # a program that doesn't overwrite
            conn.execute("PRAGMA secure_delete=OFF")
            conn.execute("INSERT INTO adapters (owner, kind, base, digest, card, at, bytes) SELECT owner, 'copy', base, digest, card, at, bytes FROM adapters")
            conn.execute("DELETE FROM adapters WHERE kind = 'lora'")
        conn.close()
        real = erase_module.rewrite
        monkeypatch.setattr(erase_module, "rewrite", lambda engine: (rewritten.append(1), real(engine)))
        assert store.drop_adapter("u").erased and rewritten and on_disk(path, content[300_000:300_040]) == 0


def test_two_users_may_have_the_same_weights(tmp_path, monkeypatch):
    import memkit.store.erase as erase_module
    with MemoryStore(tmp_path/"s.db") as store:
        for u in "uv": AdapterStore(store).save(u, small(), card())
        monkeypatch.setattr(erase_module, "rewrite", lambda engine: pytest.fail("rewrote the file for nothing"))
        assert store.forget("u").erased and AdapterStore(store).load("v", BASE)


# --- stores of an older memkit

def older(path: Path, schema="1"):
    "A store as it was before there were adapters."
    with MemoryStore(path) as s:
        s.add("u", "kept", [1, 0]); s.add_turn("u", "s", "q", "a")
    with sqlite3.connect(path) as conn:
        conn.execute("DROP TABLE adapters"); conn.execute("UPDATE meta SET value = ? WHERE key = 'schema'", [schema])
    conn.close()


def test_an_older_store_is_brought_up_when_it_is_opened(tmp_path):
    older(path := tmp_path/"s.db")
    for _ in range(2):
        with MemoryStore(path) as s:
            assert [m.text for m in s.list("u")] == ["kept"] and len(s.turns("u")) == 1 and s.search("u", [1, 0])[0].item.text == "kept"
            AdapterStore(s).save("u", small(), card())
            with s._db.engine.connect() as conn: assert conn.execute(meta.select().where(meta.c.key == "schema")).one().value == str(SCHEMA)
    with MemoryStore(path) as s:
        assert s.forget("u").removed["adapters"] == 1
        with s._db.engine.connect() as conn: assert conn.execute(adapters_table.select()).all() == []


def test_a_store_with_the_tables_of_schema_1_alone(tmp_path):
    "Made from the definitions, not by taking one away."
    from sqlalchemy import create_engine
    engine = create_engine(f"sqlite:///{tmp_path}/s.db")
    with engine.begin() as conn:
        tables.create_all(conn, tables=[t for t in tables.sorted_tables if t.name != "adapters"])
        conn.execute(meta.insert(), [{"key": "schema", "value": "1"}, {"key": "secret", "value": "ab"*32}])
    engine.dispose()
    with MemoryStore(tmp_path/"s.db") as s:
        assert s.add("u", "x") and AdapterStore(s).save("u", small(), card()) and s.forget("u").removed["adapters"] == 1


def test_four_bring_it_up_at_once(tmp_path):
    older(path := tmp_path/"s.db")
    code = "while not os.path.exists(sys.argv[2]): pass\nwith MemoryStore(sys.argv[1]) as s: s.add('u', sys.argv[3]); print(s.adapter('u'))"
    all_ = [python(code, path, tmp_path/"go", i) for i in range(4)]
    time.sleep(1); (tmp_path/"go").touch()
    for p in all_: assert p.communicate(timeout=600)[0].strip() == "None" and p.returncode == 0
    with MemoryStore(path) as s: assert len(s.list("u")) == 5


# --- several at once

def test_killed_while_saving(place):
    "The old one stays, or the new one is there whole."
    code = """
s = AdapterStore(MemoryStore(sys.argv[1])); n = 0
while True:
    rng = np.random.default_rng(n)
    s.save("u", {f"base_model.model.q.lora_{h}.weight": rng.normal(size=(4, 30_000) if h == "A" else (30_000, 4)) for h in "AB"}, {"base": "b", "shape": {"rank": 4, "alpha": 8}, "n": n})
    print(n, flush=True); n += 1"""
    for pause in (1, 3):
        p = python(code, place)
        for _ in range(pause): last = p.stdout.readline()
        p.kill(); rest = p.stdout.readlines(); p.wait(); p.stdout.close(); p.stderr.close()
        acknowledged = int(([r for r in rest if r.endswith("\n")] or [last])[-1])
        with MemoryStore(place) as s:
            weights, told = AdapterStore(s).load("u", "b")
            assert told["n"] in (acknowledged, acknowledged + 1)
            assert np.array_equal(weights["base_model.model.q.lora_A.weight"], np.random.default_rng(told["n"]).normal(size=(4, 30_000)).astype(np.float16))


def test_two_save_at_once(tmp_path):
    with MemoryStore(tmp_path/"s.db") as store:
        adapters, stop, errors = AdapterStore(store), threading.Event(), []
        def save(which):
            with MemoryStore(tmp_path/"s.db") as own:
                for _ in range(15): AdapterStore(own).save("u", small(which, 20_000), card(n=which))
        def read():
            while not stop.is_set():
                try:
                    weights, told = adapters.load("u", BASE)
                    if not same(weights, small(told["n"], 20_000)): errors.append(told)
                except LookupError: pass
        threads = [threading.Thread(target=save, args=[i]) for i in (1, 2)]; reader = threading.Thread(target=read)
        for t in (*threads, reader): t.start()
        for t in threads: t.join()
        stop.set(); reader.join()
        assert not errors and adapters.card("u").card["n"] in (1, 2)
        with store._db.engine.connect() as conn: assert len(conn.execute(adapters_table.select()).all()) == 1


# --- answering many users

SHAPES = [LoraShape(rank=4, alpha=16, layers=(0, 2)), LoraShape(rank=2, alpha=8, layers=(1, 2, 3)), LoraShape(rank=8, alpha=8, targets=("k_proj", "v_proj")), LoraShape(rank=1, alpha=4, layers=(3,), targets=("q_proj", "up_proj"))]
TEXTS = ["What helps?", "Hello, how are you today, my dear?", "My knee.", "Why?", "Can I take it with milk, or not at all?", "Ok"]


@pytest.fixture
def service(letters):
    lm = LocalLM.wrap(tiny(), letters, "tiny", context=300)
    adapters, digest = AdapterStore(MemoryStore(":memory:")), base_digest(lm.load()[0])
    for i, shape in enumerate(SHAPES): adapters.save(f"u{i}", made_up(shape, i), card(digest, shape, model="tiny"))
    return PersonalLM(lm, adapters)


def ask(texts): return [[Message(role="user", text=t)] for t in texts]


@pytest.mark.parametrize("kind", ["llama", "phi", "qwen"])
def test_a_mixed_batch_is_what_peft_computes(kind):
    "With peft's own mixed batch as the oracle, and a model of its own for each row."
    base, names = tiny(kind=kind), {"llama": 0, "phi": 1, "qwen": 2}
    shapes = [LoraShape(rank=4, alpha=16, layers=(0, 2)), LoraShape(rank=2, alpha=8, layers=(1, 2, 3), targets=("q_proj", "k_proj"))]
    weights = [made_up(s, i, kind) for i, s in enumerate(shapes)]
    loaded = [fitted(base, w, card(shape=asdict(s), digest=str(i))) for i, (w, s) in enumerate(zip(weights, shapes))]
    ids, who = torch.randint(2, 97, (5, 9), generator=torch.Generator().manual_seed(names[kind])), [1, None, 0, 0, 1]
    with torch.inference_mode():
        plain = base(input_ids=ids).logits
        mixed = Rows(base, lambda: [None if i is None else loaded[i] for i in who])(input_ids=ids).logits
        assert torch.equal(mixed[1], plain[1]) and torch.equal(base(input_ids=ids).logits, plain) and (mixed[2] - plain[2]).abs().max() > .1
        for row, i in enumerate(who):
            if i is None: continue
            set_lora_weights(model := lora_model(tiny(kind=kind), shapes[i]).eval(), weights[i])
            assert torch.allclose(mixed[row], model(input_ids=ids[row][None]).logits[0], atol=2e-4)
            assert torch.allclose(mixed[row], Rows(base, lambda: [loaded[i]])(input_ids=ids[row][None]).logits[0], atol=2e-4)
        from peft import LoraConfig
        one = [LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=16, target_modules=["q_proj", "v_proj"], layers_to_transform=[0, 2]) for _ in range(2)]
        pair = [made_up(shapes[0], s, kind) for s in (5, 6)]
        peft = lora_model(tiny(kind=kind), shapes[0])
        peft.add_adapter("b", one[0])
        for adapter, w in zip(("default", "b"), pair):
            for n, p in peft.named_parameters():
                if f".{adapter}.weight" in n: p.copy_(torch.from_numpy(w[n.replace(f".{adapter}.weight", ".weight")]))
        ours = [fitted(base, w, card(shape=asdict(shapes[0]), digest=str(i))) for i, w in enumerate(pair)]
        theirs = peft.eval()(input_ids=ids, adapter_names=["default", "b", "__base__", "b", "default"]).logits
        assert torch.allclose(Rows(base, lambda: [ours[0], ours[1], None, ours[1], ours[0]])(input_ids=ids).logits, theirs, atol=2e-4)


def test_stacking_keeps_every_part():
    loaded = [fitted(tiny(), made_up(s, i), card(shape=asdict(s), digest=str(i))) for i, s in enumerate(SHAPES)]
    rows = [loaded[0], None, loaded[2], loaded[3], loaded[0]]
    parts = stacked(rows)
    for name, (a, b) in parts.items():
        for i, row in enumerate(rows):
            own = row.parts.get(name) if row else None
            expected = own[0] @ own[1] if own else torch.zeros(a.shape[1], b.shape[2])
            assert torch.equal(a[i] @ b[i], expected) or torch.allclose(a[i] @ b[i], expected, atol=1e-6)
    assert set(parts) == set().union(*(r.parts for r in rows if r)) and stacked([None, None]) == {} and {len(a) for a, _ in stacked([loaded[0]]*3).values()} == {1}


@settings(parent=quick, max_examples=12)
@given(st.lists(st.tuples(st.sampled_from(["u0", "u1", "u2", "u3", None, "nobody"]), st.sampled_from(TEXTS)), min_size=1, max_size=6), st.integers(1, 4))
def test_mixed_rows_say_what_each_user_alone_would_hear(letters, rows, batch_size):
    base = getattr(test_mixed_rows_say_what_each_user_alone_would_hear, "kept", None)
    if base is None:
        lm = LocalLM.wrap(tiny(), letters, "tiny", context=300)
        adapters = AdapterStore(MemoryStore(":memory:"))
        for i, shape in enumerate(SHAPES): adapters.save(f"u{i}", made_up(shape, i), card(base_digest(lm.load()[0]), shape))
        base = test_mixed_rows_say_what_each_user_alone_would_hear.kept = lm, adapters, {}
    lm, adapters, alone = base
    users, texts = zip(*rows)
    for u, t in rows:
        if (u, t) not in alone: alone[u, t] = PersonalLM(lm, adapters).for_user(u).generate(ask([t]), max_tokens=8)[0]
    mixed = PersonalLM(lm, adapters, batch_size=batch_size).generate_for(users, ask(texts), max_tokens=8)
    assert [(r.text, r.answer_tokens, r.finished, r.prompt_tokens) for r in mixed] == [(alone[k].text, alone[k].answer_tokens, alone[k].finished, alone[k].prompt_tokens) for k in rows]


def test_rows_that_end_early_leave_with_their_adapter(service):
    "A stop string ends some rows sooner."
    users = ["u0", "u1", None, "u2", "u3", "u0"]
    whole = service.generate_for(users, ask(TEXTS), max_tokens=30)
    stop = sorted({c for r in whole for c in r.text[3:12]} & set("abcdefghijklmnopqrstuvwxyzABCDEFGH"))[:3]
    cut = service.generate_for(users, ask(TEXTS), max_tokens=30, stop=stop)
    alone = [service.for_user(u).generate([a], max_tokens=30, stop=stop)[0] for u, a in zip(users, ask(TEXTS))]
    assert [r.text for r in cut] == [r.text for r in alone] and len({r.answer_tokens for r in cut}) > 1


def test_drawn_answers_are_those_of_one_by_one(service):
    users = ["u0", "u1", None]
    mixed = service.generate_for(users, ask(TEXTS[:3]), max_tokens=15, temperature=.8, seed=3, top_p=.9)
    assert [r.text for r in mixed] == [service.for_user(u).generate([a], max_tokens=15, temperature=.8, seed=3, top_p=.9)[0].text for u, a in zip(users, ask(TEXTS))]


def test_without_an_adapter_it_is_the_base_bit_by_bit(service):
    lm = service.lm
    for user in (None, "nobody"):
        bare = service.for_user(user)
        assert bare.perplexity(TEXTS[:3]) == lm.perplexity(TEXTS[:3]) and np.array_equal(bare.score_labels(TEXTS, ["A", "Bc"]), lm.score_labels(TEXTS, ["A", "Bc"]))
        assert [r.text for r in bare.generate(ask(TEXTS), max_tokens=9)] == [r.text for r in lm.generate(ask(TEXTS), max_tokens=9)]
        assert (bare.name, bare.context, bare.count_tokens("abc"), bare.render(ask(["x"])[0])) == (lm.name, lm.context, lm.count_tokens("abc"), lm.render(ask(["x"])[0]))
    assert service.generate_for([], [], max_tokens=3) == []


def test_one_users_model_keeps_the_contract_and_its_verbs_agree(service, letters):
    check_language_model(lambda: service.for_user("u1"))
    mine = service.for_user("u0")
    model = lora_model(tiny(), SHAPES[0])
    set_lora_weights(model, {n: w.astype(np.float16) for n, w in made_up(SHAPES[0], 0).items()})
    witness = LocalLM.wrap(model, letters, "peft", context=300)
    assert np.allclose(mine.perplexity(TEXTS[:3]), witness.perplexity(TEXTS[:3]), rtol=1e-4) and np.allclose(mine.score_labels(TEXTS, ["A", "Bc"]), witness.score_labels(TEXTS, ["A", "Bc"]), atol=1e-3)
    assert "".join(mine.stream(ask(TEXTS)[1], max_tokens=20)) == mine.generate(ask(TEXTS), max_tokens=20)[1].text == witness.generate(ask(TEXTS), max_tokens=20)[1].text
    assert mine.generate_from(ask(TEXTS)[0], ["a b c"], max_tokens=5).text == witness.generate_from(ask(TEXTS)[0], ["a b c"], max_tokens=5).text


def test_the_base_is_never_changed(service):
    model, ids = service.lm.load()[0], torch.arange(2, 20)[None]
    with torch.inference_mode(): before = model(ids).logits
    names = [n for n, _ in model.named_modules()]
    service.generate_for(["u0", "u1"], ask(TEXTS[:2]), max_tokens=4)
    with pytest.raises(ValueError): service.for_user("u0").load()[0](no_such_argument=1)      # an error in between leaves no hook
    with torch.inference_mode(): assert torch.equal(model(ids).logits, before)
    assert [n for n, _ in model.named_modules()] == names and not any(m._forward_hooks for m in model.modules())


def test_an_injected_module_and_a_users_adapter_compose(letters):
    adapters = AdapterStore(MemoryStore(":memory:"))
    lm = LocalLM.wrap(injected(tiny())[0], letters, "injected", context=300)
    adapters.save("u", made_up(), card(base_digest(injected(tiny())[0])))
    set_lora_weights(peft := lora_model(injected(tiny())[0], SHAPE), {n: w.astype(np.float16) for n, w in made_up().items()})
    assert PersonalLM(lm, adapters).for_user("u").perplexity(TEXTS[:2]) == pytest.approx(LocalLM.wrap(peft, letters, "peft", context=300).perplexity(TEXTS[:2]), rel=1e-4)
    with pytest.raises(AdapterError, match="belongs to the base"): PersonalLM(LocalLM.wrap(tiny(), letters, "plain"), adapters).for_user("u")


# --- while it is loaded

def answer(service, user): return service.generate_for([user], ask(TEXTS[:1]), max_tokens=15)[0].text


def test_forgotten_and_replaced_while_loaded(tmp_path, letters):
    "By another connection and by another process."
    lm, digest = LocalLM.wrap(tiny(), letters, "tiny", context=300), base_digest(tiny())
    with MemoryStore(tmp_path/"s.db") as store, MemoryStore(tmp_path/"s.db") as other:
        service, there = PersonalLM(lm, AdapterStore(store)), AdapterStore(other)
        base, user = answer(service, "u"), service.for_user("u")
        m = store.add("u", "x"); there.save("u", made_up(seed=1), card(digest))
        first = answer(service, "u")
        there.save("u", made_up(seed=2), card(digest))
        second = answer(service, "u")
        assert len({base, first, second}) == 3 and user.generate(ask(TEXTS[:1]), max_tokens=15)[0].text == second
        p = python("print(MemoryStore(sys.argv[1]).forget('u', [int(sys.argv[2])]))", tmp_path/"s.db", m.id)
        assert "1 adapter" in p.communicate(timeout=600)[0] and p.returncode == 0
        assert answer(service, "u") == user.generate(ask(TEXTS[:1]), max_tokens=15)[0].text == base


def test_what_has_begun_goes_on_with_what_it_began_with(service):
    whole = service.for_user("u0").generate(ask(TEXTS[:1]), max_tokens=20)[0].text
    pieces = service.for_user("u0").stream(ask(TEXTS)[0], max_tokens=20)
    first = next(pieces)
    service.adapters.drop("u0")
    service.generate_for(["u1", "u2", "u3"], ask(TEXTS[:3]), max_tokens=4)
    assert first + "".join(pieces) == whole != "".join(service.for_user("u0").stream(ask(TEXTS)[0], max_tokens=20))


def test_damage_behind_our_back(service):
    store = service.adapters.store
    for change in ("substr(bytes, 1, 700)", "CAST('no adapter' AS BLOB)", "(SELECT bytes FROM adapters WHERE owner = 2)"):
        with store._db.engine.begin() as conn: conn.exec_driver_sql(f"UPDATE adapters SET bytes = {change} WHERE owner = 1")
        with pytest.raises(AdapterError, match="restore or train it again"): service.for_user("u0")
        with pytest.raises(AdapterError): service.generate_for(["u1", "u0"], ask(TEXTS[:2]), max_tokens=3)
        assert answer(service, "u1")


def test_a_base_that_changes_under_a_loaded_adapter(service):
    answer(service, "u0")
    with torch.no_grad(): service.lm.load()[0].model.layers[0].mlp.up_proj.weight[0, 0] += 1
    with pytest.raises(AdapterError, match="belongs to the base tiny"): service.for_user("u0")


def test_an_adapter_that_does_not_fit_its_own_claim(service):
    digest = base_digest(service.lm.load()[0])
    for weights, told in (({n.replace("layers.0", "layers.9"): w for n, w in made_up().items()}, "is missing"), ({n: (w[:, :16] if ".lora_A." in n else w) for n, w in made_up().items()}, "this model's is")):
        service.adapters.save("odd", weights, card(digest))
        with pytest.raises(AdapterError, match=told): service.for_user("odd")


def test_requests_that_make_no_sense(service):
    for call in (lambda: service.generate_for(["u0"], ask(TEXTS[:2])), lambda: service.generate_for("u", ask(TEXTS[:1])), lambda: service.generate_for(["u0"], ask(TEXTS[:1]), max_tokens=0),
                 lambda: PersonalLM(service.lm, service.adapters, batch_size=0)):
        with pytest.raises(ValueError): call()


def test_threads_share_a_service(service):
    expected = {u: answer(service, u) for u in ("u0", "u1", "u2", "u3", None)}
    tight, wrong = PersonalLM(service.lm, service.adapters), []
    def many(user):
        for _ in range(3):
            if answer(tight, user) != expected[user]: wrong.append(user)
            if service.lm.generate(ask(TEXTS[:1]), max_tokens=15)[0].text != expected[None]: wrong.append("base")
            if "".join(tight.for_user(user).stream(ask(TEXTS)[0], max_tokens=15)) != expected[user]: wrong.append(f"{user} stream")
    threads = [threading.Thread(target=many, args=[u]) for u in expected]
    for t in threads: t.start()
    for t in threads: t.join()
    assert not wrong
