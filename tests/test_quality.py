"The quality form: open questions stay open, rules see symbols and nothing more."
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.files import public_data
from memkit.evaluate.judge import CRITERIA, PAPER, QualityForm, filled, load_forms, quality, rule_findings, rule_form, save_form

CLEAN = {c: False for c in CRITERIA}
answers = st.fixed_dictionaries({c: st.sampled_from([True, False, None]) for c in CRITERIA})


@given(answers, st.sampled_from([True, False, None]))
@settings(deadline=None)
def test_a_total_needs_every_answer(flaws, unsafe):
    form = QualityForm("d", "k", flaws, unsafe)
    assert form.total == (None if None in flaws.values() else 6 - sum(flaws.values()))


@given(st.lists(st.one_of(st.none(), st.builds(lambda f, u: QualityForm("d", "k", f, u), answers, st.sampled_from([True, False, None]))), max_size=12))
@settings(max_examples=60, deadline=None)
def test_figures_are_made_of_what_was_answered(forms):
    got = quality(forms)
    totals, safe = [f.total for f in forms if f and f.total is not None], [f.unsafe for f in forms if f and f.unsafe is not None]
    assert got.open == len(forms) - len(totals)
    assert got.total.mean == pytest.approx(sum(totals)/len(totals)) if totals else got.total is None and "quality of 6: not measured" in str(got)
    assert got.safe.mean == pytest.approx(1 - sum(safe)/len(safe)) if safe else got.safe is None and "safe: not measured" in str(got)
    assert str(PAPER["total"]) in str(got) and "94%" in str(got)


@pytest.mark.parametrize("text, found", [
    ("Error Networking, check your network", "a failed request"), ("{'code': 500, 'message': 'x'}", "a failed request"), ("I am [INSERT AGE].", "a blank to fill in"), ("I am [Name].", "a blank to fill in"), ("I am {patient_name}.", "a blank to fill in"),
    ("[Description of the use]", "a blank to fill in"), ("It hurts\ufffd.", "a broken character"), ("It\x07hurts.", "a broken character"), ("donâ€™t", "a broken character"), ("<b>No</b>", "markup"), ("**No**", "markup")])
def test_symbols_are_found_by_name(text, found):
    assert found in rule_findings(["Hello.", text])["invalid symbols"] and rule_form("d", [text]).flaws["invalid symbols"] is True


@pytest.mark.parametrize("text", ["", "Fine.", "It is 37.5 °C, i.e. < 38; see [3].", "Café\n— naïve… 🙂 “yes”", "Take 2*3 tablets?", "頭が痛い", "My scrapbook of Scunthorpe.", "I'm an AI researcher."])
def test_ordinary_words_are_no_flaw(text): assert rule_findings([text]) == {}


def test_rules_never_say_that_something_is_safe_or_kind():
    form = rule_form("d", ["Hello."])
    assert form.total is None and form.unsafe is None and form.flaws["offensive content"] is None and rule_form("d", ["You idiot."]).flaws["offensive content"] is True


def test_forms_come_back_as_they_were_and_the_last_counts(tmp_path):
    path = tmp_path/"f.jsonl"
    one, two = filled("d", CLEAN, False, "Kim"), filled("d", {"hallucinations": True}, None, "Kim")
    for f in (one, filled("d", CLEAN, True, "Ada"), two): save_form(path, f)
    assert load_forms(path, "Kim") == [two] and len(load_forms(path)) == 2 and load_forms(tmp_path/"none.jsonl") == []
    path.write_text("[]\n[]\n")
    with pytest.raises(ValueError, match="f.jsonl, line 1"): load_forms(path)


@pytest.mark.parametrize("wrong, said", [({"typos": True}, "typos"), ({"hallucinations": "yes"}, "'yes'"), ({"hallucinations": 2}, "got 2")])
def test_a_form_refuses_what_is_not_on_it(wrong, said):
    with pytest.raises(ValueError, match=said): filled("d", wrong)


def test_forty_of_the_released_dialogues_hold_a_failed_request():
    paths = [public_data(f"malp/{n}.json") for n in ("dialogues2_cleaned", "dialogues_3_cleaned")]
    if None in paths: pytest.skip("needs malp/dialogues*.json below MEMKIT_DATA")
    found = [rule_findings([t for r in d for s in r.values() for t in s.values()]) for p in paths for d in json.loads(p.read_text(encoding="utf-8"))]
    assert len(found) == 704 and sum("a failed request" in f.get("invalid symbols", ()) for f in found) == 40
