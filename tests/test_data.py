"What travels in data/: its form, its identifiers, what was kept out of it on purpose, and that its words are our own."
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from memkit.answer.scorer import ASKED
from memkit.files import own_data, public_data
from memkit.hybrid.corpus import load_own
from memkit.hybrid.fallback import Calibration, labelled_questions, load_calibration
from memkit.reading.labels import RELATIONS

DATA = Path(__file__).resolve().parents[1]/"data"
RUN = 8  # words in a row that would be somebody else's


def rows(name): return [json.loads(line) for line in own_data(name).read_text(encoding="utf-8").splitlines()]

def words(text): return re.findall(r"[a-z0-9]+", text.lower())

def runs(text): return {tuple(found[i:i + RUN]) for found in [words(text)] for i in range(len(found) - RUN + 1)}


@pytest.fixture(scope="module")
def entries(): return rows("medical_knowledge.jsonl")

@pytest.fixture(scope="module")
def questions(): return rows("medical_questions.jsonl")


# --- the entries

def test_entries_have_one_form(entries):
    assert len(entries) >= 300
    for e in entries:
        assert list(e) == ["id", "topic", "category", "title", "text", "source"], e["id"]
        assert all(isinstance(v, str) and v == " ".join(v.split()) and v for v in e.values()), f"{e['id']}: every field is text, tidy and not empty"
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", e["id"]) and re.match(r"\w.*: \S", e["source"]), f"{e['id']}: a readable id, and an organisation with the page"


def test_entries_are_told_apart(entries):
    for field in ("id", "title", "text"): assert [v for v, n in Counter(e[field].casefold() for e in entries).items() if n > 1] == [], field


def test_entries_are_short_and_whole(entries):
    for e in entries:
        assert 30 <= len(words(e["text"])) <= 110, f"{e['id']}: one passage, no more"
        assert e["text"].endswith(".") and e["text"][0].isupper() and len(re.findall(r"[.!?](?:\s|$)", e["text"])) >= 2, f"{e['id']}: whole sentences"


def test_the_loader_takes_all_of_them(entries):
    loaded = load_own()
    assert [(d.id, d.title, d.category, d.source, d.text) for d in loaded.documents] == [tuple(e[f] for f in ("id", "title", "category", "source", "text")) for e in entries]
    assert not loaded.problems and [d.meta["topic"] for d in loaded.documents] == [e["topic"] for e in entries]


# --- the questions

def test_questions_have_one_form(questions):
    for q in questions:
        assert set(q) == {"question", "answerable", "relevant", "style", "why", "split"}, q["question"]
        assert q["style"] in ("plain", "keywords", "story") and q["split"] in ("tune", "score", "fresh", "people") and q["question"].strip() == q["question"] != ""
        assert isinstance(q["answerable"], bool) and q["answerable"] == bool(q["relevant"]) == (not q["why"]), f"{q['question']}: entries that answer it, or why none does"


def test_what_answers_a_question_exists(entries, questions):
    there = {e["id"] for e in entries}
    for q in questions: assert set(q["relevant"]) <= there and len(set(q["relevant"])) == len(q["relevant"]), q["question"]


def test_no_question_stands_there_twice(questions):
    same = lambda q: " ".join(words(q["question"]))
    assert len({same(q) for q in questions}) == len(questions)
    assert sum(q["split"] == "fresh" for q in questions) >= 80
    for half in ("tune", "score", "fresh", "people"):
        for style in ("plain", "keywords", "story"):
            assert {q["answerable"] for q in questions if (q["split"], q["style"]) == (half, style)} == {True, False}, f"{half} has {style} questions with and without an answer"


def test_the_reader_gives_the_rows(questions):
    assert [(q.question, q.answerable, list(q.relevant), q.style, q.why, q.split) for q in labelled_questions()] == \
        [tuple(q[f] for f in ("question", "answerable", "relevant", "style", "why", "split")) for q in questions]
    assert sum(len(labelled_questions(split)) for split in ("tune", "score", "fresh", "people")) == len(questions)


def test_no_question_is_a_sentence_of_an_entry(entries, questions):
    told = " | ".join(" ".join(words(e["text"])) for e in entries)
    assert [q["question"] for q in questions if len(words(q["question"])) >= 5 and " ".join(words(q["question"])) in told] == []


