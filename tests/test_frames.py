"Tables of records, and turns as JSON Lines: without loss, and clear about what can't be read."
import json
import warnings
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from memkit.models.lm import ScriptedLM
from memkit.records import Considered, Document, Hit, Memory, Message, Receipt, Section, Turn, Utterance, to_dict
from memkit.store.store import MemoryStore
from memkit.experiments.result import figure, result
from memkit.turn.trace import from_plain, to_plain
from memkit.widgets.draw.frames import COLUMNS, describe_columns, read_turns, to_frame, write_turns

texts, words = st.text(max_size=30), st.text(min_size=1, max_size=12).map(lambda s: s.replace("\0", "") + "x")
plain_texts = texts.map(lambda s: s.replace("\0", ""))
moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.sampled_from([timezone.utc, timezone(timedelta(hours=5, minutes=45))])).map(lambda at: at.replace(fold=0))   # a fold says nothing where the zone is fixed
numbers = st.floats(allow_nan=False)
json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | plain_texts, lambda x: st.lists(x, max_size=3) | st.dictionaries(plain_texts | st.just("$"), x, max_size=3), max_leaves=5)
documents = st.builds(Document, id=words, text=words, title=plain_texts, category=plain_texts, source=plain_texts, meta=st.dictionaries(plain_texts, json_values, max_size=2))
memories = st.builds(Memory, id=st.integers(1, 9), user=words, text=words, kind=words, at=moments, turns=st.lists(words, max_size=2).map(tuple), meta=st.dictionaries(plain_texts, json_values, max_size=2), recalls=st.integers(0, 3))
messages = st.builds(Utterance, turn=words, user=words, role=st.sampled_from(["user", "assistant"]), text=words, at=moments)
hits = st.builds(Hit, item=documents | memories | messages, score=numbers, source=texts, parts=st.dictionaries(texts, numbers, max_size=2))
sections = st.builds(Section, name=texts, tokens=st.integers(0, 99), text=texts, kept=st.booleans(), hit=st.none() | hits)
considered = st.builds(Considered, hit=hits, outcome=texts, shown=st.booleans())
anything = st.recursive(json_values | numbers | moments | considered | st.frozensets(st.integers(), max_size=3), lambda x: st.lists(x, max_size=3) | st.lists(x, max_size=3).map(tuple) | st.dictionaries(texts | st.integers(), x, max_size=3), max_leaves=6)
turns_ = st.builds(Turn, id=texts, user=texts, session=texts, at=moments, text=texts, query=texts, draft=texts, answer=texts, messages=st.lists(st.builds(Message, role=st.sampled_from(["user", "assistant"]), text=words), max_size=2).map(tuple),
                   prompt=texts, sections=st.lists(sections, max_size=2).map(tuple), budget=st.integers(0, 2000), prompt_tokens=st.integers(0, 2000), answer_tokens=st.integers(0, 99), considered=st.lists(considered, max_size=2).map(tuple),
                   fallback=texts, detected=st.dictionaries(texts, anything, max_size=2), seconds=st.dictionaries(texts, numbers, max_size=2), wrote=st.lists(st.integers(1, 99), max_size=2).map(tuple), model=texts, extra=st.dictionaries(texts, anything, max_size=2))
many = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
AT = datetime(2026, 11, 2, 8, tzinfo=timezone.utc)


def a_turn(**more) -> Turn: return Turn(**{"id": "t1", "user": "ann", "session": "s1", "at": AT, "text": "How?", "answer": "So."} | more)


def full_turn() -> Turn:
    doc = Hit(item=Document(id="d", text="Cool it.", title="Burns"), score=.9, source="fused", parts={"bm25 rank": 1.})
    mem = Hit(item=Memory(id=4, user="ann", text="allergic", at=AT), score=.5, source="memory", parts={"cosine": .5})
    far = Hit(item=Memory(id=5, user="ann", text="likes tea", at=AT), score=.1, source="memory", parts={"cosine": .1})
    return a_turn(sections=(Section(name="instructions", tokens=9), Section(name="document", tokens=5, hit=doc), Section(name="memory", tokens=3, hit=mem), Section(name="memory", tokens=7, kept=False, hit=far)), budget=20, prompt_tokens=17,
                  considered=(Considered(hit=mem, outcome="shown", shown=True), Considered(hit=far, outcome="did not fit the budget"), Considered(hit=doc, outcome="shown", shown=True)), seconds={"recall": .25, "total": .5}, wrote=(6,))


