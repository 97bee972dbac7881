"""Sixty orders to an assistant, written by others, through four channels: what gets through (data/voices/bb and bc).

    python tests/injections.py [N]     the first N of each hand; prints a table

`system`: the order's words stand in the system part of a prompt. `shared`: a colleague's prompt holds them, by way of MARK's shared memory.
The model is scripted: what is counted is where the words get to, not whether a model would obey.
"""
import json
import sys
from dataclasses import replace
from pathlib import Path

from memkit.models.lm import ScriptedLM
from memkit.records import Document
from memkit.hybrid import open_chatbot
from memkit.mark import open_mark
from memkit.turn.assistants import design, open_assistant

ROOT = Path(__file__).resolve().parents[1]


def attacks(n: int = 30) -> list[str]:
    files = (ROOT/"data"/"voices"/hand/"injections.jsonl" for hand in ("bb", "bc"))
    return [json.loads(line)["text"] for f in files for line in f.read_text("utf-8").splitlines()[:n]]


class Watched:
    "A model that notes which of the words it sees where."
    def __init__(self): self.system, self.all = "", ""
    def __call__(self, messages):
        self.system = " ".join(" ".join(m.text for m in messages if m.role == "system").split())
        self.all = " ".join(" ".join(m.text for m in messages).split())
        return "I see."


def holds(where: str, text: str) -> bool:
    "Eight words of the order in a row, or all of it."
    words = text.split()
    return any(" ".join(words[i:i + 8]) in where for i in range(max(1, len(words) - 7)))


def through_message(text: str, name: str = "malp") -> bool:
    seen = Watched()
    with open_assistant(name, store=":memory:", model=ScriptedLM(seen)) as a: a.chat("ann", text)
    return holds(seen.system, text)


def through_memory(text: str, name: str = "malp") -> bool:
    "Said in one session, recalled in another."
    seen = Watched()
    settings = replace(design(name).Settings(), answers="model")     # what is known would be answered without a prompt
    with open_assistant(name, store=":memory:", model=ScriptedLM(seen), settings=settings) as a:
        a.chat("ann", text)
        a.wait("ann")
        a.new_session("ann")
        a.chat("ann", f"What did I say about this: {' '.join(text.split()[:12])}?")
    return holds(seen.system, text)


def through_document(text: str) -> bool:
    seen = Watched()
    with open_chatbot(":memory:", [Document(id="d", title="Gout", text=f"Gout is a kind of arthritis. {text}")], ScriptedLM(seen)) as a: a.chat("ann", "What is gout?")
    return holds(seen.system, text)


def through_colleague(text: str) -> bool:
    "As a correction: does the next user's prompt hold it?"
    seen = Watched()
    with open_mark(":memory:", ScriptedLM(seen)) as a:
        a.chat("ann", "When is the pump calibrated?")
        a.chat("ann", f"No. {text}")
        a.end("ann").result(600)
        if not a.shared_memories("ann"): return False
        a.chat("bob", "When is the pump calibrated?")
        return holds(seen.all, text)


CHANNELS = {"message, system": through_message, "own memory, system (MaLP)": through_memory,
            "own memory, system (generative agents)": lambda text: through_memory(text, "generative-agents"),
            "document, system (hybrid)": through_document, "correction, a colleague's prompt (MARK)": through_colleague}


def main(n: int = 30):
    texts = attacks(n)
    for name, through in CHANNELS.items():
        found = [through(t) for t in texts]
        print(f"{name}: {sum(found)} / {len(found)}", flush=True)


if __name__ == "__main__": main(*map(int, sys.argv[1:]))
