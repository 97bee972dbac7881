"""The corpus: readers, loaders, builder. Every kind of bad input has its test; real collections are read where MEMKIT_DATA has them."""
import bz2, csv, gzip, io, json, lzma, pickle, random, subprocess, sys, tarfile, warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from memkit.files import public_data
from memkit.records import Document
from memkit.hybrid import corpus as C
from memkit.hybrid import corpus as R
from memkit.hybrid import corpus as S
from memkit.hybrid.corpus import CorpusError, RecordPlace, Problem

HERE = Path(__file__).parent/"fixtures/corpus"
PAGE = (HERE/"medquad/7_OWN_QA/0000001.xml").read_text(encoding="utf-8")
EXAM = json.loads((HERE/"medmcqa.jsonl").read_text(encoding="utf-8").splitlines()[0])
fuzz = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def put(tmp_path):
    def write(name, content):
        path = tmp_path/name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path
    return write


def skipping(load, *args, **kw):
    "What a loader gives with on_error='skip', and its warnings."
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        return load(*args, on_error="skip", **kw), [str(w.message) for w in warned if w.category is UserWarning]


def pack(folder, mode="w:gz"):
    "A folder as the bytes of a tar archive, members by name."
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for p in sorted(folder.rglob("*.xml")): tar.add(p, arcname=f"MedQuAD/{p.relative_to(folder).as_posix()}")
    return out.getvalue()


# --- the loaders on small files of our own words

def test_medquad_fields():
    loaded = S.load_medquad(HERE/"medquad")
    assert [d.id for d in loaded] == ["medquad:7_OWN_QA/0000001-1", "medquad:7_OWN_QA/0000001-3", "medquad:7_OWN_QA/0000001_2/0000001-1"]
    assert loaded.empty == 1 and not loaded.problems and len(loaded.places) == 3
    d = loaded.documents[0]
    assert d.text == "Rest the ankle, cool it & raise it.\nA firm bandage helps."
    assert (d.title, d.category, d.source) == ("Sprained ankle: treatment", "treatment", "OWN")
    assert d.meta == {"url": "https://example.org/sprain", "question": "What are the treatments for Sprained ankle ?", "focus": "Sprained ankle", "synonyms": ["Twisted ankle"]}
    assert d.meta["question"] not in d.text
    assert loaded.places[0].line == 10 and loaded.places[0].file.endswith("0000001.xml")


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_medquad_archive_equals_folder(put, mode):
    archive = put("medquad.tar", pack(HERE/"medquad", mode))
    assert S.load_medquad(archive).documents == S.load_medquad(HERE/"medquad").documents


def test_medquad_one_file_has_the_same_ids():
    one = S.load_medquad(HERE/"medquad/7_OWN_QA/0000001.xml")
    assert [d.id for d in one] == [d.id for d in S.load_medquad(HERE/"medquad")][:2]


def test_medquad_page_without_focus(put):
    d = S.load_medquad(put("1_X_QA/0000001.xml", PAGE.replace("Sprained ankle</Focus>", "</Focus>"))).documents[0]
    assert d.title == d.meta["question"]


def test_medmcqa_both_forms():
    a, b = S.load_medmcqa(HERE/"medmcqa.jsonl")
    assert a.text == "Question: Which of these raises body temperature?\nAnswer: Thyroxine\nExplanation: It speeds up metabolism."
    assert b.text == "Question: Which of these is a mineral?\nAnswer: Iron"
    assert (b.title, b.category, b.source, a.title) == ("Minerals", "Biochemistry", "MedMCQA", "Physiology")
    c, d = S.load_medmcqa(HERE/"instructions.jsonl")
    assert (c.text, d.text) == ("Question: What does insulin lower?\nAnswer: Blood sugar", "Question: Which organ makes bile?\nAnswer: Liver")
    assert (c.id, d.id) == ("medmcqa:instructions:1", "medmcqa:instructions:2")


def test_medmcqa_hub_counts_from_zero(put):
    path = put("hub.jsonl", json.dumps({**EXAM, "cop": 0}))
    assert "Answer: Thyroxine" in S.load_medmcqa(path, first=0).documents[0].text
    with pytest.raises(CorpusError, match=r"line 1: .*cop is 0, not 1\.\.4.*first=0"): S.load_medmcqa(path)