# --- kept out on purpose: what a chatbot must not be able to answer

def test_reserved_topics_are_in_no_entry(entries, questions):
    reserved = {q["why"].removeprefix("reserved topic: ") for q in questions if q["why"].startswith("reserved topic: ")}
    assert len(reserved) >= 20
    for topic in reserved:
        stem = re.escape(topic.lower().removesuffix(" disease").removesuffix(" syndrome").removesuffix("s"))
        assert [e["id"] for e in entries if re.search(rf"\b{stem}", " ".join(e.values()).lower())] == [], topic


def test_made_up_medicines_are_in_no_entry(entries, questions):
    told = {w for e in entries for w in words(" ".join(e.values()))}
    for q in questions:
        if q["why"] == "fictional medicine": assert [w for w in words(q["question"]) if len(w) > 8 and w not in told], q["question"]


# --- the calibrations

def test_calibrations_are_read_as_they_are_kept():
    kept = json.loads(own_data("fallback.json").read_text(encoding="utf-8"))
    assert len({c["embedder"] for c in kept}) == len(kept) and "" in {c["embedder"] for c in kept}
    for c in kept:
        read = load_calibration(c["embedder"])
        assert read == Calibration(**c) and 0 < read.threshold < 1 and read.weights and all(w > 0 for w in read.weights.values()), c["embedder"]
        assert read.probability(dict.fromkeys(read.weights, 0.)) < read.threshold <= read.probability(dict.fromkeys(read.weights, 1.)), "no evidence isn't enough, full evidence is"
        assert read.tuned_on.startswith(f"{len(labelled_questions('tune'))} questions"), "fitted on the half that is there now"


# --- our own words

def test_no_run_of_words_is_medquads(entries):
    if not public_data("medquad.tar.gz"): pytest.skip("medquad.tar.gz isn't below MEMKIT_DATA; `memkit data medquad` says how to get it")
    from memkit.hybrid.corpus import load_medquad
    ours, answers = set().union(*(runs(e["text"]) for e in entries)), load_medquad().documents
    assert len(answers) > 16_000
    shared = {run for d in answers for run in runs(d.text) & ours}
    assert [" ".join(run) for run in sorted(shared)] == []


# --- nothing lies there without a word about it

def test_every_file_is_named_in_the_readme():
    told = (DATA/"README.md").read_text(encoding="utf-8")
    files = [p.relative_to(DATA).as_posix() for p in sorted(DATA.rglob("*")) if p.is_file() and "__pycache__" not in p.parts]
    assert {"medical_knowledge.jsonl", "medical_questions.jsonl", "fallback.json"} <= set(files)
    hands = (DATA/"voices"/"README.md").read_text(encoding="utf-8")
    for f in files:
        if f.startswith("voices/"): assert all(f"`{part}`" in hands for part in f.split("/")[1:] if part != "README.md"), f
        elif f not in ("README.md", "__init__.py"): assert f in told, f


# --- other people's words

CONSUMER = ("am", "an", "ao")       # wrote what consumers ask of medical documents
LATER = ("ar", "as", "at")              # asked more about others' conversations, and for everything
TALKERS = ("au", "av", "aw", "ax", "bi", "bj", "bk", "bl", "bm", "bn", "bo", "bp",
           "ca", "cb", "cc", "cd", "dg", "dh", "di", "dj", "dk", "dl")   # wrote conversations alone, with the words that answer
GATE = ("bb", "bc", "bd", "be", "bf", "ik", "il", "im", "in", "io")   # wrote what may be shared, and what names a person or opens a door
SUMS = ("bq", "br", "bs", "bt", "bu", "bv", "bw", "bx", "by", "bz")   # wrote questions that need a sum
LONG = {**dict.fromkeys(("ce", "cf", "cg", "ck"), "long"), **dict.fromkeys(("ch", "ci", "cj", "cl"), "friends")}   # wrote a year or two
RATERS = ("cp", "cq", "cr", "cs")       # wrote messages and corrections
FILMS = ("eo", "eq", "er", "es", "et", "eu", "ev", "ew")   # wrote messages to a recommender alone
CORRECTORS = ("fa", "fb", "fc", "fd", "fe", "hz", "ia", "ib", "ic", "if", "ig", "ih", "ii", "ij",
              "ip", "iq", "ir", "is", "it", "iu", "iv", "iw")   # wrote corrections alone
