"A user's own weights: what they learn from, how a training can go wrong, and what is left in the store then."
import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest

from memkit.cli import main as memkit_main
from memkit.train.adapters import AdapterError, AdapterStore
from memkit.models.local import LocalLM
from memkit.store.store import MemoryStore
from memkit.train.loop import NotFinite
from memkit.malp import open_malp
from memkit.malp.assistant import MalpAssistant
from memkit.malp.memories import DPeMMemory, NoMemory
from memkit.malp.personalize import (EXIT, PAPER_LORA, TRAINING, Busy, LoraSettings, TooLittle, lease, leave_training, lessons, load_base, main, personalize,
                                       training_queue, tune)
from memkit.store.jobs import all_jobs, jobs, leave_job, serve
from memkit.malp.personalize import dialogues, note_examples, note_questions, statement
from memkit.malp.patients import simulate

FEW = LoraSettings(epochs=2, questions=4, least=6, share=1., patience=None)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    "A model of two small layers in a folder, with the embedded model's tokenizer."
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    tokenizer, folder = LocalLM.embedded().load()[1], tmp_path_factory.mktemp("base")
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                 max_position_embeddings=2048, bos_token_id=1, eos_token_id=2, pad_token_id=2)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def patient(): return simulate(1, seed=3, n_visits=2, split="train")[0]


def studied(store, base, embedder, patient, memory=None):
    assistant = MalpAssistant(memory or DPeMMemory(store, embedder), LocalLM(str(base)))
    for i, v in enumerate(patient.visits): assistant.study(patient.id, v.rounds, f"s-{i}")
    return assistant


@pytest.fixture
def ann(base, embedder, patient): return studied(MemoryStore(":memory:"), base, embedder, patient)


def lm(base): return LocalLM(str(base))


def test_every_statement_is_said_to_the_user():
    for said, want in (("I'm 52 now, doctor, not twenty.", "You're 52 now, doctor."), ("Well, I walk by the canal for an hour a day.", "You walk by the canal for an hour a day."),
                       ("my great love is gardening", "Your great love is gardening."), ("Good morning, I've brought my glasses this time.", "You've brought your glasses this time.")):
        assert statement(said) == want
    for nothing in ("", "The tram was late.", "Do I need it?", 'Asked "And coffee?", the user answered "None."', "İçin"): assert statement(nothing) == ""


def test_questions_are_the_same_each_time_and_never_more_than_asked_for(ann, patient):
    memories = ann.store.list(patient.id)
    assert note_questions(memories, 3) == note_questions(memories, 3) and len(note_questions(memories, 3)) == 3
    assert note_questions(memories, 0) == [] == note_examples(ann, patient.id, 0)
    assert {q.memory for q in note_questions(memories)} <= {m.id for m in memories}


def test_what_the_model_said_itself_is_never_learned(ann, patient):
    before = sum(map(len, dialogues(ann.store, patient.id)))
    ann.settings = type(ann.settings)(answer_tokens=3)
    ann.chat(patient.id, "Hello there.")
    assert sum(map(len, dialogues(ann.store, patient.id))) == before == 12 and len(ann.store.turns(patient.id)) == 13


def test_the_last_rounds_are_held_out_and_the_split_is_the_same_each_time(ann, patient, base):
    tokenizer = lm(base).load()[1]
    a, b = (lessons(ann, patient.id, tokenizer, FEW) for _ in range(2))
    assert a.digest == b.digest and a.rounds == 10
    text = tokenizer.decode(np.concatenate([e.ids for e in a.train]))
    last = [t for d in dialogues(ann.store, patient.id) for t in d][-2:]
    assert not any(t.answer in text for t in last)
    held = tokenizer.decode(np.concatenate([e.ids for e in a.held_out]))
    assert all(t.answer.strip() in held for t in last)


def test_a_memory_without_notes_gives_dialogues_alone(base, embedder, patient):
    store = MemoryStore(":memory:")
    assistant = studied(store, base, embedder, patient, NoMemory(store))
    found = lessons(assistant, patient.id, lm(base).load()[1], FEW)
    assert found.questions == 0 and found.rounds == 10