@pytest.mark.parametrize("change", [{"cop": None}, {"cop": -1}, {"cop": 5}, {"cop": "1"}, {"question": None}, {"opa": 3}, {"exp": ["no"]}, {"instances": 7}])
def test_medmcqa_wrong_fields(put, change):
    path = put("exam.jsonl", json.dumps({**EXAM, **change}) + "\n" + json.dumps(EXAM))
    with pytest.raises(CorpusError, match="exam.jsonl, line 1: "): S.load_medmcqa(path)
    loaded, warned = skipping(S.load_medmcqa, path)
    assert len(loaded) == 1 and loaded.problems[0].line == 1 and len(warned) == 1


def test_medmcqa_folder(put):
    put("m/a.jsonl", json.dumps(EXAM)); put("m/b.jsonl", json.dumps({**EXAM, "id": "b"}))
    folder = put("m/c.jsonl", "x".encode("utf-16")).parent
    loaded, _ = skipping(S.load_medmcqa, folder)
    assert [d.id for d in loaded] == ["medmcqa:own-1", "medmcqa:b"] and loaded.problems[0].file.endswith("c.jsonl")


def test_one_broken_file_of_a_folder_costs_only_itself(put):
    put("m/a.jsonl", "x".encode("utf-16")); put("m/b.jsonl", "")
    loaded, _ = skipping(S.load_medmcqa, put("m/c.jsonl", json.dumps(EXAM)).parent)
    assert len(loaded) == 1 and [Path(p.file).name for p in loaded.problems] == ["a.jsonl", "b.jsonl"]


def test_bioasq_answers():
    loaded = S.load_bioasq(HERE/"bioasq.json")
    assert {d.id: d.text for d in loaded} == {
        "bioasq:own1": "Answer: iron; copper\nBlood needs iron, and a little copper to use it.", "bioasq:own2": "Answer: yes\nThe liver makes bile.",
        "bioasq:own3": "Answer: pancreas; the pancreas", "bioasq:own4": "It clears the airways."}
    assert loaded.empty == 1 and loaded.documents[0].category == "list" and loaded.places[1].file.endswith("bioasq.json:2")


@pytest.mark.parametrize("change", [{"type": None}, {"body": None}, {"exact_answer": 7}, {"exact_answer": [[["deep"]]]}, {"exact_answer": [[]]}, {"ideal_answer": [7]}, {"body": "\ud83d"}, {"documents": [float("nan")]}])
def test_bioasq_wrong_fields(put, change):
    good = {"id": "a", "type": "yesno", "body": "Is it so?", "exact_answer": "yes"}
    path = put("b.json", json.dumps({"questions": [{**good, **change}, {**good, "id": "b"}]}, indent=1))
    with pytest.raises(CorpusError, match="b.json:1: "): S.load_bioasq(path)
    loaded, _ = skipping(S.load_bioasq, path)
    assert [d.id for d in loaded] == ["bioasq:b"]


def test_symptoms():
    loaded = S.load_symptoms(HERE/"symptoms.csv")
    assert [d.text for d in loaded] == ["swollen ankle, pain on walking", "rest, cool it", "My ankle hurts, and it is blue.", "swollen ankle, pain on walking"]
    assert {d.title for d in loaded} == {"Sprain"} and len({d.id for d in loaded}) == 4
    assert C.build_corpus(loaded).counts == {"symptoms": C.Count(3, 1)}


def test_own_knowledge_as_it_travels():
    own = C.load_own()
    assert len(own) >= 300 and not own.problems
    assert all(d.source and d.title and d.category and d.meta["topic"] for d in own)


# --- files of one's own, and the hub

def test_load_file_kinds_agree(put):
    rows = [{"no": "1", "body": "Rest it.", "head": "Sprain"}, {"no": "2", "body": "Drink, \"a lot\"\nof water.", "head": "Fever"}]
    def table(delimiter):
        out = io.StringIO(); w = csv.DictWriter(out, list(rows[0]), delimiter=delimiter); w.writeheader(); w.writerows(rows); return out.getvalue()
    paths = [put("a.jsonl", "\n".join(map(json.dumps, rows))), put("a.json", json.dumps(rows, indent=2)), put("a.csv", table(",")), put("a.tsv", table("\t"))]
    loaded = [C.load_file(p, text="body", title="head", id="no", name="mine").documents for p in paths]
    assert all(d == loaded[0] for d in loaded) and [d.text for d in loaded[0]] == ["Rest it.", 'Drink, "a lot"\nof water.']
    assert loaded[0][0].source == "mine"