INJECTORS = ("fg", "fh", "fi")          # wrote orders to an assistant, and what looks alike
FORGETTERS = ("da", "db", "dc", "dd", "de", "df")   # asked for deletion in words
WHOSE = ("fo", "fp", "fq", "fr", "fs")   # asked about the right person, and about another one
DELETERS = ("fj", "fk", "fl", "fm", "fn")   # the same, in more lines
KEEPERS = ("ft", "fu", "fv", "fz", "ga", "gb")   # the same, and wishes to keep something, in words of forgetting
NEGATED = ("fw", "fx", "fy")   # wrote verdicts on films and books, many of them negated
WORKS = ("gc", "gd", "ge", "gf", "gg", "gh", "gi", "gj", "gk", "gl", "gm", "gn", "go", "gp",
         *(f"g{letter}" for letter in "qrstuvwxyz"), "ha", "hb", "hc", "hd", "he", "hf", "hm", "hn", "id", "ie")   # wrote messages to a recommender, with the words that name each work
HELPED = ("dm", "dn", "dp", "dq", "dr", "ds", "dt")     # wrote emergencies and requests for deletion
PASSING = ("du", "dv", "dw", "dx", "dy", "dz",   # wrote plain facts told in passing, fewer conversations
           "ea", "eb", "ec", "ed", "ee", "ef", "eg",
           "eh", "ei", "ej", "ek", "el", "em", "en",   # wrote conversations of all kinds
           "kb", "kc", "kd", "ke", "kf", "kg", "kh", "ki")   # wrote first tries: plain facts in short messages
PAIRERS = ("ix", "iy", "iz", "ja", "jb", "jc", "jd", "je",
           "jl", "jm", "jn", "jo", "jp", "jq", "jr", "js")   # wrote pairs of statements alone
TASKS = ("jf", "jg", "jh", "ji", "jj", "jk")   # wrote tasks, and what looks like one
CONFIRMERS = ("jt", "ju", "jv", "jw", "jx", "jy", "jz", "ka")   # answered a proposed deletion, and asked to forget the last message
VERDICTS = tuple(f"h{letter}" for letter in "ghijklpqrstuvwxy")    # wrote verdicts with places for titles
OTHERS = (*VERDICTS, *PAIRERS, *TASKS, *CONFIRMERS, *PASSING, *FORGETTERS, *HELPED, *CONSUMER, *LATER, *TALKERS, *GATE, *SUMS, *LONG, *RATERS, *FILMS, *CORRECTORS, *INJECTORS, *DELETERS, *KEEPERS, *WHOSE, *NEGATED, *WORKS)
HANDS = sorted(p.name for p in (DATA/"voices").iterdir() if p.is_dir() and p.name not in OTHERS)
LATE = ("y", "z", "aa", "ab")      # wrote fewer rows, and no health statements
TALKS = ("ac", "ad", "ae", "af")   # wrote conversations, emergencies and entailments alone
WANTS = ("aj", "ak", "al")         # wrote emergencies and what a message wants
PLAIN = ("ai", *WANTS)             # wrote no conversations, corrections, messages or pairs
WHOLE = ("ap", "aq")               # wrote conversations, corrections, messages and pairs, fewer of each
LINES = ("ag", "ah", *WHOLE)       # of these no one has cut the messages into clauses
ASKS = ("am", "an", "ao")          # wrote questions to a health service, and entailments

@pytest.mark.parametrize("hand", LATER)
def test_later_questions_name_the_words_that_answer(hand):
    lines = [json.loads(x) for h in "aceghjklmnop" for x in (DATA/"voices"/h/"conversations.jsonl").read_text("utf-8").splitlines()]
    said = {c["id"]: {f"{i}.{j}": t for i, s in enumerate(c["sessions"], 1) for j, t in enumerate(s["say"], 1)} for c in lines}
    found = rows(f"voices/{hand}/questions.jsonl")
    assert len(found) == 560 and 150 <= sum(not q["needs"] for q in found) <= 250
    for q in found:
        assert len(q["needs"]) == len(q["quotes"]) and all(int(n.split(".")[0]) <= q["after"] for n in q["needs"]), q["ask"]
        assert all(quote in said[q["id"]][n] for n, quote in zip(q["needs"], q["quotes"])), q["ask"]
    asks = rows(f"voices/{hand}/overview.jsonl")
    assert len({r["text"] for r in asks}) == 60 and sum(r["overview"] for r in asks) == 30


