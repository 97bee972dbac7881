"What is held back reaches nobody, is never lost, and goes with its author; k people share a thing whatever their order."
from datetime import datetime, timedelta, timezone
from itertools import permutations

import pytest

from memkit.models.embed import MiniLM
from memkit.models.lm import ScriptedLM
from memkit.records import new_id
from memkit.store.store import MemoryStore
from memkit.mark import open_mark
from memkit.mark.assistant import MarkSettings
from memkit.mark.builder import Builder
from memkit.mark.builder import HELD, Quarantine, quarantined, reject, release
from memkit.mark.refined import DOMAIN, RESIDUAL, RETRACTION, Refined, conversation_of

START, ABOUT = datetime(2026, 3, 2, 8, tzinfo=timezone.utc), "How often is velorin given?"
EMBEDDER = MiniLM()


class Words:
    "Holds back what holds a word."
    def why(self, text): return {"name": .9} if "Okafor" in text else {}

class Says:
    "An agent for which every message corrects, or takes back."
    kind = RESIDUAL
    def extract(self, c):
        made = lambda e: Refined(kind=RESIDUAL, text=f"{ABOUT} {e.question}", turns=[e.turn], source="user", about=ABOUT,
                                 reason=RETRACTION if e.question.startswith("Forget") else "correction")
        return [made(e) for e in c.exchanges]

def built(store, contributors=1, gate=None):
    return Builder(store, EMBEDDER, [Says()], quarantine=Quarantine(gate or Words(), contributors))

def say(builder, user, *said, session=None):
    session = session or new_id("s")
    for i, text in enumerate(said): builder.store.add_turn(user, session, text, "Noted.", START + timedelta(minutes=i))
    return builder.build(conversation_of(builder.store, user, session))

def shared(store): return [m.text for m in store.list(DOMAIN, kind=RESIDUAL)]


def test_what_is_held_back_survives_the_process_and_is_found_by_no_search(tmp_path):
    with MemoryStore(tmp_path/"m.db") as store:
        report = say(built(store), "ann", "Velorin is given twice a day.", "Mrs Okafor gets it at eight.")
        assert len(report.of("added")) == len(report.of("dropped")) == 1
    with MemoryStore(tmp_path/"m.db") as store:
        [held] = quarantined(store)
        assert (held.why, held.by) == ({"name": .9}, store.alias("ann")) and "Okafor" in held.text
        assert len(shared(store)) == 1 and "Okafor" not in shared(store)[0]
        vector = EMBEDDER.embed([held.text])[0]
        assert all(h.item.kind == RESIDUAL for h in store.search(DOMAIN, vector, k=50))
        assert not any("Okafor" in e.reason + str(e.data) for e in store.events(DOMAIN)), "the log holds no words"

def test_the_same_conversation_is_held_back_once():
    store = MemoryStore(":memory:")
    builder, session = built(store), new_id("s")
    say(builder, "ann", "Mrs Okafor gets it at eight.", session=session)
    assert builder.build(conversation_of(store, "ann", session)).repeated and len(quarantined(store)) == 1

def test_what_was_shared_before_stays():
    store = MemoryStore(":memory:")
    say(Builder(store, EMBEDDER, [Says()]), "ann", "Mrs Okafor gets it at eight.")
    before = shared(store)
    say(built(store), "ben", "Velorin is given twice a day.")
    assert before[0] in shared(store) and not quarantined(store)

@pytest.mark.parametrize("everything", [True, False])
def test_forgetting_its_author_erases_what_waits(tmp_path, everything):
    from memkit.mark.builder import forget_contributions
    store = MemoryStore(tmp_path/"m.db")
    say(built(store), "ann", "Mrs Okafor gets it at eight.")
    turns = [t.id for t in store.turns("ann")]
    gone = forget_contributions(store, EMBEDDER, "ann", None if everything else turns)
    store.forget("ann")
    assert gone.erased and not quarantined(store)
    store.close()
    assert not any(b"Okafor" in p.read_bytes() for p in tmp_path.iterdir())