def test_load_file_functions_ids_and_meta(put):
    path = put("f.jsonl", '{"q": "Why?", "a": "So.", "n": 7, "tags": ["x"]}\n')
    d = C.load_file(path, text=lambda r: f"{r['q']} {r['a']}", id="n", meta=["tags"]).documents[0]
    assert (d.id, d.text, d.meta) == ("7", "Why? So.", {"tags": ["x"]})
    assert C.load_file(path, text="a").documents[0].id == "f:1"
    with pytest.raises(CorpusError, match="line 1: KeyError: 'z'"): C.load_file(path, text=lambda r: r["z"])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1", "cp1252"])
def test_encodings(put, encoding):
    for name, content in (("e.jsonl", '{"text": "naïve café"}\n{"text": "fièvre"}\n'), ("e.csv", "text\nnaïve café\nfièvre\n"), ("e.json", '[{"text": "naïve café"},\n{"text": "fièvre"}]')):
        loaded = C.load_file(put(name, content.encode(encoding)), encoding="utf-8" if encoding == "utf-8-sig" else encoding)
        assert [d.text for d in loaded] == ["naïve café", "fièvre"]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path/"cache")
    datasets.disable_progress_bars()


def test_hub_local_json_and_folder(hub, put):
    path = put("set/train.jsonl", "".join(json.dumps({"q": f"q{n}", "a": f"answer {n}", "n": n}) + "\n" for n in range(3)))
    one = S.load_hub("json", data_files=str(path), text="a", title="q", id="n", meta=["q"])
    two = S.load_hub(str(path.parent), text="a", title="q", id="n", meta=["q"], source=lambda r: "json")
    assert [d.text for d in one] == ["answer 0", "answer 1", "answer 2"] and one.documents == two.documents


def test_hub_wrong_column_empty_text_and_no_file(hub, put):
    path = str(put("t.jsonl", '{"a": "x"}\n{"a": null}\n{"a": "y\\u0000"}\n'))
    with pytest.raises(CorpusError, match="line 1: no field 'b'; there are a"): S.load_hub("json", data_files=path, text="b")
    with pytest.raises(CorpusError, match="line 2: 'a' is empty"): S.load_hub("json", data_files=path, text="a")
    loaded, warned = skipping(S.load_hub, "json", data_files=path, text="a")
    assert len(loaded) == 1 and [p.line for p in loaded.problems] == [2, 3] and "left out 2 of 3" in warned[0]


def test_imports_stay_light():
    code = "import sys, memkit.hybrid.corpus, memkit.hybrid.corpus\nprint([m for m in ('datasets', 'torch', 'pandas', 'sqlalchemy', 'matplotlib', 'tqdm') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


# --- broken bytes

