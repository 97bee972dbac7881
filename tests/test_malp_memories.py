"MaLP's memories and the assistant on top of them: what is kept, what comes back, and what nothing may change."
import pytest

from memkit.models.lm import ScriptedLM
from memkit.reading.notes import Round
from memkit.store.store import MemoryStore
from memkit.malp.assistant import MalpAssistant, MalpSettings
from memkit.malp.dpem import DPeMSettings
from memkit.malp.memories import OWN_ANSWER, DictionaryMemory, DPeMMemory, FullHistory, NoMemory, RandomRecall, check_dialogue_memory, dictionary_entries
from memkit.malp.memories import WAYS, MalpRecall, closeness, closest_match, literal_match

ALLERGY = "I have been allergic to penicillin since I was a child."


KINDS = {"standard": lambda e: NoMemory(MemoryStore(":memory:")), "dictionary": lambda e: DictionaryMemory(MemoryStore(":memory:"), e), "full history": lambda e: FullHistory(MemoryStore(":memory:")),
         "DPeM": lambda e: DPeMMemory(MemoryStore(":memory:"), e), "random memory": lambda e: RandomRecall(DPeMMemory(MemoryStore(":memory:"), e))}


@pytest.mark.parametrize("kind", KINDS)
def test_every_memory_keeps_its_promises(kind, minilm):
    memory = KINDS[kind](minilm)
    assert memory.name == kind
    check_dialogue_memory(lambda: KINDS[kind](minilm))


def says(memory, answer="I see."):
    "An assistant whose model says this."
    script = ScriptedLM(answer if callable(answer) else lambda messages: answer)
    return MalpAssistant(memory, script, MalpSettings(answers="model"))


# --- the dictionary

@pytest.mark.parametrize("round, entries", [
    (Round("1", "Since March.", "Thanks.", before="Hello. Since when does it hurt?"), [("Since when does it hurt?", "Since March."), ("Since March.", "Thanks.")]),
    (Round("1", "My knee hurts.", ""), []),
    (Round("1", "", "How are you?"), []),
    (Round("1", "Fine.", "How are you?", first="assistant"), [("How are you?", "Fine.")]),
])
def test_questions_and_answers_of_a_round(round, entries): assert dictionary_entries(round) == entries


def test_an_entry_is_found_by_a_similar_question(minilm):
    d = DictionaryMemory(MemoryStore(":memory:"), minilm)
    d.take("ann", Round("1", "Penicillin. I get hives.", "Noted.", before="Do you have any allergies?"))
    d.take("ann", Round("2", "Twice a week.", "Good.", before="How often do you run?"))
    assert "Penicillin" in d.recall("ann", "What are you allergic to?", k=1)[0].item.text


# --- what is learned in a chat

def test_the_models_own_answer_is_kept_and_not_learned(minilm):
    a = says(DPeMMemory(MemoryStore(":memory:"), minilm), "You are allergic to nuts. You should take aspirin every day.")
    turn = a.chat("ann", ALLERGY)
    assert [m.meta["speaker"] for m in a.memories("ann")] == ["user"] and not any("nuts" in m.text or "aspirin" in m.text for m in a.memories("ann"))
    assert a.store.turns("ann")[0].answer.startswith("You are allergic to nuts") and a.store.turns("ann")[0].id == turn.id
    assert OWN_ANSWER in {m.reason for m in a.memory.dpem.moves("ann") if m.kind == "dropped"}


def test_repeating_what_was_recalled_counts_nothing(minilm):
    a = says(DPeMMemory(MemoryStore(":memory:"), minilm, settings=DPeMSettings(avoidance=False)), "You have been allergic to penicillin since you were a child.")
    a.chat("ann", ALLERGY)
    for _ in range(6): a.chat("ann", "What am I allergic to?")
    (m,) = a.memories("ann")
    assert m.kind == "short-term" and a.memory.dpem.state("ann").flags.get(m.id, 1) == 1 and m.recalls >= 6


def test_saying_it_again_counts(minilm):
    a = says(DPeMMemory(MemoryStore(":memory:"), minilm, settings=DPeMSettings(avoidance=False, promote_every=1)))
    for _ in range(3): a.chat("ann", ALLERGY)
    assert [m.kind for m in a.memories("ann")] == ["long-term"]


def test_without_learning_nothing_is_written(minilm):
    a = MalpAssistant(DPeMMemory(MemoryStore(":memory:"), minilm), ScriptedLM(lambda m: "I see."), MalpSettings(learn=False))
    a.chat("ann", ALLERGY)
    assert not a.memories("ann") and not a.store.turns("ann")


def test_an_answer_leans_on_the_last_rounds(minilm):
    a = says(NoMemory(MemoryStore(":memory:")))
    for said in ("My knee hurts.", "Since March.", "At night too."): a.chat("ann", said)
    turn = a.chat("ann", "What should I do?")
    assert [m.text for m in turn.messages[1:]] == ["Since March.", "I see.", "At night too.", "I see.", "What should I do?"]
    a.new_session("ann")
    assert len(a.chat("ann", "And now?").messages) == 2


# --- studying

