"""Is training on a graphics card the same as on the CPU?

    make gpu-check        python tests/gpu_check.py --json gpu_check.json

Trains a LoRA and an injection adapter on every visible GPU in bf16 and compares their loss curves with the CPU's in
fp32. One line, a JSON file and an exit code say how it went; without a card it says so and skips. The model is small,
with random weights that are the same on every device; it learns a language of numbers.
"""
import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from memkit.benchmarks.models import in_a_process
from memkit.benchmarks.timing import machine, reason_of
from memkit.files import write_file
from memkit.train.loop import TrainSettings, train
from memkit.train.sequences import TokenRow, answer_loss

WORDS = 64
CHECKED = TrainSettings(learning_rate=5e-3, batch=8, epochs=3, look_every=8, room=256)   # ours

def sentences(
    n: int,
    seed: int = 0,
) -> list[TokenRow]:
    """Sentences of a language of numbers: each counts upwards by a stride of 1 to 3, its first four words are only
    read (ours)."""
    rng, out = np.random.default_rng(seed), []
    for _ in range(n):
        row = (int(rng.integers(WORDS)) + int(rng.integers(1, 4))*np.arange(int(rng.integers(8, 40)))) % WORDS
        out.append(TokenRow(row, np.where(np.arange(len(row)) < 4, -100, row)))
    return out


def small_model(
    device: str,  # such as 'cpu' or 'cuda:0'
    dtype: str,   # 'float32' or 'bfloat16'
) -> Any:         # a LLaMA with the same random weights everywhere
    "The model of the check, frozen."
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=WORDS, hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4,
                num_key_value_heads=2, initializer_range=0.1)
        )
    return model.requires_grad_(False).to(device, getattr(torch, dtype)).eval()


def _lora(device: str, dtype: str) -> Any:
    from memkit.train.adapters import LoraShape, lora_model
    return answer_loss(lora_model(small_model(device, dtype), LoraShape()))


def _injection(device: str, dtype: str) -> Any:
    import torch
    from memkit.malp.injection import InjectionSettings, inject, injection_loss
    model, settings = small_model(device, dtype), InjectionSettings()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        inject(model, settings).learn_alone(model)
    return injection_loss(model, settings.sample_weight)

TASKS: dict[str, Callable[[str, str], Any]] = {"LoRA": _lora, "injection": _injection}


def curve(
    task: str,     # a key of `TASKS`
    device: str,
    dtype: str,
) -> dict[str, Any]:  # loss of each step, validation at each look, tokens per second, peak_mb
    "Train for some steps on one device; several processes, if torchrun started them, share the steps."
    objective = TASKS[task](device, dtype)
    done = train(objective, sentences(64), sentences(16, 1), CHECKED, progress=False)
    where = {str(p.device) for p in objective.parameters()}
    alone = int(os.environ.get("WORLD_SIZE", 1)) == 1
    if alone and where != {device if ":" in device or device == "cpu" else f"{device}:0"}:
        raise RuntimeError(f"the model was to train on {device}, but stands on {', '.join(sorted(where))}")
    return {
        "loss": [r["loss"] for r in done.curve[1:]],
        "validation": [r["validation"] for r in done.curve if r["validation"] is not None],
        "tokens_per_s": done.tokens / done.seconds, "peak_mb": done.peak_mb}


# of the loss at the start: the largest difference of two steps; ours, several times what bf16 does on a CPU
TOLERANCE = .05

def apart(
    a: Sequence[float],
    b: Sequence[float],
) -> float:  # 0: the same; inf where one holds what is no number, or another number of steps
    "The largest difference of two curves, as a share of the second's first value (ours)."
    a, b = np.asarray(a, float), np.asarray(b, float)
    if a.shape != b.shape or not len(a) or not (np.isfinite(a).all() and np.isfinite(b).all()): return float("inf")
    return float(np.abs(a - b).max()/abs(b[0]))