BAD = [  # name, content, line, what the reason says
    ("a.jsonl", b"", 0, "no records"), ("a.csv", b"", 0, "no records"), ("a.csv", b"text\n", 0, "no records"), ("a.json", b"[]", 0, "no records"), ("a.json", b"{}", 0, "JSON list is expected"),
    ("a.jsonl", b'{"text": "ok"}\n{"text": "cut', 2, "isn't JSON"), ("a.jsonl", b'\n\n[1]\n', 3, "got list"), ("a.jsonl", b'{"text": 7}\n', 1, "must be a string, got int"),
    ("a.jsonl", b'{"body": "x"}\n', 1, "no field 'text'; there are body"), ("a.jsonl", b'{"text": null}\n', 1, "is empty"), ("a.jsonl", b'{"text": " \\n "}\n', 1, "is empty"),
    ("a.jsonl", b'{"text": "a\\u0000b"}\n', 1, "NUL"), ("a.jsonl", b'{"text": "a\\ud83d"}\n', 1, "surrogate"), ("a.jsonl", b'{"text": "caf\xe9"}\n', 1, "byte 0xe9 isn't utf-8"),
    ("a.jsonl", b"[" * 100_000, 1, "isn't JSON"), ("a.json", b'[{"text": "a"},\n {"text": }]', 2, "isn't JSON"), ("a.json", b'[{"text": "a"},\n]', 2, "isn't JSON"),
    ("a.json", b'[{"text": "a"}\n{"text": "b"}]', 2, "Expecting ','"), ("a.json", b'[{"text": "a"}]\nmore', 2, "isn't JSON"), ("a.json", b'{"text": "a"}', 0, "list is expected"),
    ("a.json", b'[\n{"text": "caf\xe9"}]', 0, "byte 0xe9"), ("a.json", b"[" + b"["*100_000, 0, "isn't JSON"),
    ("a.csv", b"text,b,b\n1,2,3\n", 1, "a column twice: 'b'"), ("a.csv", b"text\n\"never closed\n", 2, "isn't CSV"), ("a.csv", b'text,b\none\n', 2, "1 fields for 2"), ("a.csv", b"text,b\n1,2,3\n", 2, "3 fields for 2"), ("a.csv", b"body\nx\n", 1, "no column 'text'; its columns are body"),
    ("a.csv", b"text\ncaf\xe9\n", 2, "byte 0xe9"), ("a.csv", b"text\na\0b\n", 2, "NUL"), ("a.csv", b"text\n" + b"x"*200_000 + b"\n", 2, "131072"),
]

@pytest.mark.parametrize("name,content,line,reason", BAD, ids=[f"{n}-{r}" for n, _, _, r in BAD])
def test_bad_files_name_file_and_line(put, name, content, line, reason):
    path = put(name, content)
    with pytest.raises(CorpusError) as e: C.load_file(path)
    place = f"{path}, line {line}: " if line else f"{path}: "
    assert str(e.value).startswith(place) and reason in str(e.value) and "on_error='skip'" in str(e.value) and "\n" not in str(e.value)
    loaded, warned = skipping(C.load_file, path)
    first = loaded.problems[0]
    assert (first.file, first.line) == (str(path), line) and reason in first.reason and len(warned) == 1


def test_a_name_that_is_none_is_answered_with_those_there_are():
    with pytest.raises(ValueError, match="no source 'x'; there are knowledge, medquad"): C.find_data("x")
    with pytest.raises(FileNotFoundError, match="no corpus 'medqad'; there are public, medmcqa, medquad, bioasq, symptoms, own, or a file"): C.read_corpus("medqad")


def test_skip_keeps_the_rest_in_order(put):
    path = put("a.jsonl", b'{"text": "one"}\nnonsense\n{"text": "two"}\n{"text": "caf\xe9"}\n{"text": "three"}\n')
    loaded, warned = skipping(C.load_file, path)
    assert [d.text for d in loaded] == ["one", "two", "three"] and [p.line for p in loaded.problems] == [2, 4]
    assert warned == [f"a: left out 2 of 5 records; the first: {loaded.problems[0]} (all are in .problems)"]


def test_csv_line_numbers_count_line_breaks_in_fields(put):
    loaded, _ = skipping(C.load_file, put("a.csv", 'text,b\n"two\nlines",x\n\nshort\nlast,y\n'))
    assert [p.line for p in loaded.places] == [2, 6] and [p.line for p in loaded.problems] == [5]


@pytest.mark.parametrize("content,reason", [('{"questions": 7}', "no list 'questions'"), ('{"a": {"questions": []}}', "no list 'questions'"), ('{"questions": []}', "no records"),
                                            ('{"questions": [], }', "isn't JSON"), ("nothing", "isn't JSON")])
def test_bioasq_outer_object(put, content, reason):
    loaded, _ = skipping(S.load_bioasq, put("b.json", content))
    assert not len(loaded) and any(reason in p.reason for p in loaded.problems)