def test_too_little_says_how_much_is_needed(ann, patient, base):
    with pytest.raises(TooLittle, match="answered 12 .* 24 are needed"): personalize(ann, patient.id, lm(base))
    assert ann.store.state(patient.id, "training") is None


@pytest.mark.parametrize("wrong", [{"held_out": 1.}, {"least": 1}, {"questions": -1}, {"learning_rate": 0.}, {"epochs": 0}])
def test_settings_that_cannot_be(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must"): LoraSettings(**wrong)


def test_the_papers_settings(): assert (PAPER_LORA.learning_rate, PAPER_LORA.rank, PAPER_LORA.alpha, PAPER_LORA.weight_decay, PAPER_LORA.warmup, PAPER_LORA.questions) == (5e-5, 8, 32, 1e-4, .1, 0)


def test_the_same_training_twice_gives_the_same_weights_and_leaves_the_model_alone(ann, patient, base):
    model = lm(base)
    before, data = model.perplexity(["How are you?"]), lessons(ann, patient.id, model.load()[1], FEW)
    a, b = (tune(model, data, FEW, progress=False) for _ in range(2))
    assert all(np.array_equal(a.weights[k], b.weights[k]) for k in a.weights) and any(np.abs(w).max() > 0 for k, w in a.weights.items() if "lora_B" in k)
    assert model.perplexity(["How are you?"]) == before
    assert a.after < a.before and a.card["base"] and a.card["data"]["blake2b"] == data.digest


def test_a_kept_adapter_changes_this_users_answers_and_nobody_elses(base, embedder, patient):
    assistant = open_malp(MemoryStore(":memory:"), lm(base))
    for v in patient.visits: assistant.study(patient.id, v.rounds)
    of = lambda user: assistant.model_for(user).perplexity(["How are you today?"])[0]
    base_says, done = of(patient.id), personalize(assistant, patient.id, lm(base), FEW, progress=False)
    assert done.saved and of(patient.id) != base_says == of("somebody else")
    receipt = assistant.forget(patient.id)
    assert receipt.removed["adapters"] == 1 and "1 adapter" in str(receipt) and of(patient.id) == base_says


def test_forgetting_one_memory_takes_the_weights_too(ann, patient, base):
    assert personalize(ann, patient.id, lm(base), FEW, progress=False).saved
    first = ann.store.list(patient.id)[0].id
    assert ann.forget(patient.id, [first]).removed["adapters"] == 1 and AdapterStore(ann.store).card(patient.id) is None


def test_weights_that_learned_from_what_was_forgotten_meanwhile_are_not_kept(ann, patient, base):
    def forget(row):
        if row["step"] == 2: ann.store.forget(patient.id, [ann.store.list(patient.id)[0].id])
    with pytest.raises(ValueError, match="forgotten something"): personalize(ann, patient.id, lm(base), FEW, progress=False, log=forget)
    assert AdapterStore(ann.store).card(patient.id) is None and ann.store.adapter(patient.id, "training") is None


def test_a_loss_that_is_no_number_keeps_the_last_good_weights(ann, patient, base):
    good = personalize(ann, patient.id, lm(base), FEW, progress=False).saved
    with pytest.raises(NotFinite): personalize(ann, patient.id, lm(base), LoraSettings(learning_rate=1e30, epochs=2, questions=4, least=6, share=1.), progress=False)
    assert AdapterStore(ann.store).card(patient.id) == good and ann.store.state(patient.id, "training") is None and ann.store.adapter(patient.id, "training") is None


def test_an_adapter_of_another_base_is_refused_by_name(ann, patient, base):
    assert personalize(ann, patient.id, lm(base), FEW, progress=False).saved
    other = open_malp(ann.store, "embedded")
    with pytest.raises(AdapterError, match="belongs to the base"): other.model_for(patient.id)
    assert open_malp(ann.store, "embedded", weights=False).model_for(patient.id).name


def test_weights_of_another_base_do_not_stand_in_the_way_of_new_ones(base, embedder, patient, tmp_path):
    import torch
    model, tokenizer = lm(base).load()
    with torch.no_grad(): model.model.norm.weight += .5
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assistant = open_malp(MemoryStore(":memory:"), lm(base))
    for v in patient.visits: assistant.study(patient.id, v.rounds)
    first = personalize(assistant, patient.id, lm(base), FEW, progress=False).saved
    other = open_malp(assistant.store, LocalLM(str(tmp_path)))
    second = personalize(other, patient.id, LocalLM(str(tmp_path)), FEW, progress=False).saved
    assert first.base != second.base == AdapterStore(assistant.store).card(patient.id).base and other.model_for(patient.id)


def test_two_trainings_of_one_user(ann, patient, base):
    with lease(ann.store, patient.id):
        with pytest.raises(Busy, match="wait until"): personalize(ann, patient.id, lm(base), FEW, progress=False)
        with lease(ann.store, "somebody else"): pass
    assert personalize(ann, patient.id, lm(base), FEW, progress=False).saved


def test_a_lease_ends_by_itself_although_its_process_number_lives(ann, patient):
    def held(seconds): return leave_job(ann.store, patient.id, TRAINING, "train", who=f"elsewhere-{os.getpid()}-1", seconds=seconds)
    held(60)
    with pytest.raises(Busy, match="wait until"), lease(ann.store, patient.id): pass
    held(-1)
    with lease(ann.store, patient.id): assert jobs(ann.store, patient.id, TRAINING)[0].state == "running"
    assert jobs(ann.store, patient.id, TRAINING) == []


def test_a_training_that_was_left_is_done_by_the_worker(base, embedder, patient):
    ann = open_malp(MemoryStore(":memory:"), lm(base), embedder=embedder)
    for v in patient.visits: ann.study(patient.id, v.rounds)
    assert leave_training(ann.store, patient.id) == leave_training(ann.store, patient.id, FEW)
    leave_training(ann.store, "nobody")
    queue = training_queue(ann)
    serve([ann.queue, queue], once=True, say=print)
    assert AdapterStore(ann.store).card(patient.id).card["settings"]["least"] == FEW.least and jobs(ann.store, patient.id) == [] and (queue.done, queue.failed) == (1, 1)
    job, = all_jobs(ann.store, TRAINING)
    assert (job.user, job.error, job.state) == ("nobody", "TooLittle", "waiting")
    queue.close()


def test_the_settings_of_a_training_outlive_its_process(ann, patient):
    with lease(ann.store, patient.id, FEW), lease(ann.store, "nobody"):
        job, other = all_jobs(ann.store, TRAINING)
        assert job.data["epochs"] == FEW.epochs and tuple(job.data["targets"]) == FEW.targets and other.data == {}
        assert leave_training(ann.store, patient.id, LoraSettings()) == job.id and jobs(ann.store, patient.id, TRAINING) == [job]


def test_no_better_is_not_kept(ann, patient, base):
    done = personalize(ann, patient.id, lm(base), LoraSettings(learning_rate=30., epochs=1, questions=0, least=6, share=1.), progress=False)
    assert (done.saved is None) == (done.tuned.training.step == 0) and done.tuned.after <= done.tuned.before


def test_a_killed_run_goes_on_and_ends_as_if_nothing_had_happened(tmp_path, base, embedder, patient):
    whole, killed = tmp_path/"whole.sqlite3", tmp_path/"killed.sqlite3"
    for path in (whole, killed): studied(MemoryStore(path), base, embedder, patient).store.close()
    script = f"""
import os, sys
from memkit.store.store import MemoryStore
from memkit.models.local import LocalLM
from memkit.malp import open_malp
from memkit.malp.personalize import LoraSettings, personalize
a = open_malp({str(killed)!r}, {str(base)!r})
def log(row):
    if row["step"] == 4: os._exit(9)
personalize(a, {patient.id!r}, LocalLM({str(base)!r}), LoraSettings(epochs=2, questions=4, least=6, share=1., patience=None), progress=False, log=log)
"""
    assert subprocess.run([sys.executable, "-c", script], env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode == 9
    store = MemoryStore(killed)
    assert jobs(store, patient.id, TRAINING)[0].state == "waiting" and store.adapter(patient.id, "training") and AdapterStore(store).card(patient.id) is None
    weights = []
    for path in (whole, killed):
        done = personalize(open_malp(MemoryStore(path), str(base)), patient.id, lm(base), FEW, progress=False)
        weights.append(done.tuned.weights)
    assert done.tuned.training.resumed > 0 and store.adapter(patient.id, "training") is None
    assert all(np.allclose(weights[0][k], weights[1][k], atol=1e-6) for k in weights[0])


def run(*argv, capsys):
    code = main([*map(str, argv)])
    out = capsys.readouterr()
    return code, [json.loads(line) for line in out.out.splitlines()], out.err


def test_the_command_line(tmp_path, base, embedder, patient, capsys):
    store = tmp_path/"m.sqlite3"
    studied(MemoryStore(store), base, embedder, patient).store.close()
    common = ("--user", patient.id, "--store", store, "--model", base, "--quiet")
    code, said, err = run(*common, capsys=capsys)
    assert code == EXIT["too little data"] and "24 are needed" in err and said[0]["event"] == "settings" and said[0]["learning_rate"] == LoraSettings().learning_rate
    code, said, err = run(*common, "--least", 6, "--epochs", 1, "--questions", 2, "--share", 1, "--log", tmp_path/"log.jsonl", capsys=capsys)
    assert code == EXIT["saved"] and said[-1]["saved"] and said[-1]["rounds"] == 10 and math.isfinite(said[-1]["after"])
    rows = [json.loads(line) for line in (tmp_path/"log.jsonl").read_text().splitlines()]
    assert [r["event"] for r in rows][0] == "settings" and [r["event"] for r in rows][-1] == "result" and sum(r["event"] == "look" for r in rows) == 2
    assert AdapterStore(MemoryStore(store)).card(patient.id).size == said[-1]["bytes"]
    assert run(*common, "--least", 6, "--epochs", 3, "--questions", 0, "--learning-rate", 1e30, capsys=capsys)[0] == EXIT["loss not finite"]
    with lease(MemoryStore(store), patient.id): assert run(*common, "--least", 6, capsys=capsys)[0] == EXIT["being trained"]
    later = ("--user", patient.id, "--store", store, "--later", "--epochs", 1, "--questions", 2, "--least", 6, "--rank", 4)
    code, said, _ = run(*later, capsys=capsys)
    assert code == 0 and [j.id for j in jobs(MemoryStore(store), patient.id, TRAINING)] == [said[-1]["job"]]
    for wrong in (["--model", base], ["--injected"], ["--fresh"]):
        code, _, err = run(*later, *wrong, capsys=capsys)
        assert code == EXIT["error"] and "don't go with --later" in err
    assert memkit_main(["work", "--assistant", "malp", "--store", str(store), "--model", str(base), "--once"]) == 0
    assert capsys.readouterr().out.startswith("1 done") and AdapterStore(MemoryStore(store)).card(patient.id).card["shape"]["rank"] == 4
    assert run("--user", "ann", "--store", tmp_path/"m.sqlite3", "--model", tmp_path/"none", capsys=capsys)[0] == EXIT["error"]


@pytest.mark.parametrize("later", [[], ["--later"]])
def test_no_store_is_made_at_a_mistyped_path(tmp_path, later, capsys):
    code, _, err = run("--user", "ann", "--store", tmp_path/"typo.sqlite3", *later, capsys=capsys)
    assert code == EXIT["error"] and "there is no store at" in err and not list(tmp_path.glob("typo*"))


@pytest.mark.parametrize("argv", [[], ["--user"], ["--user", "u", "--epochs", "many"]])
def test_wrong_use_is_told_as_argparse_does(argv, capsys):
    with pytest.raises(SystemExit) as e: main(argv)
    assert e.value.code == EXIT["usage"]


def test_help_names_the_exit_codes(capsys):
    with pytest.raises(SystemExit): main(["--help"])
    assert "3 too little data" in " ".join(capsys.readouterr().out.split())


def test_a_served_model_cannot_be_trained():
    with pytest.raises(ValueError, match="served elsewhere"): load_base("http://127.0.0.1:9/v1#m")
