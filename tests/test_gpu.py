"The check of graphics cards: its path on a processor, curves that don't agree, machines without a card."
import json
import subprocess
import sys

import pytest

import gpu_check as gpu


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    import torch
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def found(): return gpu.check_devices(["cpu"])


def test_the_same_path_on_a_processor(found):
    assert found["outcome"] == "ok" and found["reason"] == "" and set(found["tasks"]) == {"LoRA", "injection"}
    for task in found["tasks"].values():
        row = task["devices"]["cpu"]
        assert row["ok"] and 0 < row["apart"] <= found["tolerance"] and len(row["loss"]) == len(task["cpu"]["loss"]) == 24
    assert found["tasks"]["LoRA"]["cpu"]["loss"][-1] < found["tasks"]["LoRA"]["cpu"]["loss"][0]*.8
    assert "curves within" in gpu.line_of(found) and json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_machine_without_a_card_says_so_and_passes(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu, "visible", lambda: [])
    assert gpu.main(["--json", str(tmp_path/"g.json")]) == 0
    told = json.loads((tmp_path/"g.json").read_text())
    assert told["outcome"] == "skipped" and told["reason"] == "skipped: no CUDA device" and told["tasks"] == {}
    assert capsys.readouterr().out.count("\n") == 1


def another(monkeypatch, change):
    "The devices' curves, changed."
    fake = {"loss": [4., 3., 2.], "validation": [4., 2.], "tokens_per_s": 1., "peak_mb": 1.}
    monkeypatch.setattr(gpu, "curve", lambda task, device, dtype: fake if (device, dtype) == ("cpu", "float32") else change(fake))


@pytest.mark.parametrize("change, why", [(lambda f: f | {"loss": [4., 3., 2.5]}, "differ by 0.125"), (lambda f: f | {"validation": [4., float("nan")]}, "no number"), (lambda f: f | {"loss": [4., 3.]}, "no number")])
def test_curves_that_differ_end_with_1(monkeypatch, change, why, tmp_path, capsys):
    another(monkeypatch, change)
    assert gpu.main(["--devices", "cpu", "--json", str(tmp_path/"g.json")]) == 1
    assert why in capsys.readouterr().out and json.loads((tmp_path/"g.json").read_text())["outcome"] == "failed"


def test_what_fails_on_a_device_is_told(monkeypatch, capsys):
    def broken(f): raise RuntimeError("out of memory")
    another(monkeypatch, broken)
    assert gpu.main(["--devices", "cpu"]) == 1 and "LoRA on cpu: RuntimeError: out of memory" in capsys.readouterr().out


def test_small_differences_pass(monkeypatch):
    another(monkeypatch, lambda f: f | {"loss": [4., 3.1, 2.]})
    found = gpu.check_devices(["cpu"])
    assert found["outcome"] == "ok" and abs(found["tasks"]["LoRA"]["devices"]["cpu"]["apart"] - .025) < 1e-9


def test_several_processes_at_once(found):
    both = gpu.check_together(found, 2)
    assert both["outcome"] == "ok" and both["together"]["ok"] and both["together"]["processes"] == 2, both["reason"]


def test_a_device_that_is_not_there(): assert gpu.check_devices(["cuda:99"])["outcome"] == "failed"


def test_bad_input(capsys):
    for bad in (["--tolerance", "0"], ["--tolerance", "x"], ["--nothing"]):
        with pytest.raises(SystemExit) as e: gpu.main(bad)
        assert e.value.code == 2
    with pytest.raises(ValueError, match="above 0"): gpu.check_devices([], tolerance=-1)


def test_help_by_name():
    run = subprocess.run([sys.executable, gpu.__file__, "--help"], capture_output=True, text=True)
    assert run.returncode == 0 and "--json" in run.stdout and "worker" not in run.stdout