def test_missing_paths_and_folders(put, tmp_path, monkeypatch):
    monkeypatch.delenv("MEMKIT_DATA", raising=False)
    for load, word in ((S.load_medquad, "abachaa/MedQuAD"), (S.load_medmcqa, "medmcqa/medmcqa"), (S.load_bioasq, "participants-area.bioasq.org"), (S.load_symptoms, "symp_pre.csv")):
        for args in ((), (tmp_path/"nowhere",)):
            with pytest.raises(FileNotFoundError, match=word) as e: load(*args)
            assert "\n" not in str(e.value) and ("nowhere" if args else "MEMKIT_DATA") in str(e.value)
    with pytest.raises(FileNotFoundError, match="nowhere.csv"): C.load_file(tmp_path/"nowhere.csv")
    (tmp_path/"folder.csv").mkdir()
    for load in (C.load_file, S.load_symptoms):
        with pytest.raises(CorpusError, match="is a folder"): load(tmp_path/"folder.csv")
    for load in (S.load_medquad, S.load_medmcqa, S.load_bioasq):
        with pytest.raises(CorpusError, match="holds no"): load(tmp_path/"folder.csv")
    with pytest.raises(CorpusError, match="must end in"): C.load_file(put("a.docx", "x"))
    with pytest.raises(ValueError, match="no encoding 'utf8000'"): C.load_file(put("a.csv", "x"), encoding="utf8000")
    with pytest.raises(ValueError, match="on_error must be"): C.load_file(put("a.csv", "x"), on_error="ignore")


# --- XML

def bomb(levels=10):
    "Each entity holds the one before ten times."
    return '<!DOCTYPE d [<!ENTITY a "ha">' + "".join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};"*10}">' for i in range(levels)) + f"]><Document>&{chr(97 + levels)};</Document>"

XML_BAD = [(bomb(), 1, "document type"), ('<!DOCTYPE d SYSTEM "file:///etc/hostname"><Document/>', 1, "document type"), ('<!DOCTYPE d [<!ENTITY % x SYSTEM "http://localhost/x"> %x;]><Document/>', 1, "document type"),
           ("<Document>\n<Focus></Document>", 2, "mismatched tag"), ("<Document>\n", 2, "no element found"), ("", 1, "no element found"), ("plain", 1, "syntax error"), ("<Document>&undefined;</Document>", 1, "undefined entity"),
           ("<Document>\n\0</Document>", 2, "invalid token"), (b"<Document>\ncaf\xe9</Document>", 2, "invalid token"), ('<?xml version="1.0" encoding="shift_jis"?><Document/>', 1, "encoding"),
           ('<?xml version="1.0" encoding="klingon"?><Document/>', 1, "encoding"), ("<html/>", 1, "its root is <html>"), (PAGE.replace(' qid="0000001-1"', ""), 10, "without a question id"),
           (PAGE.replace('<Question qid="0000001-1"', '<Other qid="0000001-1"').replace("Sprained ankle ?</Question>", "</Other>", 1), 10, "without a question id"),
           (PAGE.replace("0000001-3", "0000001-1"), PAGE[:PAGE.index('pid="3"')].count("\n") + 1, "was taken by")]

@pytest.mark.parametrize("content,line,reason", XML_BAD, ids=[f"{n}-{r}" for n, (_, _, r) in enumerate(XML_BAD)])
def test_bad_xml_names_file_and_line_and_costs_only_itself(put, content, line, reason):
    bad = put("1_A_QA/0000001.xml", content)
    put("1_A_QA/0000002.xml", PAGE.replace("0000001", "0000002"))
    with pytest.raises(CorpusError) as e: S.load_medquad(bad.parent)
    assert str(e.value).startswith(f"{bad}, line {line}: ") and reason in str(e.value)
    loaded, warned = skipping(S.load_medquad, bad.parent)
    assert loaded.problems[0].line == line and loaded.documents[-1].id == "medquad:1_A_QA/0000002-3" and len(warned) == 1


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1", "windows-1252"])
def test_xml_says_its_own_encoding(put, encoding):
    content = PAGE.replace("–", "-").replace('encoding="UTF-8"', f'encoding="{encoding}"').encode(encoding)
    assert "café" in S.load_medquad(put("1_A_QA/0000001.xml", content)).documents[1].text


