"MARK's assistant: what is shown, learned, judged, forgotten, and hidden."
import pytest

from memkit.models.lm import ScriptedLM
from memkit.records import Document
from memkit.store.store import MemoryStore
from memkit.mark import open_mark
from memkit.mark.agents import embedded_agents
from memkit.mark.assistant import HEADINGS, KNOWLEDGE, MEMORY, WISHES, MarkAssistant, MarkSettings, assemble
from memkit.mark.builder import BuildError, Builder
from memkit.mark.refined import DOMAIN, RESIDUAL, RESPONSE
from memkit.mark.search import RefinedSearch
from memkit.mark.maintain import QuorumSettings
from memkit.turn.prompt import Piece

ASKED, TOLD = "How often is the infusion pump calibrated?", "No. The infusion pump is calibrated every Monday."
AGAIN = "When is the infusion pump calibrated?"


def answered(messages):
    "A wrong answer to every question; whoever says no is right."
    said = messages[-1].text.splitlines()[0]
    return f"You are right. {said.removeprefix('No. ')}" if said.startswith("No. ") else "It is calibrated once a year."

def assistant(embedder, path=":memory:", quorum=None, **more):
    store = MemoryStore(path)
    more.setdefault("settings", MarkSettings(answers="model"))   # these tests are about what the model writes
    return MarkAssistant(ScriptedLM(answered), RefinedSearch(store, embedder, policy=more.pop("policy", None)), Builder(store, embedder, embedded_agents(), quorum=quorum), **more)

def teach(a, user, told=TOLD):
    a.chat(user, ASKED); a.chat(user, told)
    return a.end(user).result()


def test_what_one_expert_corrects_reaches_another(embedder):
    a = assistant(embedder)
    teach(a, "ann")
    turn = a.chat("bob", AGAIN)
    assert [(h.item.kind, h.item.user) for h in turn.recalled] == [(RESIDUAL, DOMAIN)] and "Monday" in turn.prompt
    assert a.store.get(DOMAIN, turn.recalled[0].item.id).recalls == 1 and not a.memories("carl")
    assert "infusion pump" in a.explain(turn) and "residual: memory" in a.explain(turn)


def test_a_failing_model_leaves_no_trace(embedder):
    a = assistant(embedder)
    teach(a, "ann")
    before = a.store.events(DOMAIN)
    a.model = ScriptedLM([])
    with pytest.raises(Exception): a.chat("bob", AGAIN)
    assert a.store.events(DOMAIN) == before and not a.store.turns("bob")


def test_forgetting_one_memory_takes_what_the_domain_learned_from_its_turns(embedder, tmp_path):
    a = assistant(embedder, tmp_path/"s.db")
    teach(a, "ann")
    own = next(m for m in a.memories("ann") if "Monday" in m.text)
    receipt = a.forget("ann", [own.id])
    assert receipt.erased and receipt.memories == (own.id,) and not [m for m in a.shared_memories("bob") if "Monday" in m.text]
    with pytest.raises(LookupError): a.forget("bob", [own.id])
    a.close()


def test_what_two_said_stays_when_one_is_forgotten(embedder):
    a = assistant(embedder)
    teach(a, "ann"); teach(a, "bob")
    assert len([m for m in a.shared_memories("x") if "Monday" in m.text]) == 1
    a.forget("ann")
    assert [m.meta["users"] for m in a.shared_memories("x") if "Monday" in m.text] == [1]
    a.forget("bob")
    assert not a.shared_memories("x")


def test_with_a_quorum_one_person_cannot_change_the_domain(embedder):
    told = lambda a: {m.text for m in a.shared_memories("x")}
    alone, guarded = assistant(embedder), assistant(embedder, quorum=QuorumSettings())
    for a in (alone, guarded):
        for user in ("ann", "bob", "cid"): teach(a, user)
        teach(a, "eve", "No. The infusion pump is calibrated every Friday.")
    assert any("Monday" in t for t in told(guarded)) and not any("Friday" in t for t in told(guarded))
    assert not guarded.maintain(["ann"])[0].dropped


def test_feedback_is_for_those_who_saw_it(embedder):
    a = assistant(embedder)
    teach(a, "ann")
    shown = a.chat("bob", AGAIN).recalled[0].item.id
    assert a.feedback("bob", shown, False).incorrect == 1 == a.feedback("bob", shown, False).incorrect
    assert a.feedback("bob", shown, True, revise=True).correct == 1
    for who, id in (("carl", shown), ("bob", 10**6)):
        with pytest.raises(LookupError): a.feedback(who, id, True)
    with pytest.raises(ValueError, match="revise"): a.feedback("bob", shown, False)


def test_nothing_of_a_hidden_memory_leaves(embedder, caplog, capsys):
    a = assistant(embedder, policy=open_mark(":memory:", ScriptedLM([]), policy={"ward": "equals"}).search.policy, attributes_of={"ann": {"ward": "A"}, "bob": {"ward": "B"}}.__getitem__)
    with caplog.at_level("DEBUG"):
        teach(a, "ann", "No. The infusion pump is calibrated every Zebraday.")
        turn = a.chat("bob", AGAIN)
        seen = turn.prompt + a.explain(turn) + repr(turn) + repr(a.shared_memories("bob"))
        with pytest.raises(LookupError) as e: a.feedback("bob", a.shared_memories("ann")[0].id, False)
    assert "Zebraday" not in seen + str(e.value) + caplog.text + "".join(capsys.readouterr())
    assert "Zebraday" in a.chat("ann", AGAIN).prompt