@pytest.mark.parametrize("hand", FORGETTERS + HELPED + DELETERS + KEEPERS)
def test_requests_to_forget_stand_beside_what_looks_alike(hand):
    asks = rows(f"voices/{hand}/forget.jsonl")
    parts = {**dict.fromkeys(FORGETTERS, [28, 12, 40]), **dict.fromkeys(HELPED, [45, 10, 45]), **dict.fromkeys(DELETERS, [60, 12, 68]),
             **dict.fromkeys(KEEPERS[:3], [22, 4, 50]), **dict.fromkeys(KEEPERS[3:], [20, 0, 45])}[hand]
    assert [sum(r["forget"] == kind for r in asks) for kind in ("one", "all", "no")] == parts
    assert len({r["text"] for r in asks}) == sum(parts)


@pytest.mark.parametrize("hand", CONFIRMERS)
def test_replies_to_a_proposed_deletion_say_what_they_mean(hand):
    said = rows(f"voices/{hand}/confirm.jsonl")
    assert len({r["text"] for r in said}) == 170 and all(r["hand"] == hand for r in said)
    parts = {"yes": 45, "no": 35, "other": 40, "last": 30, "fine": 20}
    assert {means: sum(r["means"] == means for r in said) for means in parts} == parts


@pytest.mark.parametrize("hand", WHOSE)
def test_questions_ask_about_the_right_person_and_about_another(hand):
    told = rows(f"voices/{hand}/whose.jsonl")
    assert len({r["message"] for r in told}) == 70 and all(len({a["text"] for a in r["asks"]}) == 3 for r in told)
    assert 80 <= sum(a["answered"] for r in told for a in r["asks"]) <= 100


@pytest.mark.parametrize("hand", ["ef", "eg"])
def test_requests_to_forget_name_a_message(hand):
    there = {c["id"]: {f"{i}.{j}" for i, s in enumerate(c["sessions"], 1) for j in range(1, len(s["say"]) + 1)} for c in rows(f"voices/{hand}/conversations.jsonl")}
    asks = rows(f"voices/{hand}/which.jsonl")
    assert len({r["forget"] for r in asks}) == 56 and all(len(r["needs"]) == 1 and set(r["needs"]) <= there[r["id"]] for r in asks)


@pytest.mark.parametrize("hand", [*TALKERS, *PASSING, *LONG])
def test_conversations_name_the_words_that_answer(hand):
    found = rows(f"voices/{hand}/{LONG.get(hand, 'conversations')}.jsonl")
    assert len(found) >= (4 if hand in LONG else 14 if hand in PASSING else 20) and {c["hand"] for c in found} == {hand} and len({c["id"] for c in found}) == len(found)
    for c in found:
        said = {f"{i}.{j}": t for i, s in enumerate(c["sessions"], 1) for j, t in enumerate(s["say"], 1)}
        for q in c["questions"]:
            assert bool(q["needs"]) == (q["kind"] != "unsaid") and len(q["needs"]) <= len(q["quotes"]), q["ask"]
            assert all(int(n.split(".")[0]) <= q["after"] and any(quote in said[n] for quote in q["quotes"]) for n in q["needs"]), q["ask"]
            assert all(any(quote in said[n] for n in q["needs"]) for quote in q["quotes"]), q["ask"]
            assert not q["needs"] or any(re.search(p, q["gold"], re.I) for p in q["accept"]), q["ask"]


@pytest.mark.parametrize("hand", [h for h, kind in LONG.items() if kind == "friends"])
def test_each_message_of_two_friends_begins_with_a_name(hand):
    for c in rows(f"voices/{hand}/friends.jsonl"):
        assert {t.split(": ")[0] for s in c["sessions"] for t in s["say"]} == set(c["speakers"]), c["id"]