def test_a_dialogue_is_studied_once_and_goes_on_after_a_restart(minilm, tmp_path):
    rounds = [Round("v1-1", ALLERGY, "Thank you for telling me."), Round("v1-2", "I take 20 mg of lisinopril every morning.", "Good.", before="Thank you for telling me.")]
    with MemoryStore(tmp_path/"m.db") as store: assert says(DPeMMemory(store, minilm)).study("ann", rounds[:1]) == 1
    with MemoryStore(tmp_path/"m.db") as store:
        a = says(DPeMMemory(store, minilm))
        assert a.study("ann", rounds) == 1 and a.study("ann", rounds) == 0
        assert len(a.memories("ann")) == 2


# --- the prompt

def test_memories_stand_under_their_kinds_and_the_budget_holds(minilm):
    a = MalpAssistant(DPeMMemory(MemoryStore(":memory:"), minilm), ScriptedLM(lambda m: "I see."), MalpSettings(budget=110, memories=9))
    a.study("ann", [Round(str(i), f"I am allergic to {x}.", "Penicillin allergies are common in adults.") for i, x in enumerate(("penicillin", "nuts", "bee stings", "latex", "kiwi", "wool", "soy"))])
    turn = a.chat("ann", "What am I allergic to?")
    assert turn.prompt_tokens <= 110 and turn.recalled and any(c.outcome == "did not fit the budget" for c in turn.considered)
    assert turn.messages[-1].text.count("What you know about the user:") == 1


def test_full_history_fills_the_budget(minilm):
    a = MalpAssistant(FullHistory(MemoryStore(":memory:")), ScriptedLM(lambda m: "I see."), MalpSettings(budget=400, memories=2))
    a.study("ann", [Round(str(i), f"Today is day number {i} of my diet.", "Well done.") for i in range(60)])
    turn = a.chat("ann", "Which day is it?")
    assert 2 < len(turn.recalled) < 60 and turn.prompt_tokens <= 400 and turn.recalled[0].item.meta["round"] == "59"


@pytest.mark.parametrize("wrong", [{"memories": -1}, {"rounds": -1}, {"budget": 0}, {"answer_tokens": 0}, {"memory_tokens": 0}])
def test_bad_settings(wrong):
    with pytest.raises(ValueError): MalpSettings(**wrong)


@pytest.mark.parametrize("text", ["", "   ", "a\0b", "\ud800"])
def test_bad_messages_change_nothing(text, minilm):
    a = says(DPeMMemory(MemoryStore(":memory:"), minilm))
    with pytest.raises(ValueError): a.chat("ann", text)
    assert not a.store.turns("ann")


@pytest.mark.parametrize("text", ["我对青霉素过敏。", "😀😀😀", "x "*3000, "?", "Ich bin gegen Penicillin allergisch."])
def test_any_language_is_answered(text, minilm):
    a = MalpAssistant(DPeMMemory(MemoryStore(":memory:"), minilm), ScriptedLM(lambda m: "I see."), MalpSettings(budget=8000, answers="model"))
    assert a.chat("ann", text).answer == "I see." and len(a.store.turns("ann")) == 1


def test_a_model_that_fails_leaves_the_memory_as_it_was(minilm):
    def broken(messages): raise RuntimeError("out of memory")
    a = says(DPeMMemory(MemoryStore(":memory:"), minilm), broken)
    with pytest.raises(RuntimeError): a.chat("ann", ALLERGY)
    assert not a.store.turns("ann") and not a.memories("ann")


def test_forgetting_takes_earlier_wordings_along(minilm):
    a = says(DPeMMemory(MemoryStore(":memory:"), minilm, settings=DPeMSettings(avoidance=False)))
    for _ in range(2): a.chat("ann", ALLERGY)
    (m,) = a.memories("ann")
    receipt = a.forget("ann", [m.id])
    assert len(receipt.memories) == 2 and not a.store.list("ann", superseded=True)


# --- retrievers

@pytest.mark.parametrize("query, texts, found", [("", ["a b"], []), ("metformin", [], []), ("the of", ["the of"], []), ("metfromin dose", ["a dose of metformin", "a dog"], [0]), ("knee", ["back", "knee pain", "my knee"], [1, 2])])
def test_closest_match(query, texts, found): assert [i for i, _ in closest_match(query, texts)] == found


def test_closeness_lies_between_nothing_and_all():
    c = closeness("swollen knee", ["a swollen knee", "a swolen nee", "dogs", ""])
    assert c[0] == 1 and .75 <= c[1] < 1 and c[2] == c[3] == 0


def test_the_literal_form_takes_the_first_and_not_the_best(): assert literal_match("test", ["tents", "test", "nothing alike"], k=1) == [(0, 2)]


@pytest.mark.parametrize("way", WAYS)
def test_each_way_recalls_at_most_k_of_this_user(way, minilm):
    store = MemoryStore(":memory:")
    for user in ("ann", "bob"):
        for i, kind in enumerate(("short-term", "long-term", "history")*3):
            text = f"{user} took {i + 1} tablets"
            store.add(user, text, minilm.embed([text])[0], kind=kind, encoder=minilm.name)
    hits = MalpRecall(store, minilm, way).recall("ann", "ann took 1 tablets", k=4)
    assert 1 <= len(hits) <= 4 and {h.item.user for h in hits} == {"ann"} and len({h.item.id for h in hits}) == len(hits)
    assert way == "context" or "history" not in {h.item.kind for h in hits}
