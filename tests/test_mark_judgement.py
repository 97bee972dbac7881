"What became of recalls: counts that never disagree with the log, judgements that can't be forged, and two processes at once."
import subprocess
import sys
import threading
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from memkit.records import new_id
from memkit.store.schema import NotFound, StoreError
from memkit.store.store import Event, MemoryStore
from memkit.mark.corrections import CLASSIFIED, INJECTED, JUDGED, Recall, classification_of, classify, injected, judge_memory, recall_outcomes, record_of, said_again, trust_of
from memkit.mark.refined import DOMAIN, QUESTION, RESIDUAL
from memkit.mark.trust import TrustSettings, new_trust, replay

NOW = datetime(2026, 3, 2, tzinfo=timezone.utc)
USERS = ("ann", "ben", "cleo")


@pytest.fixture(params=["file", "memory"])
def store(request, tmp_path):
    with MemoryStore(tmp_path/"store.db" if request.param == "file" else ":memory:") as s: yield s


def learned(store, owner=DOMAIN, text="Velorin is given twice a day"):
    return store.add(owner, text, kind=RESIDUAL if owner == DOMAIN else QUESTION, meta={"sources": []}).id


def counts(m) -> tuple[int, int, int]: return m.recalls, m.correct, m.incorrect


def sums(lived) -> tuple[int, int, int]: return len(lived), lived.count(True), lived.count(False)


# the log and the counts

class Life(RuleBasedStateMachine):
    "Anything that can happen to a memory, against a plain list of what became of its recalls."
    def __init__(self):
        super().__init__()
        self.store = MemoryStore(":memory:")
        self.ids, self.said, self.at = [learned(self.store) for _ in range(2)], {}, NOW
        self.lived = {id: [] for id in self.ids}     # [who, turn or '', shown, outcome]

    def teardown(self): self.store.close()

    @rule(i=st.integers(0, 1), who=st.sampled_from(USERS), back=st.booleans())
    def show(self, i, who, back):
        self.at += timedelta(days=-400 if back else 1)               # clocks are set back now and then
        turn = new_id("t")
        assert injected(self.store, DOMAIN, [self.ids[i]], turn, who, self.at) == (self.ids[i],)
        assert injected(self.store, DOMAIN, [self.ids[i]], turn, who, self.at) == ()
        self.lived[self.ids[i]].append([who, turn, True, None])

    @rule(i=st.integers(0, 1), who=st.sampled_from(USERS), right=st.booleans(), revise=st.booleans(), reviewer=st.booleans(), nth=st.none() | st.integers(0, 5))
    def judge(self, i, who, right, revise, reviewer, nth):
        id = self.ids[i]
        theirs = [e for e in self.lived[id] if e[0] == who and e[2]]
        named = theirs[nth % len(theirs)] if theirs and nth is not None else None
        entry = named or (theirs[-1] if theirs else None)
        if entry is None and reviewer: entry = next((e for e in self.lived[id] if e[0] == who and not e[1]), [who, "", False, None])
        say = lambda: judge_memory(self.store, DOMAIN, id, who, right, named and named[1], revise, reviewer, self.at)
        if entry is None:
            with pytest.raises(LookupError, match="never shown"): say()
        elif entry[3] not in (None, right) and not revise:
            with pytest.raises(ValueError, match="revise=True"): say()
        else:
            if entry not in self.lived[id]: self.lived[id].append(entry)
            entry[3] = right
            assert counts(say()) == sums([e[3] for e in self.lived[id]])

    @rule(i=st.integers(0, 1), who=st.sampled_from(USERS))
    def say_again(self, i, who):
        id, turn = self.ids[i], new_id("t")
        theirs = [e[3] for e in self.lived[id] if e[0] == who]
        independent = not theirs or [o for o in theirs if o is not None][-1:] == [False]    # or they change their mind
        assert said_again(self.store, DOMAIN, id, turn, who, self.at) is independent
        if independent: self.lived[id].append([who, turn, False, True])

    @rule(i=st.integers(0, 1), label=st.sampled_from(["good", "bad", None]))
    def label(self, i, label):
        for _ in range(2): classify(self.store, DOMAIN, self.ids[i], label, "reviewer", self.at)
        self.said[self.ids[i]] = label

    @invariant()
    def the_log_is_the_record(self):
        events = self.store.events(DOMAIN)
        for id in self.ids:
            lived = tuple(e[3] for e in self.lived[id])
            assert recall_outcomes(events, id) == lived == tuple(r.outcome for r in record_of(events, id))
            assert counts(self.store.get(DOMAIN, id)) == sums(lived)
            assert trust_of(self.store, DOMAIN, id) == replay(lived)
            assert classification_of(events, id) == self.said.get(id)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=15, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([INJECTED, JUDGED, CLASSIFIED, "recalled", "superseded"]), st.integers(1, 3), st.sampled_from("abc"), st.booleans()), max_size=30))