# --- JSON Lines

@many
@given(turns=st.lists(turns_, max_size=3))
def test_a_turn_comes_back_as_it_was(tmp_path, turns):
    path = write_turns(tmp_path/"turns.jsonl", turns, overwrite=True)
    again = read_turns(path)
    assert again == turns and to_plain(again) == to_plain(turns), "the same values, of the same types"
    assert len(path.read_bytes().decode().splitlines()) == len(turns), "one line a turn for every reader, whatever is in it"


@many
@given(value=anything)
def test_any_value_comes_back(value):
    again = from_plain(json.loads(json.dumps(to_plain(value), allow_nan=False)))
    assert again == value and to_plain(again) == to_plain(value)


def test_what_json_cannot_say(tmp_path):
    extra = {"nan": float("nan"), "array": np.arange(3, dtype=np.float32), "number": np.float64(.5), "yes": np.bool_(True), "$": 1, "half": "\ud800"}
    got = read_turns(write_turns(tmp_path/"x.jsonl", [a_turn(extra=extra, text="\x85\u2028\u2029\x1c\r\n\"")]))[0]
    assert got.text == "\x85\u2028\u2029\x1c\r\n\"" and np.isnan(got.extra["nan"]) and got.extra["array"].dtype == np.float32 and got.extra["array"].tolist() == [0, 1, 2]
    assert got.extra["yes"] is True and got.extra["number"] == .5 and got.extra["$"] == 1 and got.extra["half"] == "\ud800"


@pytest.mark.parametrize("bad", [object(), lambda: 0, 1j, b"bytes", np.datetime64("2026-11-02"), Receipt, MemoryStore])
def test_what_cannot_be_written_is_refused(tmp_path, bad):
    with pytest.raises(TypeError): write_turns(tmp_path/"x.jsonl", [a_turn(extra={"bad": bad})])
    assert not list(tmp_path.iterdir()), "nothing half written"


def test_a_field_of_another_type_is_refused_when_it_is_written(tmp_path):
    for wrong in (a_turn(budget="many"), a_turn(user=3), a_turn(sections=(Section(name="x", tokens=1.5),))):
        with pytest.raises(TypeError, match="t1"): write_turns(tmp_path/"x.jsonl", [wrong])
    with pytest.raises(TypeError, match="wants Turn records, got dict"): write_turns(tmp_path/"x.jsonl", [to_dict(a_turn())])


def test_nothing_is_overwritten_silently(tmp_path):
    path = write_turns(tmp_path/"x.jsonl", [a_turn()])
    with pytest.raises(FileExistsError, match="choose another name"): write_turns(path, [])
    assert len(read_turns(path)) == 1
    assert read_turns(write_turns(path, [], overwrite=True)) == []


LINE = json.dumps(to_plain(a_turn()))
SECTION = json.dumps(to_plain(Section(name="memory", tokens=1, hit=Hit(item=Memory(id=1, user="ann", text="likes tea", at=AT), score=1., source="memory"))))
def holding(section: str) -> str: return LINE.replace('"sections": {"$": "tuple", "is": []}', f'"sections": {{"$": "tuple", "is": [{section}]}}')