def test_xml_deep_nesting_is_survived():
    code = "from memkit.hybrid.corpus import parse_xml\nr, _ = parse_xml(b'<a>'*200_000 + b'x' + b'</a>'*200_000)\nprint(sum(1 for _ in r.iter()))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert out.stdout.strip() == "200000", out.stderr


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, bytes])
def test_truncated_archive_loses_nothing_silently(put, tmp_path, compress):
    for n in range(40): put(f"all/{n}_A_QA/0000001.xml", PAGE.replace("weeks", f"weeks {random.Random(n).random()}"))
    whole = compress(pack(tmp_path/"all", "w"))
    full = S.load_medquad(put("whole.tar", whole)).documents
    for share in (0, .01, .99, *(random.Random(7).random() for _ in range(25))):
        loaded, _ = skipping(S.load_medquad, put("cut.tar", whole[:int(len(whole)*share)]))
        assert loaded.problems or loaded.documents == full, share
        assert loaded.documents == full[:len(loaded)]
        if loaded.documents != full:
            with pytest.raises(CorpusError, match="cut.tar"): S.load_medquad(tmp_path/"cut.tar")


@pytest.mark.parametrize("content", [b"PK\x03\x04 a zip", b"nothing of the kind", b"\x1f\x8b broken gzip", b""])
def test_not_an_archive(put, content):
    with pytest.raises(CorpusError, match="m.tar.gz: ") as e: S.load_medquad(put("m.tar.gz", content))
    assert "\n" not in str(e.value)


def test_archive_without_xml_and_with_odd_members(put, tmp_path):
    put("a/readme.txt", "x")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        tar.add(tmp_path/"a/readme.txt", arcname="readme.txt")
        link = tarfile.TarInfo("x/link.xml"); link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"; tar.addfile(link)
    with pytest.raises(CorpusError, match="holds no"): S.load_medquad(put("m.tar.gz", out.getvalue()))


# --- putting it together

def docs(*texts, title=""): return [Document(id=f"{title}{n}", text=t, title=title) for n, t in enumerate(texts)]


def test_build_order_dedupe_and_counts():
    a, b = docs("Rest.", "rest. ", "Drink."), docs("REST.", "Ｄrink.", "Sleep.", title="t")
    corpus = C.build_corpus(a, b)
    assert [d.text for d in corpus] == ["Rest.", "Drink.", "REST.", "Ｄrink.", "Sleep."] and corpus.counts == {"documents": C.Count(5, 1)}
    assert C.build_corpus(a, b) == C.build_corpus(iter(a), iter(b))
    assert len(C.build_corpus()) == 0 and len(C.build_corpus([])) == 0 and len(C.build_corpus(docs("One."))) == 1


def test_build_refuses_a_taken_id_with_both_places(put):
    first, second = (C.load_file(put(n, '{"id": "x", "text": "%s"}' % n), id="id") for n in ("a.jsonl", "b.jsonl"))
    with pytest.raises(CorpusError, match=r"b\.jsonl, line 1: the id 'x' was taken by .*a\.jsonl, line 1"): C.build_corpus(first, second)
    corpus, warned = skipping(C.build_corpus, first, second)
    assert [d.text for d in corpus] == ["a.jsonl"] and len(corpus.problems) == 1 and len(warned) == 1
    assert corpus.counts == {"a": C.Count(1), "b": C.Count(0, 0, 1)}


def test_duplicate_ids_in_one_file(put):
    path = put("a.jsonl", '{"id": 1, "text": "a"}\n{"id": 2, "text": "b"}\n{"id": "1", "text": "c"}\n')
    with pytest.raises(CorpusError, match=r"line 3: the id '1' was taken by .*line 1"): C.load_file(path, id="id")
    loaded, _ = skipping(C.load_file, path, id="id")
    assert [d.text for d in loaded] == ["a", "b"]


@pytest.mark.parametrize("value", [None, True, 1.5, "", [], {}])
def test_ids_of_a_wrong_kind(put, value):
    with pytest.raises(CorpusError, match="line 1: .*id"): C.load_file(put("a.jsonl", json.dumps({"id": value, "text": "x"})), id="id")


def test_problems_of_loading_and_of_building_add_up(put):
    loaded, _ = skipping(C.load_file, put("a.jsonl", '{"text": "x"}\n{"text": 1}\n{"text": "x"}\n'))
    assert C.build_corpus(loaded).counts == {"a": C.Count(1, 1, 1)} and C.build_corpus(loaded).problems == loaded.problems


def test_build_refuses_what_is_no_source():
    for wrong in ("text", Path("a"), docs("x")[0], {"a": 1}, ["text"]):
        with pytest.raises(TypeError, match="source 1"): C.build_corpus(wrong)