def test_a_session_that_could_not_be_read_is_read_later(embedder):
    class Broken:
        kind = RESIDUAL
        def extract(self, conversation): return "nonsense"
    a = assistant(embedder)
    whole, a.builder = a.builder, Builder(a.store, embedder, [Broken()])
    a.chat("ann", ASKED)
    a.chat("ann", "No. The infusion pump is calibrated every Monday.")
    with pytest.raises(BuildError): a.end("ann").result()
    job, = a.jobs("ann")
    assert (job.kind, job.attempts, job.error, job.state) == ("read", 1, "BuildError", "waiting")
    assert a.behind("ann") == "Still to be learned from: 1 conversation (the last attempt failed with BuildError)."
    a.chat("ann", ASKED)
    with pytest.raises(BuildError): a.end("ann").result()
    assert len(a.jobs("ann")) == 2 and not a.store.list(DOMAIN) and a.end("nobody") is None
    a.builder = whole
    assert a.wait("ann") == [] and a.behind("ann") == "" and [m.text for m in a.store.list(DOMAIN)]


def test_a_mode_decides_what_is_filled_first_and_stands_last():
    pieces = [Piece(name="document", text="D"), Piece(name=RESIDUAL, text="M")]
    place = lambda first: [assemble("?", pieces, first)[-1].text.index(t) for t in ("\nD", "\nM")]
    assert place(KNOWLEDGE) == sorted(place(KNOWLEDGE), reverse=True) and place(MEMORY) == sorted(place(MEMORY))


def test_a_small_budget_keeps_what_counts(embedder):
    documents = open_mark(":memory:", ScriptedLM([]), documents=[Document(id="d", text="The infusion pump has a log book. "*8)]).retriever
    for first, kept in ((KNOWLEDGE, Document), (MEMORY, object)):
        a = assistant(embedder, documents=documents, settings=MarkSettings(first=first, rounds=0))
        teach(a, "ann")
        whole = a.chat("bob", AGAIN).prompt_tokens
        a.settings = MarkSettings(first=first, rounds=0, budget=whole - 5)
        shown = a.chat("bob", AGAIN).shown
        assert shown and (isinstance(shown[0].item, Document) if kept is Document else not isinstance(shown[0].item, Document))


def test_receipts_add_up(embedder):
    a = assistant(embedder)
    teach(a, "ann")
    receipt = a.forget("ann")
    assert receipt.removed["domain memories"] == 1 and "domain memory" in str(receipt) and receipt.user == "ann"
    assert [(p.name, p.count) for p in receipt.places if p.name == "what others are told"] == [("what others are told", 1)]


def test_no_words_stay_in_the_process(embedder):
    a = assistant(embedder)
    teach(a, "ann")
    assert a.chat("bob", AGAIN).recalled and any("Monday" in t for texts in a.shown.values() for t in texts)
    a.end("bob").result()
    assert not a.shown
    a.builder = Builder(a.store, embedder, embedded_agents())
    a.chat("bob", AGAIN)
    a.forget("ann")
    assert not a.shown


def test_a_wish_is_in_every_later_prompt(embedder):
    a = assistant(embedder)
    a.chat("ann", ASKED); a.chat("ann", "Two lines at most from now on, please.")
    a.end("ann").result()
    for asked in ("What is the capital of France?", "Which bolt holds the cover of the pump?"):
        turn = a.chat("ann", asked)
        [wish] = [c for c in turn.considered if c.outcome == "a standing wish"]
        assert wish.shown and "Two lines at most" in turn.prompt and HEADINGS[RESPONSE] in turn.prompt
        assert "Two lines" not in a.chat("bob", asked).prompt
    a.forget("ann", [wish.hit.item.id])
    assert "Two lines" not in a.chat("ann", "What is the capital of France?").prompt

def test_the_newest_wishes_are_shown_and_only_where_they_may_be(embedder):
    a = assistant(embedder)
    for said in ("No bullet lists from now on.", "Always name your sources, please.", "Prices in pounds from now on.", "I prefer short answers."):
        a.chat("ann", said); a.end("ann").result()
    wished = [c.hit.item.text for c in a.wishes("ann")]
    assert len(wished) == WISHES and "short" in wished[0] and not any("bullet" in w for w in wished)
    other = MarkAssistant(a.model, a.search, a.builder, settings=MarkSettings(agent="another"))
    assert other.wishes("ann") == [] == a.wishes("bob")


def test_a_bare_nod_is_no_answer_that_a_statement_could_correct():
    "Somebody who goes on telling after “Noted.” takes nothing back: the model isn't asked."
    with open_mark(":memory:", ScriptedLM(lambda messages: "MODEL")) as mark:
        nod = mark.chat("ann", "You've missed step one, which is ask him where he keeps the whisky.")
        told = mark.chat("ann", "Callum has been on the day shift in Outpatients since Monday.")
        assert nod.answer == "Noted." and told.answer.startswith("Noted: ") and "Outpatients" in told.answer


def test_the_papers_name_for_shared_memories_stays():
    from memkit.mark.assistant import MarkAssistant
    assert callable(MarkAssistant.domain_memories) and "domain" in MarkAssistant.domain_memories.__doc__ + MarkAssistant.shared_memories.__doc__