@pytest.mark.parametrize("content, number, told", [
    (LINE + "\n" + LINE[:80], 2, "breaks off"), ("\n\nDear diary\n", 3, "no JSON"), (LINE + "\n[]\n", 2, "turn must be Turn"), ('{"id": "t"}\n', 1, "turn must be Turn"), (json.dumps(to_dict(a_turn())), 1, "turn must be Turn"),
    (SECTION, 1, "turn must be Turn, got Section"), (LINE + "\n3\n", 2, "turn must be Turn, got 3"), (LINE.replace('"user": "ann", ', ""), 1, "'user'"),
    (LINE.replace('"budget": 0', '"budget": "0"') + "\n", 1, "turn.budget must be int"), (LINE.replace('"budget": 0', '"budget": true') + "\n", 1, "turn.budget"), (holding("1"), 1, r"turn.sections\[0\] must be Section"), (holding(SECTION.replace('"tokens": 1', '"tokens": "<b>"')), 1, r"turn.sections\[0\].tokens must be int"),
    (holding(SECTION.replace('"score": 1.0', '"score": true')), 1, r"sections\[0\].hit.score must be float"), (holding(SECTION.replace('"kept": true', '"kept": 1')), 1, r"sections\[0\].kept must be bool"), (LINE.replace('"wrote": {"$": "tuple", "is": []}', '"wrote": {"$": "tuple", "is": ["1"]}'), 1, r"turn.wrote\[0\] must be int"), (LINE.replace('"wrote": {"$": "tuple", "is": []}', '"wrote": []'), 1, "turn.wrote must be tuple"),
    (LINE.replace('"model": ""', '"module": ""'), 1, "'module'"), (LINE.replace("2026-11-02T08:00:00+00:00", "yesterday"), 1, "isoformat"), (LINE.replace("+00:00", ""), 1, "no zone"), ("[" * 100_000, 1, "nested too deeply|no JSON"),
    (LINE.replace('"extra": {}', '"extra": {"x": {"$": "os:system", "is": {"command": "ls"}}}'), 1, "none of memkit's own"), (LINE.replace('"extra": {}', '"extra": {"x": {"$": "MemoryStore", "is": {"target": "x"}}}'), 1, "no frozen record"),
    (LINE.replace('"extra": {}', '"extra": {"x": {"$": "memkit.nowhere:Thing", "is": {}}}'), 1, "none of memkit's own"), (LINE.replace('"extra": {}', '"extra": {"$": "tuple", "is": [1]}'), 1, "holds no turn"),
    (LINE.replace('"extra": {}', '"extra": {"x": {"$": "Message", "is": {"role": 3}}}'), 1, "holds no turn")])
def test_a_line_that_cannot_be_read_is_told(tmp_path, content, number, told):
    (tmp_path/"x.jsonl").write_text(content)
    with pytest.raises(ValueError, match=f"x.jsonl, line {number}: .*({told}).*on_error='skip'"): read_turns(tmp_path/"x.jsonl")
    with pytest.warns(UserWarning, match=f"line {number}"): assert len(read_turns(tmp_path/"x.jsonl", on_error="skip")) == content.count(LINE + "\n")


def test_other_peoples_line_ends_and_marks(tmp_path):
    (tmp_path/"x.jsonl").write_bytes(b"\xef\xbb\xbf" + LINE.encode() + b"\r\n\r\n  \n" + LINE.encode())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_turns(tmp_path/"x.jsonl") == [a_turn(), a_turn()]
    (tmp_path/"x.jsonl").write_bytes("größer".encode("latin-1"))
    with pytest.raises(ValueError, match="line 1: it isn't UTF-8"): read_turns(tmp_path/"x.jsonl")
    with pytest.raises(FileNotFoundError): read_turns(tmp_path/"y.jsonl")
    with pytest.raises(ValueError, match="raise or skip"): read_turns(tmp_path/"x.jsonl", on_error="ignore")


def test_a_turn_of_each_assistant_comes_back(tmp_path):
    from memkit.hybrid import open_chatbot
    from memkit.malp import open_malp
    from memkit.mark import open_mark
    say = ScriptedLM(lambda messages: "I see.")
    docs = [Document(id="burn", title="Burns", text="Cool a burn under running water.")]
    for bot in (open_chatbot(":memory:", docs, say), open_malp(MemoryStore(":memory:"), say), open_mark(MemoryStore(":memory:"), say, documents=docs)):
        turns = [bot.chat("ann", text) for text in ("I am allergic to penicillin.", "What helps against a burn?")]
        again = read_turns(write_turns(tmp_path/f"{type(bot).__name__}.jsonl", turns))
        assert again == turns and bot.explain(again[-1]) == bot.explain(turns[-1])