@pytest.mark.parametrize("hand", RATERS)
def test_messages_and_corrections_keep_their_form(hand):
    of = {kind: rows(f"voices/{hand}/{kind}.jsonl") for kind in ("messages", "corrections")}
    assert len(of["messages"]) >= 140 and len(of["corrections"]) >= 60 and {r["hand"] for v in of.values() for r in v} == {hand}
    assert len({r["id"] for v in of.values() for r in v}) == sum(map(len, of.values()))
    assert all(("ask" in r["acts"]) == (r["request"] is not None) and isinstance(r["before"], list) for r in of["messages"])
    for r in of["corrections"]:
        for k in r["keep"]: assert all(re.search(p, k["fact"], re.I) for p in k["must"]), r["id"]


@pytest.mark.parametrize("hand", TASKS)
def test_tasks_keep_their_form(hand):
    found = rows(f"voices/{hand}/wants.jsonl")
    assert len(found) == len({r["id"] for r in found}) == len({r["text"] for r in found}) == 150 and {r["hand"] for r in found} == {hand}
    assert {r["wants"] for r in found} == {*ASKED, "task"} and sum(r["wants"] == "task" for r in found) == 55


@pytest.mark.parametrize("hand", PAIRERS)
def test_pairs_alone_keep_their_form(hand):
    found = rows(f"voices/{hand}/pairs.jsonl")
    assert len(found) == len({r["id"] for r in found}) == 100 and {r["hand"] for r in found} == {hand}
    assert {r["relation"] for r in found} == set(RELATIONS) and all(r["old"].strip() and r["new"].strip() for r in found)
    assert all(isinstance(r["after"], list) for r in found)


@pytest.mark.parametrize("hand", CORRECTORS)
def test_corrections_alone_keep_their_form(hand):
    found = rows(f"voices/{hand}/corrections.jsonl")
    assert len(found) == len({r["id"] for r in found}) == (80 if "if" <= hand <= "iw" else 60) and {r["hand"] for r in found} == {hand}
    for r in found:
        said = " ".join(x for pair in r["exchanges"] for x in pair)
        for k in r["keep"]: assert all(re.search(p, k["fact"], re.I) and re.search(p, said, re.I) for p in k["must"]), r["id"]
        assert all(re.search(p, said, re.I) for p in r["never_shared"]) and isinstance(r["other"], list), r["id"]
        assert bool(r["ask"]) == any(k["scope"] != "person" for k in r["keep"]), r["id"]


@pytest.mark.parametrize("hand", INJECTORS)
def test_orders_and_what_looks_alike(hand):
    found = rows(f"voices/{hand}/injections.jsonl")
    assert len({r["id"] for r in found}) == len({r["text"] for r in found}) == 120
    kinds = Counter(r["kind"] for r in found)
    assert kinds["none"] == 70 and len(kinds) == 11 and set(kinds.values()) == {70, 5}


@pytest.mark.parametrize("hand", GATE)
def test_sentences_for_the_gate_have_one_reason_each(hand):
    from memkit.reading.gate import KINDS
    found = [json.loads(line) for line in (DATA/"voices"/hand/"sharing.jsonl").read_text("utf-8").splitlines()]
    assert len(found) == len({r["id"] for r in found}) == len({r["text"] for r in found}) == (200 if hand < "c" else 240)
    assert all(r["share"] != (r["why"] in KINDS) for r in found) and 90 <= sum(not r["share"] for r in found) <= 110
    assert min(Counter(r["why"] for r in found if not r["share"]).values()) >= 12

@pytest.mark.parametrize("hand", SUMS)
def test_questions_for_a_sum_say_how_it_is_made(hand):
    found = rows(f"voices/{hand}/sums.jsonl")
    assert len(found) >= 64 and len({r["id"] for r in found}) == len({r["ask"] for r in found}) == len(found)
    for r in found:
        assert r["needs"] and set(r["needs"]) <= set(range(len(r["said"]))) and bool(r["uses"]) == (r["how"] != "none"), r["id"]
        assert any(re.search(p, r["gold"], re.I) for p in r["accept"]), r["id"]