def test_any_log_can_be_read(rows):
    "Whatever order events come in: one outcome for each turn that was shown or judged."
    events = [Event(id=i, user=DOMAIN, at=NOW, kind=kind, memory=m, data={"turn": turn, "by": "x", "right": right, "label": "good"}) for i, (kind, m, turn, right) in enumerate(rows)]
    for m in (1, 2, 3):
        turns = list(dict.fromkeys(e.data["turn"] for e in events if e.memory == m and e.kind in (INJECTED, JUDGED)))
        last = {e.data["turn"]: e.data["right"] for e in events if e.memory == m and e.kind == JUDGED}
        assert recall_outcomes(events, m) == tuple(last.get(t) for t in turns)


def test_a_trust_of_its_own_settings(store):
    id, s = learned(store), TrustSettings(alpha=.5)
    assert trust_of(store, DOMAIN, id) == new_trust()
    injected(store, DOMAIN, [id], new_id("t"), "ann")
    assert trust_of(store, DOMAIN, id, s) == new_trust(s).after(None, s)


# who may say what

def test_unknown_foreign_and_never_shown_memories(store):
    shared, own = learned(store), learned(store, "cleo", "Call me cleo")
    before = store.list(DOMAIN), store.list("cleo"), store.events("cleo")
    for owner, id, by in ((DOMAIN, 999, "ann"), (DOMAIN, own, "ann"), ("ann", own, "ann"), ("ann", shared, "ann"), ("nobody", 1, "nobody")):
        for act in (judge_memory, lambda s, o, i, b, r: said_again(s, o, i, new_id("t"), b), lambda s, o, i, b, r: classify(s, o, i, "good", b), lambda s, o, i, b, r: injected(s, o, [i], new_id("t"), b)):
            with pytest.raises(NotFound): act(store, owner, id, by, True)
    for owner, id, by in ((DOMAIN, shared, "ann"), ("cleo", own, "ann"), ("cleo", own, "cleo")):
        with pytest.raises(LookupError, match="never shown"): judge_memory(store, owner, id, by, True)
    assert (store.list(DOMAIN), store.list("cleo"), store.events("cleo")) == before


def test_a_turn_of_somebody_else_cant_be_judged(store):
    id, turn = learned(store), new_id("t")
    injected(store, DOMAIN, [id], turn, "ann")
    with pytest.raises(LookupError, match="never shown to this user in turn"): judge_memory(store, DOMAIN, id, "ben", True, turn)
    assert counts(judge_memory(store, DOMAIN, id, "ann", True, turn)) == (1, 1, 0)


@pytest.mark.parametrize("right", [None, "yes", 1, 0, 1.])
def test_a_judgement_is_true_or_false(store, right):
    with pytest.raises(TypeError, match="True"): judge_memory(store, DOMAIN, learned(store), "ann", right)


@pytest.mark.parametrize("by", ["", "  ", DOMAIN, "domain:other", "a\0b"])
def test_names_that_cant_be(store, by):
    id = learned(store)
    for act in (lambda: injected(store, DOMAIN, [id], new_id("t"), by), lambda: judge_memory(store, DOMAIN, id, by, True), lambda: classify(store, DOMAIN, id, "good", by), lambda: said_again(store, DOMAIN, id, new_id("t"), by)):
        with pytest.raises(ValueError): act()
    assert counts(store.get(DOMAIN, id)) == (0, 0, 0)


@pytest.mark.parametrize("turn", ["monday", "", None, 7, "t-123"])
def test_turns_that_cant_be(store, turn):
    id = learned(store)
    with pytest.raises(ValueError, match="random identifier"): injected(store, DOMAIN, [id], turn, "ann")
    assert not [e for e in store.events(DOMAIN) if e.kind in (INJECTED, JUDGED)]