def visible() -> list[str]:  # such as ['cuda:0', 'cuda:1']
    "The GPUs that PyTorch sees."
    import torch
    return [f"cuda:{i}" for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []

def _base(task: str) -> dict[str, Any]:
    try: return curve(task, "cpu", "float32")
    except Exception as e: return {"error": reason_of(e)}

def _compared(run: Callable[[], dict[str, Any]], base: dict[str, Any], tolerance: float) -> dict[str, Any]:
    "A run beside the CPU's, with how far apart they are; or the error of either."
    if "error" in base: return base | {"apart": None, "ok": False}
    try: found = run()
    except Exception as e: return {"error": reason_of(e), "apart": None, "ok": False}
    difference = max(apart(found[k], base[k]) for k in ("loss", "validation"))
    if np.isinf(difference): return found | {"error": "the curve holds what is no number", "apart": None, "ok": False}
    said = {} if difference <= tolerance else {"error": f"curves differ by {difference:.3f}"}
    return found | said | {"apart": difference, "ok": not said}


def check_devices(
    devices: Sequence[str] | None = None,  # None: every visible GPU; ['cpu'] tries the same path on the processor
    dtype: str = "bfloat16",  # on the devices
    tolerance: float = TOLERANCE,  # as for `apart`; above 0
) -> dict[str, Any]:  # ready for JSON: outcome ('ok', 'failed' or 'skipped'), reason, machine, tasks
    """Train on each device and on the CPU in fp32, and compare (ours). Raises `ValueError` for a tolerance that can't
    be."""
    import torch
    if not tolerance > 0: raise ValueError(f"tolerance must be above 0, got {tolerance}")
    there = visible()
    devices = there if devices is None else list(devices)
    named = {d: torch.cuda.get_device_name(d) if d in there else {"cpu": "processor"}.get(d, "not there")
             for d in devices}
    out = {"outcome": "skipped", "reason": "", "dtype": dtype, "tolerance": tolerance, "torch": torch.__version__,
           "cuda": torch.version.cuda, "devices": named, "machine": machine(), "tasks": {}}
    if not devices: return out | {"reason": "skipped: no CUDA device"}
    for task in TASKS:
        base = _base(task)
        found = {d: _compared(partial(curve, task, d, dtype), base, tolerance) for d in devices}
        out["tasks"][task] = {"cpu": base, "devices": found}
    bad = [f"{task} on {d}: {r['error']}" for task, t in out["tasks"].items() for d, r in t["devices"].items()
           if not r["ok"]]
    return out | {"outcome": "failed" if bad else "ok", "reason": "; ".join(bad)}


def check_together(
    result: Mapping[str, Any],  # of `check_devices`
    processes: int,             # 2 or more
) -> dict[str, Any]:            # the result with 'together', and with the outcome that follows
    "The LoRA again, by several processes at once (ours)."
    run = partial(in_a_process, ["LoRA", "cpu", "bfloat16"], processes, [__file__, "--worker"], cards=True)
    found = _compared(run, result["tasks"]["LoRA"]["cpu"], result["tolerance"]) | {"processes": processes}
    result = {**result, "together": found}
    if found["ok"]: return result
    said = f"LoRA by {processes} processes: {found['error']}"
    return result | {"outcome": "failed", "reason": "; ".join(filter(None, (result["reason"], said)))}


def line_of(
    result: Mapping[str, Any],
) -> str:
    "The result in one line (ours)."
    if result["outcome"] == "skipped": return f"gpu-check {result['reason']}; training was not tried on a GPU"
    if result["outcome"] == "failed": return f"gpu-check FAILED: {result['reason']}"
    worst = max(r["apart"] for t in result["tasks"].values() for r in t["devices"].values())
    names = ", ".join(f"{d} ({n})" for d, n in result["devices"].items())
    said = f"{' and '.join(result['tasks'])} on {names} in {result['dtype']}"
    return f"gpu-check ok: {said}, curves within {worst:.3f} of the CPU's (allowed {result['tolerance']:g})"


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description="Train a LoRA and an injection adapter on every visible GPU in bf16 and compare the loss curves "
        "with the CPU's.",
    )
    p.add_argument("--json", type=Path, metavar="FILE", help="write the result here")
    p.add_argument("--devices", nargs="+", metavar="DEVICE",
                   help="such as cuda:1, or cpu to try the check itself (default: every visible GPU)")
    p.add_argument("--tolerance", type=float, default=TOLERANCE,
                   help="largest difference of two curves, as a share of the first loss (default: %(default)s)")
    p.add_argument("--worker", help=argparse.SUPPRESS)   # as JSON: the curve that this process trains, one of several
    return p

def _work(task: str, device: str, dtype: str) -> int:
    "One process of several; the first one prints."
    found = curve(task, device, dtype)
    if int(os.environ.get("RANK", 0)) == 0: print(json.dumps(found))
    return 0


def main(
    argv: Sequence[str] | None = None,
) -> int:  # 0: the curves agree, or there is no GPU; 1: they don't, or something failed
    "Check every visible GPU (ours)."
    p = _parser()
    a = p.parse_args(argv)
    if not a.tolerance > 0: p.error(f"--tolerance must be above 0, got {a.tolerance}")
    if a.worker: return _work(*json.loads(a.worker))
    result = check_devices(a.devices, tolerance=a.tolerance)
    cards = [d for d in result["devices"] if d.startswith("cuda")]
    if len(cards) > 1: result = check_together(result, len(cards))
    if a.json: write_file(a.json, json.dumps(result, indent=1) + "\n")
    print(line_of(result))
    return int(result["outcome"] == "failed")


if __name__ == "__main__": sys.exit(main())