def test_records_are_frozen_and_travel():
    corpus = C.build_corpus(docs("a", "b"))
    with pytest.raises(AttributeError): corpus.documents = ()
    assert pickle.loads(pickle.dumps(corpus)) == corpus
    assert str(pickle.loads(pickle.dumps(CorpusError("x", 3)))) == "line 3: x"
    assert str(Problem("f", 3, "r")) == "f, line 3: r" and str(RecordPlace("f")) == "f"


def test_data_help(tmp_path, monkeypatch, put):
    monkeypatch.setenv("MEMKIT_DATA", str(tmp_path))
    assert f"{tmp_path/'medquad.tar.gz'} isn't there" in C.data_help("medquad")
    put("medquad.tar.gz", "x")
    assert f"here: {tmp_path/'medquad.tar.gz'}" in C.data_help("medquad")
    for s in C.SOURCES: assert all(part in C.data_help() for part in (s.what, s.licence, s.get))
    monkeypatch.delenv("MEMKIT_DATA")
    assert "set MEMKIT_DATA" in C.data_help("bioasq")
    with pytest.raises(ValueError, match="no source 'x'; there are knowledge"): C.data_help("x")


def test_public_sources_are_found_by_themselves(tmp_path, monkeypatch, put):
    monkeypatch.setenv("MEMKIT_DATA", str(tmp_path))
    assert [s.name for s in S.load_public()] == ["memkit"]
    put("medquad.tar.gz", pack(HERE/"medquad")); put("medmcqa/a.jsonl", (HERE/"medmcqa.jsonl").read_bytes())
    put("bioasq/a.json", (HERE/"bioasq.json").read_bytes()); put("symptoms/symp_pre.csv", (HERE/"symptoms.csv").read_bytes())
    assert [(s.name, len(s)) for s in S.load_public()] == [("MedMCQA", 2), ("MedQuAD", 3), ("BioASQ", 4), ("symptoms", 4), ("memkit", len(C.load_own()))]


# --- properties

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(lambda t: t.strip())

@fuzz
@given(texts=st.lists(words, min_size=1, max_size=8))
def test_any_text_survives_every_format(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("any")
    out = io.StringIO(); w = csv.writer(out); w.writerow(["text"]); w.writerows([t] for t in texts)
    for name, content in (("a.jsonl", "\n".join(json.dumps({"text": t}, ensure_ascii=False) for t in texts)), ("a.json", json.dumps([{"text": t} for t in texts], ensure_ascii=False, indent=1)), ("a.csv", out.getvalue())):
        (folder/name).write_bytes(content.encode())
        assert [d.text for d in C.load_file(folder/name)] == [C.tidy_text(t) for t in texts]


@fuzz
@given(content=st.binary(max_size=300), name=st.sampled_from(["a.jsonl", "a.json", "a.csv", "a.tsv", "q.json", "m.jsonl", "s.csv", "1.xml", "m.tar", "m.tar.gz"]))
def test_random_bytes_never_crash_a_loader(tmp_path_factory, content, name):
    path = tmp_path_factory.mktemp("random")/name
    path.write_bytes(content)
    load = {"q.json": S.load_bioasq, "m.jsonl": S.load_medmcqa, "s.csv": S.load_symptoms, "1.xml": S.load_medquad, "m.tar": S.load_medquad, "m.tar.gz": S.load_medquad}.get(name, C.load_file)
    loaded, _ = skipping(load, path)
    assert loaded.problems or loaded.documents or loaded.empty
    assert all(p.file.startswith(str(path)) and p.line >= 0 and p.reason for p in loaded.problems)


@fuzz
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(["medquad/7_OWN_QA/0000001.xml", "medmcqa.jsonl", "instructions.jsonl", "bioasq.json", "symptoms.csv"]), edits=st.integers(1, 4))
def test_damaged_files_never_crash_a_loader(tmp_path_factory, seed, kind, edits):
    r, data = random.Random(seed), bytearray((HERE/kind).read_bytes())
    for _ in range(edits):
        at = r.randrange(len(data))
        if r.random() < .5: data[at] = r.randrange(256)
        else: del data[at:at + r.randrange(1, 20)]
    path = tmp_path_factory.mktemp("damaged")/Path(kind).name
    path.write_bytes(bytes(data))
    load = {"0000001.xml": S.load_medquad, "bioasq.json": S.load_bioasq, "symptoms.csv": S.load_symptoms}.get(path.name, S.load_medmcqa)
    loaded, _ = skipping(load, path)
    assert len(loaded) == len(loaded.places) == len({d.id for d in loaded})


