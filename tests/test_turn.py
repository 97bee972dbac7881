"The engine: one turn for every design, what it keeps, what it forgets, and what it refuses."
import subprocess
import sys
import threading
import warnings
import zlib
from dataclasses import dataclass, is_dataclass, replace
from datetime import datetime, timedelta, timezone
from importlib import import_module

import numpy as np
import pytest

import memkit
from memkit.models.lm import ScriptedLM
from memkit.reading.notes import Round
from memkit.records import Change, Turn, new_id, utc_now
from memkit.store.store import MemoryStore
from memkit.mark.refined import DOMAIN
from memkit.store.erase import put_trace, read_traces
from memkit.turn import trace
from memkit.turn.assistants import assistants, design, open_assistant
from memkit.turn.engine import STAGES, NotStored, begin_session
from memkit.turn.stages import ShowSettings, TurnSettings

ALLERGY, ASKS = "I have been allergic to penicillin since I was a child.", "Am I allergic to penicillin?"
SAYS = {"map": ("I just watched Alien, 5 stars.", "Can you recommend me a science fiction film?")}
every = pytest.mark.parametrize("name", assistants())


def opened(name, store=":memory:", say=lambda messages: "4", **settings):
    of = design(name)
    a = open_assistant(name, store=store, model=ScriptedLM(say), settings=of.Settings(**settings) if settings else None)
    if a.settings.consent:
        for user in ("ann", "bob"): a.consent(user)
    return a


@every
def test_a_turn_is_the_same_seven_steps_in_every_design(name):
    with opened(name) as a:
        turn = a.chat("ann", SAYS.get(name, (ALLERGY,))[0])
        assert list(turn.seconds) == [*STAGES, "total"] and turn.work == {} and all(s >= 0 for s in turn.seconds.values())
        assert all(isinstance(c, Change) and str(c) for c in turn.changes)


@every
def test_a_separator_of_units_in_a_message_breaks_no_session(name):
    with opened(name) as a:
        for text in ("one\x1ftwo", "\x1f\x1fthree", "How many minutes does an egg need?\x1f"): assert a.chat("ann", text).answer
        assert len(a.turns("ann")) == 3