def test_all_memories_of_a_turn_or_none(store):
    a, b, turn = learned(store), learned(store), new_id("t")
    with pytest.raises(NotFound): injected(store, DOMAIN, [a, 999, b], turn, "ann")
    assert [m.recalls for m in store.list(DOMAIN)] == [0, 0]
    assert injected(store, DOMAIN, [b, a, b], turn, "ann") == (b, a) and injected(store, DOMAIN, [], turn, "ann") == ()
    assert injected(store, DOMAIN, (i for i in (a, b)), turn, "ann") == ()
    assert [m.recalls for m in store.list(DOMAIN)] == [1, 1]


def test_a_superseded_memory_can_still_be_judged_by_who_saw_it(store):
    a, b = learned(store), learned(store, text="once a day")
    injected(store, DOMAIN, [a], new_id("t"), "ann")
    store.supersede(DOMAIN, a, b, "newer")
    assert counts(judge_memory(store, DOMAIN, a, "ann", False)) == (1, 0, 1)


def test_no_name_in_the_domains_rows(tmp_path):
    with MemoryStore(tmp_path/"store.db") as store:
        id = learned(store)
        injected(store, DOMAIN, [id], new_id("t"), "Annabel Longname")
        judge_memory(store, DOMAIN, id, "Annabel Longname", True); judge_memory(store, DOMAIN, id, "Annabel Longname", False, revise=True)
        classify(store, DOMAIN, id, "bad", "Annabel Longname"); said_again(store, DOMAIN, id, new_id("t"), "Bernard Longname")
    content = b"".join(p.read_bytes() for p in tmp_path.iterdir())
    assert b"Longname" not in content and b"judged" in content


# in a transaction, in threads, in processes

def test_a_failing_transaction_takes_the_judgement_with_it(store):
    id = learned(store)
    with pytest.raises(RuntimeError):
        with store.transaction(DOMAIN):
            injected(store, DOMAIN, [id], new_id("t"), "ann")
            judge_memory(store, DOMAIN, id, "ann", True)
            raise RuntimeError
    assert counts(store.get(DOMAIN, id)) == (0, 0, 0) and recall_outcomes(store.events(DOMAIN), id) == ()


def test_a_closed_store_says_so(store):
    id = learned(store)
    store.close()
    with pytest.raises(StoreError, match="closed"): injected(store, DOMAIN, [id], new_id("t"), "ann")


def test_threads_click_at_once(store):
    "Everybody confirms the same recall at the same moment, and each confirms once."
    id, turns = learned(store), {f"user {i}": new_id("t") for i in range(6)}
    def click(who):
        for _ in range(3):
            injected(store, DOMAIN, [id], turns[who], who)
            judge_memory(store, DOMAIN, id, who, True)
    threads = [threading.Thread(target=click, args=(who,)) for who in turns for _ in range(2)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert counts(store.get(DOMAIN, id)) == (6, 6, 0) and recall_outcomes(store.events(DOMAIN), id) == (True,)*6


SCRIPT = """
import sys
from memkit.store.store import MemoryStore
from memkit.mark.corrections import injected, judge_memory
with MemoryStore(sys.argv[1], timeout=60) as store:
    for turn in sys.argv[3:]:
        injected(store, "domain:shared", [int(sys.argv[2])], turn, "ann")
        judge_memory(store, "domain:shared", int(sys.argv[2]), "ann", True, turn)
"""


def test_two_processes_count_a_turn_once(tmp_path):
    turns = [new_id("t") for _ in range(10)]
    with MemoryStore(tmp_path/"store.db") as store:
        id = learned(store)
        runs = [subprocess.Popen([sys.executable, "-c", SCRIPT, tmp_path/"store.db", str(id), *turns]) for _ in range(2)]
        assert [r.wait(60) for r in runs] == [0, 0]
        assert counts(store.get(DOMAIN, id)) == (10, 10, 0) and recall_outcomes(store.events(DOMAIN), id) == (True,)*10


def test_the_record_says_who_and_where(store):
    id, turn = learned(store), new_id("t")
    injected(store, DOMAIN, [id], turn, "ann"); said_again(store, DOMAIN, id, later := new_id("t"), "ben")
    assert record_of(store.events(DOMAIN), id) == (Recall(turn, store.alias("ann"), True, None), Recall(later, store.alias("ben"), False, True))