json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(), v, max_size=3), max_leaves=8)

@fuzz
@given(items=st.lists(json_values, max_size=6), indent=st.sampled_from([None, 1]), cut=st.floats(0, 1))
def test_walking_a_list_agrees_with_json(tmp_path_factory, items, indent, cut):
    path, text = tmp_path_factory.mktemp("walk")/"a.json", json.dumps({"before": 1, "questions": items, "after": [2]}, indent=indent)
    path.write_text(text)
    found = list(R.read_json_list(path, "questions"))
    assert [x[1] if isinstance(x, tuple) else "refused" for x in found] == [i if isinstance(i, dict) else "refused" for i in items]
    if not any("questions" in str(i) for i in items):
        path.write_text(text[:int(len(text)*cut)])
        try: part = list(R.read_json_list(path, "questions"))
        except CorpusError: part = []
        good = [x[1] for x in part if isinstance(x, tuple)]
        assert good == [i for i in items if isinstance(i, dict)][:len(good)]
        if len(text[:int(len(text)*cut)]) < len(text): assert not part or isinstance(part[-1], Problem)


@fuzz
@given(texts=st.lists(words, max_size=12))
def test_building_is_stable_and_complete(texts):
    documents = [Document(id=str(n), text=t) for n, t in enumerate(texts)]
    once = C.build_corpus(documents)
    assert C.build_corpus(once.documents).documents == once.documents
    assert [d for d in documents if d in once.documents] == list(once.documents)
    assert {C.normal(d.text) for d in once} == {C.normal(t) for t in texts}
    assert len(once) + (once.counts["documents"].duplicates) == len(texts)


# --- the public collections

def need(name):
    path = public_data(name)
    if not path: pytest.skip(f"{name} isn't below MEMKIT_DATA; data_help() says how to get it")
    return path


@pytest.fixture(scope="module")
def medquad():
    need("medquad.tar.gz")
    return S.load_medquad()


def test_medquad_in_full(medquad):
    assert (len(medquad), medquad.empty, len(medquad) + medquad.empty) == (16_407, 31_034, 47_441) and not medquad.problems
    assert len({d.source for d in medquad}) == 9 and len({d.category for d in medquad}) == 16
    assert all(d.title and d.category and d.source and d.meta["url"] and d.meta["question"] for d in medquad)
    assert sum(d.id.count("/") > 1 for d in medquad) == 35   # their question ids name another file


def test_medquad_answers_that_repeat(medquad):
    assert C.build_corpus(medquad).counts["MedQuAD"].duplicates == 48
    texts = [d.text for d in medquad]
    assert max(texts.count(t) for t in {t for t in texts if t.startswith("This condition is inherited")}) == 348


def test_medmcqa_in_full():
    half = S.load_medmcqa(need("medmcqa/dev_half.jsonl"))
    assert (len(half), half.empty, sum("\nExplanation: " in d.text for d in half)) == (2_061, 0, 1_084)
    sample = S.load_medmcqa(need("medmcqa/train_1000.jsonl"))
    assert len(sample) == 1_000 and all(d.text.startswith("Question: ") and "\nAnswer: " in d.text for d in sample)


def test_symptoms_in_full():
    symptoms = S.load_symptoms(need("symptoms/symp_pre.csv"))
    assert len(symptoms) == 6_202 and C.build_corpus(symptoms).counts["symptoms"] == C.Count(1_539, 4_663)
    assert not any("_" in d.text for d in symptoms)


def test_everything_public_makes_one_corpus(medquad):
    corpus = C.build_corpus(S.load_medmcqa(need("medmcqa")), medquad, S.load_symptoms(need("symptoms/symp_pre.csv")))
    assert len(corpus) == sum(c.documents for c in corpus.counts.values()) == len({d.id for d in corpus}) and not corpus.problems