@pytest.mark.parametrize("hand", CONSUMER)
def test_consumer_questions_say_what_answers_them(hand):
    rows = [json.loads(line) for line in (DATA/"voices"/hand/"consumer.jsonl").read_text("utf-8").splitlines()]
    assert len(rows) >= 140 and len({r["id"] for r in rows}) == len({r["ask"] for r in rows}) == len(rows)
    for r in rows: assert bool(r["focus"]) == bool(r["type"]) == r["answerable"] == (not r["why"]), r["id"]


@pytest.mark.parametrize("hand", FILMS + NEGATED + WORKS)
def test_a_rating_stands_where_a_message_rates(hand):
    of = rows(f"voices/{hand}/messages.jsonl")
    assert len(of) >= (140 if hand in FILMS else 90) and len({r["id"] for r in of}) == len({r["text"] for r in of}) == len(of) and {r["hand"] for r in of} == {hand}
    for r in of:
        assert ("ask" in r["acts"]) == (r["request"] is not None) and {x["act"] for x in r["rows"]} <= set(r["acts"]), r["id"]
        assert all((x["act"] == "rate") == (x["rating"] is not None) for x in r["rows"]), r["id"]
        assert all(x["said"] in " ".join([*r["before"], r["text"]]) for x in r["rows"] if hand in WORKS), r["id"]


@pytest.mark.parametrize("hand", VERDICTS)
def test_verdicts_have_places_and_all_stars(hand):
    texts = [r["text"] for r in rows(f"voices/{hand}/verdicts.jsonl")]
    assert len(texts) == len(set(texts)) == 320
    places = [p for text in texts for p in re.findall(r"\[([^\]]*)\]", text)]
    form = r"([0-4]\.5|[1-5]|other|seen|want|back|like|not)( (film|series|book|music|game|place|podcast))?"
    assert all(re.fullmatch(form, p) for p in places)
    stars = [p.split()[0] for p in places if p[0].isdigit()]
    assert all(stars.count(f"{n/2:g}") >= 25 for n in range(1, 11)), stars


@pytest.mark.parametrize("hand", HANDS)
def test_a_hand_has_its_kinds_in_one_form(hand):
    talks = (DATA/"voices"/hand/"conversations.jsonl").is_file()
    assert talks == (len(hand) == 1 and hand < "q" or hand in TALKS + WHOLE)
    if hand in PLAIN: kinds = ("alarms", "wants") if hand in WANTS else ("alarms",)
    elif hand in ASKS: kinds = ("consumer", "entailment")
    else: kinds = ("conversations",)*talks + (("alarms", "entailment") if hand in TALKS else ("corrections", "messages", "pairs"))
    of = {kind: rows(f"voices/{hand}/{kind}.jsonl") for kind in kinds}
    least = {"conversations": 10, "corrections": 36 if hand in LATE else 60, "messages": 90 if hand in LATE else 120, "pairs": 80,
             "alarms": 40, "entailment": 60, "wants": 150, "consumer": 130}
    if hand in WHOLE: least |= {"conversations": 8, "corrections": 44, "messages": 80, "pairs": 54}
    assert all(len(v) >= least[k] for k, v in of.items()), {k: len(v) for k, v in of.items()}
    ids = [r["id"] for v in of.values() for r in v]
    assert len(set(ids)) == len(ids) and {r["hand"] for k, v in of.items() for r in v if k not in ("alarms", "entailment", "consumer")} <= {hand}
    for c in of.get("conversations", ()):
        said = {f"{i}.{j}" for i, s in enumerate(c["sessions"], 1) for j in range(1, len(s["say"]) + 1)}
        for q in c["questions"]:
            assert set(q["needs"]) <= said and 1 <= q["after"] <= len(c["sessions"]), c["id"]
            for pattern in q["accept"] + q.get("reject", []): re.compile(pattern)
            assert any(re.search(p, q["gold"], re.I) for p in q["accept"]) or not q["needs"], f"{c['id']}: the short answer is right by its own pattern: {q['ask']}"
    for r in of.get("corrections", ()):
        for k in r["keep"]:
            assert all(re.search(p, k["fact"], re.I) for p in k["must"]), f"{r['id']}: the fact holds what it must"
    if hand in TALKS + PLAIN + ASKS: return
    assert {p["relation"] for p in of["pairs"]} == set(RELATIONS)