def recalling_a_message() -> list[Turn]:
    "Three turns of MaLP's: the last one recalls the first message itself, as it was said, and a note."
    from memkit.malp.assistant import MalpSettings
    from memkit.turn.assistants import open_assistant
    with open_assistant("malp", store=":memory:", model=ScriptedLM(lambda messages: "I see."), settings=MalpSettings(rounds=0)) as bot:
        turns = [bot.chat("ann", text) for text in ("Lovely weather by the weir today, a heron stood there.", "I am allergic to penicillin.", "Which bird stood by the weir?")]
    assert {Memory, Utterance} == {type(h.item) for h in turns[-1].recalled}
    return turns


def test_a_turn_that_recalled_a_message_can_be_exported_and_tabulated(tmp_path):
    turns = recalling_a_message()
    assert read_turns(write_turns(tmp_path/"x.jsonl", turns)) == turns
    frames = {name: to_frame(turns, name) for name in ("turns", "sections", "seconds", "candidates")}
    found = frames["candidates"][frames["candidates"]["item"] == "message"]
    assert len(found) and len(frames["turns"]) == 3 and found["rank"].tolist()[0] == 1 and set(found.owner) == {"ann"}
    assert set(found[found.shown].id) <= set(frames["sections"].id) and frames["turns"].memories.tolist()[-1] == len(turns[-1].recalled)
    for things in (list(turns[-1].recalled), list(turns[-1].considered)): assert "message" in set(to_frame(things)["item"])


# --- tables

def test_every_empty_table_has_its_columns_and_types():
    for name, of in COLUMNS.items():
        empty = to_frame([], name)
        assert list(empty.columns) == list(of) and not len(empty) and {c: str(t) for c, t in empty.dtypes.items()} == {c: kind for c, (kind, _) in of.items()}
        assert len(describe_columns(name).splitlines()) == len(of)
    assert list(to_frame([]).columns) == list(COLUMNS["turns"])
    assert to_frame([], "candidates").groupby("id").score.max().empty


def test_the_tables_of_a_turn():
    t = full_turn()
    row = to_frame(t).iloc[0]
    assert (row.documents, row.memories, row.considered, row["cut"], row.wrote, row.seconds, row["at"].isoformat()) == (1, 1, 3, 1, 1, .5, AT.isoformat())
    sections, candidates, steps = (to_frame([t, t], name) for name in ("sections", "candidates", "seconds"))
    assert sections[sections.kept].tokens.sum() == 2*t.prompt_tokens and sections.id.tolist()[:4] == ["", "d", "4", "5"]
    assert candidates.head(3)[["item", "rank", "shown", "part cosine"]].values.tolist()[:2] == [["memory", 1, True, .5], ["memory", 2, False, .1]] and np.isnan(candidates["part cosine"][2]) and candidates["part bm25 rank"][2] == 1
    assert steps.step.tolist() == ["recall"]*2, "the whole turn is no step of it"
    assert to_frame([c.hit for c in t.considered]).shown.isna().all() and to_frame(list(t.considered)).shown.tolist() == [True, False, True]


@many
@given(turns=st.lists(turns_, min_size=1, max_size=3))
def test_every_turn_is_a_row(turns):
    for name in ("turns", "sections", "seconds", "candidates"):
        frame = to_frame(turns, name)
        assert {c: str(frame[c].dtype) for c in COLUMNS[name]} == {c: kind for c, (kind, _) in COLUMNS[name].items()}
    assert len(to_frame(turns)) == len(turns) and len(to_frame(turns, "candidates")) == sum(len(t.considered) for t in turns)