@every
def test_whole_turns_are_read_in_another_process(name, tmp_path):
    with opened(name, tmp_path/"s.db") as a:
        for text in SAYS.get(name, (ALLERGY, ASKS)): last = a.chat("ann", text)
        told = a.explain(last)
    code = "import sys, memkit; a = memkit.open_assistant(sys.argv[1], store=sys.argv[2], model=memkit.ScriptedLM([])); print(a.explain(a.turns('ann')[-1]))"
    done = subprocess.run([sys.executable, "-c", code, name, str(tmp_path/"s.db")], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == told, done.stderr


@every
def test_a_trace_falls_with_each_memory_that_it_quotes_and_leaves_no_bytes(name, tmp_path):
    with opened(name, tmp_path/"s.db") as a:
        for text in SAYS.get(name, (ALLERGY, ASKS)): last = a.chat("ann", text)
        begin_session(a, "ann")
        content = {t: c for t, (_, c) in read_traces(a.store, "ann").items()}
        quoting = [t.id for t in a.turns("ann") if any(c.hit.item.user == "ann" for c in t.considered if hasattr(c.hit.item, "user"))]
        assert content and (quoting or name == "mark")
        receipt = a.forget("ann", [m.id for m in a.memories("ann")])
        assert receipt.erased
        left, raw = read_traces(a.store, "ann"), (tmp_path/"s.db").read_bytes()
        assert not set(quoting) & set(left)
        for turn, c in content.items():
            if turn not in left: assert c[8:72] not in raw, "the bytes of the trace are gone"


def test_every_record_has_a_name_of_its_own():
    "So a trace names it without its module. The experiments' own records are in no turn."
    found = 0
    for module in {m for m in trace._modules().values() if not m.startswith("memkit.experiments.")}:
        for name, kind in vars(import_module(module)).items():
            if not (isinstance(kind, type) and kind.__module__ == module and name == kind.__name__ and is_dataclass(kind)): continue
            if kind.__dataclass_params__.frozen:
                assert trace.record_class(name) is kind, f"another {name} is in {trace._modules()[name]}; give one of them another name"
                found += 1
    assert found > 200


def test_a_trace_names_no_module_and_an_unknown_record_leaves_the_words():
    at = utc_now()
    turn = Turn(id=new_id("t"), user="ann", session=new_id("s"), at=at, text="Hi", answer="Hello.", model="m", extra={"it": Round("r1", ALLERGY, "I see.", at=at)})
    assert "memkit" not in trace.as_json(turn)
    with MemoryStore(":memory:") as store:
        store.add_turn("ann", turn.session, turn.text, turn.answer, at=turn.at, id=turn.id)
        for content, whole in ((trace.pack(turn), True), (zlib.compress(trace.as_json(turn).replace('"Turn"', '"memkit.core.records:Turn"').encode()), False), (zlib.compress(trace.as_json(turn).replace('"Round"', '"Lap"').encode()), False)):
            assert put_trace(store, "ann", turn.id, content, trace.VERSION)
            again = trace.read_turn(store, "ann", turn.id)
            assert again == (turn if whole else replace(turn, model="", extra={}))


def test_a_record_of_the_same_name_is_refused():
    @dataclass(frozen=True)
    class Move: words: str
    with pytest.raises(TypeError, match="another record of memkit is called Move too"): trace.to_plain(Move("x"))


@pytest.mark.parametrize("name", ["os:system", "system", "memkit.records:Turn", "records.Turn", "Turn.shown", "MemoryStore", "MemoryStore.forget", "to_plain", "Assistant", "Chat", "main", "d", "", "__import__", "object", "type"])
def test_nothing_but_a_frozen_record_is_made(name):
    "By whatever name a file or a store asks for it."
    for inside in ({}, {"target": "x.db"}, [["a", 1]], None):
        with pytest.raises((TypeError, ValueError)): trace.from_plain({"$": name, "is": inside})


def test_traces_are_bounded_and_can_be_switched_off():
    with opened("malp", traces=2) as a:
        for i in range(4): a.chat("ann", f"I have {i + 2} cats.")
        assert [bool(t.model) for t in a.turns("ann")] == [False, False, True, True]
        assert [bool(t.model) for t in a.turns("ann", whole=1)] == [False, False, False, True]
    with opened("malp", trace=False) as a:
        a.chat("ann", ALLERGY)
        assert not read_traces(a.store, "ann") and [t.model for t in a.turns("ann")] == [""]


def test_a_trace_is_not_written_for_what_was_forgotten_meanwhile():
    with opened("malp") as a:
        first = a.chat("ann", ALLERGY)
        shown = a.chat("ann", ASKS)
        a.store.forget("ann", list(first.wrote))
        a.record(shown)
        assert shown.id not in read_traces(a.store, "ann")


def test_in_mark_a_colleagues_trace_falls_with_the_experts_words(tmp_path):
    said = ("What is the dose of Tavorin?", "No, Tavorin is given at 5 mg twice a day.")
    say = lambda m: "You are right, thank you." if "No," in m[-1].text else "Tavorin is given at 20 mg once a day."
    with opened("mark", tmp_path/"s.db", say=say) as a:
        for text in said: a.chat("ann", text)
        begin_session(a, "ann")
        turn = a.chat("bob", "What dose of Tavorin is given?")
        assert [h.item.user for h in turn.recalled] == [DOMAIN] and "5 mg" in turn.prompt
        assert a.turns("bob") == [turn]
        a.forget("ann")
        bare, = a.turns("bob")
        assert (bare.text, bare.considered, bare.prompt) == (turn.text, (), "") and not read_traces(a.store, "bob")


# --- forgetting turns

@every
def test_a_message_can_be_taken_back_with_what_it_taught(name):
    with opened(name) as a:
        first, second = SAYS.get(name, (ALLERGY, ASKS))
        t = a.chat("ann", first)
        begin_session(a, "ann")
        assert a.memories("ann")
        receipt = a.forget("ann", turns=[t.id])
        assert receipt.memories and not a.memories("ann") and not a.turns("ann")
        with pytest.raises(LookupError): a.forget("ann", turns=[t.id])
        with pytest.raises((LookupError, ValueError)): a.forget("bob", turns=["t-" + "0"*32])


def test_what_was_said_twice_stays_when_one_is_taken_back():
    with opened("map") as a:
        one, two = (a.chat("ann", "I just watched Alien, 5 stars.") for _ in range(2))
        assert two.changes[0].relation == "duplicate"
        a.forget("ann", turns=[one.id])
        rating, = a.memories("ann")
        assert rating.turns == (two.id,)


# --- changes

def test_changes_tell_what_a_memory_is_to_what_was_known():
    with opened("malp") as a:
        relations = [a.chat("ann", text).changes for text in ("I take 20 mg of lisinopril every morning.", "I take 20 mg of lisinopril every morning.", "Since last week I take 40 mg of lisinopril every morning.")]
        assert [(c.kind, c.relation) for c, *_ in relations[:2]] == [("stored", "unrelated"), ("counted", "duplicate")]
        assert relations[2][0].relation in ("update", "unrelated")
    with opened("map") as a:
        kinds = [a.chat("ann", text).changes[0] for text in ("I just watched Alien, 5 stars.", "Alien is a 3 out of 5.", "I take back what I said about Alien.")]
        assert [(c.kind, c.relation, c.rating) for c in kinds] == [("rated", "unrelated", 5), ("rated", "update", 3), ("taken back", "retraction", None)]
        assert kinds[1].other == kinds[0].memory


# --- times, sessions, consent, closing

@every
def test_a_time_can_be_given_and_must_have_a_zone(name):
    with opened(name) as a:
        at = datetime(2020, 2, 29, 23, 59, tzinfo=timezone(timedelta(hours=2)))
        assert a.chat("ann", ALLERGY, at=at).at == at
        with pytest.raises(ValueError, match="no zone"): a.chat("ann", ALLERGY, at=datetime(2020, 1, 1))
        a.clock = lambda: at
        assert a.chat("ann", ALLERGY).at == at


@every
def test_consent_taken_back_during_a_turn_leaves_nothing(name):
    a = None
    def say(messages):
        a.withdraw("ann")
        return "4"
    a = open_assistant(name, store=":memory:", model=ScriptedLM(say), settings=design(name).Settings(consent=True, answers="model"))
    a.consent("ann")
    a.chat("ann", "How many minutes does an egg need to be hard?")
    assert not a.turns("ann") and not a.memories("ann") and not read_traces(a.store, "ann")


@every
@pytest.mark.parametrize("asks", [True, False])
def test_whoever_took_their_consent_back_is_not_remembered_until_they_give_it_again(name, asks, tmp_path):
    "Whether the setting asks or not, after a restart, after forgetting once more, and whatever design opens the store."
    says, settings = ScriptedLM(lambda messages: "4"), design(name).Settings(consent=asks, answers="model")
    def opened_again(of=name): return open_assistant(of, store=tmp_path/"s.db", model=says, settings=settings if of == name else None)
    def silent(a):
        a.chat("ann", ALLERGY)
        a.study("ann", [memkit.Round("r1", ALLERGY, "I see.")])
        a.end("ann")
        return not a.turns("ann") and not a.memories("ann") and not a.jobs("ann") and not read_traces(a.store, "ann")
    with opened_again() as a:
        a.consent("ann")
        a.chat("ann", ALLERGY)
        assert a.turns("ann")
        receipt = a.withdraw("ann")
        assert not receipt.unknown and not a.has_consent("ann") and silent(a)
        assert any(p.state == "kept" and "consent" in p.name for p in receipt.places)
        a.forget("ann")
        assert not a.has_consent("ann") and silent(a)
    with opened_again() as a: assert not a.has_consent("ann") and silent(a)
    with opened_again("malp" if name != "malp" else "map") as other: assert not other.has_consent("ann") and silent(other)
    with opened_again() as a:
        a.consent("ann")
        a.chat("ann", ALLERGY)
        assert a.turns("ann")


@every
def test_what_is_no_turn_no_round_and_no_list_is_named(name):
    with opened(name) as a:
        a.chat("ann", ALLERGY)
        for wrong, says in ((lambda: a.explain(None), "explain wants a turn.*got None"), (lambda: a.study("ann", ["hello"]), "study wants rounds.*got 'hello'"),
                            (lambda: a.study("ann", Round("1", "I like tea.", "Ok.")), "study wants rounds.*give a list of them, got Round.* alone"),
                            (lambda: a.forget("ann", 1), "numbers of memories; give a list of them, got 1 alone"), (lambda: a.forget("ann", ["1"]), "numbers of memories; got '1'"),
                            (lambda: a.forget("ann", turns="t-abc"), "names of turns; give a list of them, got 't-abc' alone")):
            with pytest.raises(TypeError, match=says): wrong()
        assert a.turns("ann")


@every
def test_without_consent_the_turn_says_that_nothing_is_stored_and_python_warns_once(name):
    with opened(name) as a, warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        a.withdraw("ann")
        for user in ("ann", "ann", "bob"): last = a.chat(user, ALLERGY)
        first = a.chat("ann", ASKS)
        told = [w for w in heard if w.category is NotStored]
        assert [w.filename for w in told] == [__file__] and "hasn't agreed to be remembered: assistant.consent(user)" in str(told[0].message)
        assert first.extra["unstored"] in a.explain(first) and "unstored" not in last.extra and not a.turns("ann")


@every
def test_forgetting_somebody_unknown_says_so(name):
    with opened(name) as a:
        receipt = a.forget("nobody")
        assert receipt.unknown and receipt.erased and "nothing under this name" in str(receipt)
        a.chat("ann", ALLERGY)
        assert not a.forget("ann").unknown and a.forget("ann").unknown


@every
def test_a_store_that_was_given_stays_open(name):
    with MemoryStore(":memory:") as store:
        with opened(name, store) as a: a.chat("ann", ALLERGY)
        assert store.turns("ann")
    with opened(name) as own: pass
    with pytest.raises(RuntimeError, match="was closed"): own.store.turns("ann")


def test_two_threads_of_one_user_lose_nothing(tmp_path):
    with opened("malp", tmp_path/"s.db") as a:
        failed = []
        def talk(n):
            try:
                for i in range(5): a.chat("ann", f"My number {n}{i} is lucky.")
            except Exception as e: failed.append(e)
        threads = [threading.Thread(target=talk, args=(n,)) for n in range(3)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert not failed and len(a.turns("ann")) == 15 and all(t.model for t in a.turns("ann"))


def test_parts_that_are_none_are_named_when_the_assistant_is_opened():
    for part, wanted in ((dict(model=42), "a method generate"), (dict(model=None), "'embedded'"), (dict(embedder=None), "'minilm'")):
        with pytest.raises(TypeError, match=wanted): open_assistant("malp", store=":memory:", **part)


def test_the_model_of_malp_serves_another_design_without_its_users_weights():
    with open_assistant("malp", store=":memory:") as a, open_assistant("mark", store=":memory:", model=a.model) as b:
        assert b.model is a.model.lm


def test_what_cannot_be_is_said():
    with pytest.raises(ValueError, match="there is no assistant 'x'; installed are: "): open_assistant("x", store=":memory:")
    for settings in (ShowSettings(), {"budget": 10}):
        says = rf"the settings of 'mark' are memkit.mark.assistant.MarkSettings\(...\), got {type(settings).__name__}"
        with pytest.raises(TypeError, match=says): open_assistant("mark", store=":memory:", model=ScriptedLM([]), settings=settings)
    for bad in ({"budget": 0}, {"rounds": -1}, {"traces": 0}, {"answer_tokens": 0}):
        with pytest.raises(ValueError, match="or more, got"): TurnSettings(**bad)
    for field, value, says in (("budget", "1k", "a whole number"), ("tries", 1.5, "a whole number"), ("memories", True, "a whole number"), ("wait", None, "a number"),
                               ("consent", "no", "True or False"), ("answers", 1, "a string")):
        with pytest.raises(TypeError, match=f"{field} must be {says}, got {value!r}"): ShowSettings(**{field: value})
    assert ShowSettings(budget=np.int64(2000), wait=1).budget == 2000
    with pytest.raises(ValueError, match="a change is one of stored"): Change(kind="lost")
    with pytest.raises(ValueError, match="a relation is one of duplicate"): Change(kind="stored", relation="cousin")
    with pytest.raises(AttributeError, match="it offers open_assistant"): memkit.open_asistant


def test_a_turn_that_is_too_large_keeps_what_was_shown():
    from memkit.turn.trace import pack, packed, unpack
    turn = Turn(id=new_id("t"), user="ann", session="s", at=utc_now(), text="x", extra={"weights": list(range(1000))})
    assert unpack(pack(turn)) == turn and packed(turn, 10) is None
    with pytest.raises(TypeError, match="none of memkit's own records"): pack(replace(turn, extra={"it": object()}))


def test_an_answer_that_was_not_kept_is_in_no_later_prompt():
    from memkit.turn.stages import QUOTED
    with memkit.open_assistant("mark", store=":memory:", model=ScriptedLM(lambda messages: "I see.")) as a:
        for said in ("My dog is called Rex.", "What's my dog called?"): a.chat("ann", said)
        assert a.store.turns("ann")[-1].answer == QUOTED
        assert all(QUOTED not in m.text for m in a.look("ann", "How long do dogs live?").messages)


# --- single settings

def test_single_settings_are_given_by_name_and_unknown_ones_are_refused():
    with open_assistant("mark", store=":memory:", model=ScriptedLM(lambda messages: "…"), answers="model", rounds=1) as a:
        assert (a.settings.answers, a.settings.rounds) == ("model", 1) and type(a.settings) is a.Settings
    with pytest.raises(TypeError, match="no setting anwsers; it has .*answers"):
        open_assistant("malp", store=":memory:", anwsers="model")