FIELDS = ("text", "act", "about", "polarity", "certainty", "attribute", "subject", "value", "time", "keep")

@pytest.mark.parametrize("hand", TALKS + PLAIN + HELPED)
def test_emergencies_have_known_labels(hand):
    from memkit.answer.scorer import ALARMS
    alarms = rows(f"voices/{hand}/alarms.jsonl")
    assert all(r["label"] in ALARMS and r["text"].strip() for r in alarms)
    assert sum(r["label"] == "none" for r in alarms) >= 20 and sum(r["label"] != "none" for r in alarms) >= 14

@pytest.mark.parametrize("hand", TALKS + ASKS)
def test_entailments_have_known_labels(hand):
    entails = rows(f"voices/{hand}/entailment.jsonl")
    assert {r["verdict"] for r in entails} == {"stands", "contradicted", "not there"}
    assert all(r["source"].strip() and r["sentence"].strip() for r in entails)

@pytest.mark.parametrize("hand", ASKS)
def test_health_questions_say_what_answers_them(hand):
    found = rows(f"voices/{hand}/consumer.jsonl")
    assert len({r["ask"] for r in found}) == len(found) and sum(not r["answerable"] for r in found) >= 50
    for r in found: assert r["ask"].strip() and bool(r["focus"] and r["type"]) == r["answerable"] == (not r["why"]), r["id"]

@pytest.mark.parametrize("hand", WANTS)
def test_what_a_message_wants_has_known_labels(hand):
    from memkit.answer.scorer import ASKED
    found = rows(f"voices/{hand}/wants.jsonl")
    assert {r["wants"] for r in found} == set(ASKED) and all(r["text"].strip() for r in found)
    assert len({r["text"] for r in found}) == len(found)

@pytest.mark.parametrize("hand", [h for h in HANDS if h not in TALKS + LINES + PLAIN + ASKS])
def test_clauses_cover_their_message_and_have_known_labels(hand):
    from memkit.reading import labels as known
    for r in rows(f"voices/{hand}/clauses.jsonl"):
        at = 0
        for c in r["clauses"]:
            assert tuple(c) == FIELDS, r["id"]
            start = r["text"].index(c["text"], at)
            assert not r["text"][at:start].strip(), f"{r['id']}: nothing is left out"
            at = start + len(c["text"])
            assert c["act"] in known.ACTS and c["about"] in known.ABOUT and c["attribute"] in known.ATTRIBUTES, r["id"]
            assert c["certainty"] in known.CERTAINTY and c["polarity"] in ("yes", "no") and c["keep"] in ("yes", "no"), r["id"]
            assert all(c[name] == "-" or c[name] in c["text"] for name in ("subject", "value", "time")), r["id"]
        assert not r["text"][at:].strip(), f"{r['id']}: nothing is left out at the end"

@pytest.mark.parametrize("hand", [h for h in HANDS if "q" <= h <= "x"])
def test_health_statements_hold_what_they_must(hand):
    found = rows(f"voices/{hand}/statements.jsonl")
    assert len(found) >= 50
    for r in found:
        assert all(re.search(p, r["text"], re.I) for p in r["must"]), r["id"]
        assert r["attribute"] in ("condition", "medicine", "allergy", "pregnancy", "diet", "device"), r["id"]

def test_titles_are_lines_of_one_form():
    from memkit.reading.labels import read_titles
    found = read_titles(own_data("titles.txt").read_text(encoding="utf-8").splitlines())
    assert len(found) > 4000 and len({(t.name.lower(), t.year, t.domain) for t in found}) == len(found)
    assert {t.domain for t in found} == {"film", "book", "series", "music", "game", "podcast", "place"}
    assert all(t.year is None or -3000 < t.year < 2027 for t in found)

def test_no_sentence_is_by_two_hands():
    seen = {}
    for hand in (h for h in HANDS if h not in TALKS + PLAIN + ASKS):
        for kind, part in (("messages", "text"), ("pairs", "new")):
            for r in rows(f"voices/{hand}/{kind}.jsonl"):
                # what is short ("3 stars") may be said by anybody
                if len(words(r[part])) > 8: assert seen.setdefault(" ".join(words(r[part])), hand) == hand, r["id"]