def test_what_a_store_keeps():
    with MemoryStore(":memory:") as store:
        turn = store.add_turn("ann", "s-" + "0"*32, "How?", "So.", at=AT)
        m = store.add("ann", "allergic", at=AT, turns=[turn])
        store.count("ann", m.id, recalls=2, at=AT)
        store.log("ann", [{"kind": "odd", "data": {"list": [1, 2]}}], AT)
        events = to_frame(store.events("ann"))
        assert events["data recalls"].dropna().tolist() == [2] and events["data list"].dropna().tolist() == ["[1, 2]"] and events.memory.isna().sum() == 2
        assert to_frame(store.list("ann")).recalls.tolist() == [2] and to_frame(m).turns.tolist() == [1] and to_frame(store.turns("ann")).question.tolist() == ["How?"]


def test_figures_of_an_experiment():
    rows = [figure("Table 3", "default", "Recall@5", [1., 0., 1.], paper=.9), figure("Table 3", "chance", "Recall@5", None, control=True)]
    for given_ in (rows, result("lesson", {}, rows), rows[0]):
        frame = to_frame(given_)
        assert frame.ours[0] == rows[0]["ours"] and frame[["low", "high"]].values[0].tolist() == rows[0]["ci"] and list(frame.columns) == list(COLUMNS["figures"])
    assert to_frame(rows).ours.isna().tolist() == [False, True] and to_frame(rows).control.tolist() == [False, True]


@pytest.mark.parametrize("unknown", ["turns", b"x", 3, None, {"a": 1}, [1], [Receipt(user="ann", at=AT)], [None]])
def test_unknown_things_are_refused(unknown):
    with pytest.raises(TypeError, match="no table can be made of .*; give turns"): to_frame(unknown)


def test_mixed_things_and_other_tables_are_refused():
    t = full_turn()
    with pytest.raises(TypeError, match="Turn and Memory; make one table of each"): to_frame([t, t.recalled[0].item])
    with pytest.raises(ValueError, match="turns or sections"): to_frame([t], "events")
    with pytest.raises(ValueError, match="a table is one of"): to_frame([t], "rounds")
    with pytest.raises(TypeError): to_frame(to_frame([t]))


# --- the notebook that explores an export

@pytest.mark.parametrize("kind", ["without details", "malp", "a message", "mark", "map"])
def test_any_export_can_be_explored(tmp_path, kind):
    plt = pytest.importorskip("matplotlib.pyplot")
    pytest.importorskip("seaborn")
    plt.switch_backend("agg")
    notebook = json.loads((Path(__file__).parents[1]/"nbs"/"widgets"/"explorers/04_reading.ipynb").read_text())
    path, space = write_turns(tmp_path/"x.jsonl", exported(kind)), {}
    cells = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    begin = next(i for i, c in enumerate(cells) if "".join(c["source"]).startswith("FILE ="))
    imports = [c for c in cells[:begin] if "".join(c["source"]).startswith("#| hide") and "import" in "".join(c["source"])]
    for cell in [*imports, *cells[begin:]]:
        source = "".join(cell["source"])
        exec(compile(source if not source.startswith("FILE =") else f"FILE = {str(path)!r}", cell["id"], "exec"), space)
    assert len(space["said"]) == len(space["turns"]) == len(exported(kind))
    plt.close("all")


def exported(kind: str) -> list[Turn]:
    if kind == "a message": return recalling_a_message()
    if kind == "without details": return [a_turn(), a_turn(id="t2", text="And $5 then?")]
    from memkit.malp import open_malp
    from memkit.maprec import open_map
    from memkit.mark import open_mark
    bot = {"malp": open_malp, "mark": open_mark, "map": open_map}[kind](MemoryStore(":memory:"), ScriptedLM(lambda messages: "I see."))
    return [bot.chat("ann", text) for text in (["I loved The Matrix, 5 stars.", "I hated Titanic, 1 star.", "Recommend me a film."] if kind == "map" else ["I am allergic to penicillin.", "Am I allergic to penicillin?"])]