def test_what_is_rejected_leaves_no_byte_and_what_is_released_keeps_its_author(tmp_path):
    store = MemoryStore(tmp_path/"m.db")
    builder = built(store)
    say(builder, "ann", "Mrs Okafor gets it at eight.")
    say(builder, "ben", "Old Mr Okafor never slept.")
    first, second = quarantined(store)
    assert reject(store, second.id, "nurse").erased
    release(store, EMBEDDER, first.id, "nurse")
    [m] = store.list(DOMAIN, kind=RESIDUAL)
    assert [s["by"] for s in m.meta["sources"]] == [store.alias("ann")] and not store.list(DOMAIN, kind=HELD)
    for again in (lambda: release(store, EMBEDDER, first.id, "nurse"), lambda: reject(store, second.id, "nurse"), lambda: reject(store, m.id, "nurse")):
        with pytest.raises(LookupError): again()
    store.forget("ben")   # the turn itself
    store.close()
    assert not any(b"never slept" in p.read_bytes() for p in tmp_path.iterdir())

def test_what_its_author_takes_back_no_longer_waits():
    store = MemoryStore(":memory:")
    builder, session = built(store, contributors=2), new_id("s")
    say(builder, "ann", "Velorin is given twice a day.", session=session)
    store.add_turn("ann", session, "Forget that.", "All right.", START)
    class Back(Says):
        def extract(self, c):
            return [Refined(kind=RESIDUAL, text="Forget that.", turns=c.turns, source="user", reason=RETRACTION)]
    builder.agents = (Back(),)
    builder.build(conversation_of(store, "ann", session))
    assert not quarantined(store) and not shared(store)

@pytest.mark.parametrize("order", list(permutations(("ann", "ben", "ann", "eve")))[::5])
def test_three_people_share_a_thing_in_any_order(order):
    store = MemoryStore(":memory:")
    builder, people = built(store, contributors=3), set()
    for user in order:
        people.add(user)
        say(builder, user, "Velorin is given twice a day.")
        assert len(shared(store)) == (len(people) >= 3)
    assert store.list(DOMAIN, kind=RESIDUAL)[0].meta["users"] == 3 and not quarantined(store)

def test_other_claims_and_other_places_are_nobodys_second_voice():
    store = MemoryStore(":memory:")
    builder = built(store, contributors=2)
    say(builder, "ann", "Velorin is given twice a day.")
    say(builder, "ben", "The night form goes to the laboratory.")
    session = new_id("s")
    store.add_turn("eve", session, "Velorin is given twice a day.", "Noted.", START)
    builder.build(conversation_of(store, "eve", session, metadata={"region": "EU"}))
    assert not shared(store) and len(quarantined(store)) == 3

def test_what_the_gate_finds_waits_however_many_say_it():
    store = MemoryStore(":memory:")
    builder = built(store, contributors=2)
    for user in ("ann", "ben", "eve"): say(builder, user, "Mrs Okafor gets it at eight.")
    assert not shared(store) and len(quarantined(store)) == 3

def test_a_gate_that_fails_shares_nothing_and_the_conversation_is_read_again():
    class Down:
        def why(self, text): raise OSError("no weights")
    store = MemoryStore(":memory:")
    session = new_id("s")
    with pytest.raises(OSError): say(built(store, gate=Down()), "ann", "Velorin is given twice a day.", session=session)
    assert not shared(store) and not quarantined(store)
    built(store).build(conversation_of(store, "ann", session))
    assert len(shared(store)) == 1


def asked(mark, user, *said):
    for text in said: mark.chat(user, text)
    mark.end(user).result()

def test_the_assistant_lists_releases_and_audits():
    with open_mark(":memory:", ScriptedLM(lambda messages: "You're right, thank you.")) as mark:
        asked(mark, "dr-abel", "How often is velorin given after a hip operation?",
              "No, velorin is given twice a day, that is how Siobhan from the night shift had it at 14 Mill Lane.")
        assert not mark.shared_memories("dr-beck")
        [held] = mark.quarantine("dr-abel")
        assert mark.quarantine() == [held] and not mark.quarantine("dr-beck") and set(held.why)
        m = mark.release(held.id, "head-nurse")
        assert m.kind == RESIDUAL and mark.shared_memories("dr-beck") == [m] and not mark.quarantine()
        turn = mark.chat("dr-beck", "How often do I give velorin after a hip operation?")
        assert [h.item.id for h in turn.recalled] == [m.id]
        [seen] = mark.audit(m.id)
        assert (seen.turn, seen.how, seen.by) == (turn.id, "prompt", mark.store.alias("dr-beck"))
        mark.forget("dr-abel")
        assert not mark.shared_memories("dr-beck")

def test_the_gate_can_be_left_out():
    with open_mark(":memory:", ScriptedLM(lambda messages: "You're right, thank you."), settings=MarkSettings(gate=False)) as mark:
        assert mark.builder.quarantine.gate is None
    with pytest.raises(ValueError, match="contributors"): MarkSettings(contributors=0)
