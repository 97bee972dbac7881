"""Kill it, race it, look for leaks: what is acknowledged stays, nothing is half done, nobody sees another's, nothing forgotten is left.

    python tests/torture.py                         200 kills, 10,000 operations, on a file
    python tests/torture.py --url postgresql://…    the same on an empty database of a server
    python tests/torture.py --kills 20 --operations 400

Prints one line a part and ends with 1 if any count but the first of a line isn't 0. Where a kill falls is drawn from `--seed`.
"""
import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DESIGNS = ("hybrid", "malp", "mark", "map", "generative-agents")
PATHS = ("add", "chat", "forget", "adapter", "leave", "maintain", "jobs")        # what is killed in the middle
SAYS = {"map": "I loved the film Heat, {n} stars. Note {word}.", "mark": "No. Pump {word} is calibrated every Monday.",
        "": "I have been allergic to {word} since I was a child."}


def word(n: int) -> str:
    "A word that nobody says by chance."
    return "".join("bdfgklmnprst"[n//12**i % 12] + "aeiou"[(n + i) % 5] for i in range(4))


def opened(name: str, place: str):
    from memkit.models.lm import ScriptedLM
    from memkit.turn.assistants import design, open_assistant
    settings = design(name).Settings()
    a = open_assistant(name, store=place, model=ScriptedLM(lambda messages: "I see."), settings=replace(settings, wait=3600.))
    return a


# --- a life: a process that writes, says what is done, and is killed

def acknowledge(kind: str, of: str): print(kind, of, flush=True)


def live(path: str, place: str, seed: int):
    "Write along one path until the end of the world; a line for each thing that was acknowledged."
    from memkit.store.store import MemoryStore
    if path in ("chat", "jobs", "leave"):
        name = DESIGNS[seed % len(DESIGNS)]
        a = opened(name, place)
        if path == "leave": return come_and_go(a)
        if a.settings.consent: a.consent("ann")
        for n in range(10_000):
            turn = a.chat("ann", SAYS.get(name, SAYS[""]).format(n=1 + n % 5, word=word(n)))
            acknowledge("turn", turn.id)
            if path == "jobs": a.wait("ann")
    s = MemoryStore(place)
    if path == "adapter":
        for n in range(10_000):
            s.put_adapter("ann", bytes([n % 251])*5_000, base="b", digest=str(n))
            acknowledge("adapter", str(n))
    if path == "maintain": return keep_house(s)
    for n in range(10_000):
        with s.transaction("ann"):
            turn = s.add_turn("ann", "s", f"question {word(n)}", "answer")
            m = s.add("ann", f"memory {word(n)}", [n, 1], turns=[turn])
            s.count("ann", m.id, recalls=1)
        acknowledge("memory", str(m.id))
        if path == "forget" and n % 2:
            acknowledge("forgetting", f"{m.id} {word(n)}")
            s.forget("ann", [m.id])
            acknowledge("forgot", f"{m.id} {word(n)}")


def come_and_go(a):
    "Users who talk and have everything forgotten, one after the other."
    for n in range(10_000):
        user = f"user-{n}"
        if a.settings.consent: a.consent(user)
        a.chat(user, f"My cousin is called {word(n)}.")
        acknowledge("came", f"{n} {word(n)}")
        a.forget(user)
        acknowledge("left", f"{n} {word(n)}")


def keep_house(s):
    "Memories that replace each other, as merging and maintenance do."
    old = s.add("ann", f"memory {word(0)}", [0, 1])
    acknowledge("memory", str(old.id))
    for n in range(1, 10_000):
        with s.transaction("ann"):
            new = s.add("ann", f"memory {word(n)}", [n, 1])
            s.supersede("ann", old.id, new.id, "newer")
        old = new
        acknowledge("memory", str(new.id))


def killed(path: str, place: str, seed: int, most: float = .4) -> list[list[str]]:
    "What a process acknowledged before it was killed, at a moment drawn from `seed`."
    command = [sys.executable, __file__, "--live", path, "--at", place, "--seed", str(seed)]
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    first = p.stdout.readline()                 # it has begun
    time.sleep(random.Random(seed).random()*most)
    p.send_signal(signal.SIGKILL)
    out, error = p.stdout.read(), p.stderr.read()     # not communicate(): it would lose what readline() read ahead
    if p.wait(300) != -signal.SIGKILL: raise RuntimeError(f"{path} ended by itself:\n{error[-2000:]}")
    return [line.split() for line in (first + out).splitlines(keepends=True) if line.endswith("\n")]


def check(path: str, place: str, said: list[list[str]], seed: int) -> Counter:
    "What is in the store afterwards, against what was acknowledged."
    from memkit.store.store import MemoryStore
    found, of = Counter(kills=1, acknowledged=len(said)), {}
    for kind, id, *more in said: of.setdefault(kind, {})[id] = more
    if path in ("chat", "jobs", "leave"):
        with opened(DESIGNS[seed % len(DESIGNS)], place) as a:
            if path == "leave":
                found["left"] += sum(bytes_of(a.store, w) for w, in of.get("left", {}).values())
                stays = of["came"].keys() - of.get("left", {}).keys()           # one at most: it was leaving, and is there or gone
                found["half"] += len(stays) > 1 or any(bool(a.turns(f"user-{n}")) != bool(bytes_of(a.store, of["came"][n][0])) for n in stays)
                return found
            until = time.monotonic() + 120
            while a.jobs("ann") and time.monotonic() < until: a.wait("ann")
            kept = {t.id for t in a.turns("ann")}
            found["half"] += bool(a.jobs("ann")) + (len(kept) > len(of["turn"]) + 1)
            found["lost"] += len(of["turn"].keys() - kept)
            found["half"] += sum(not set(m.turns) <= kept for m in a.store.list("ann", superseded=True))
            return found
    with MemoryStore(place) as s:
        if path == "adapter":
            now, last = s.adapter("ann"), max(map(int, of["adapter"]))
            found["lost"] += now is None or int(now.digest) not in (last, last + 1)
            found["half"] += now is not None and now.content != bytes([int(now.digest) % 251])*5_000
            return found
        memories = s.list("ann", superseded=True)
        ids = {str(m.id) for m in memories}
        struck = of.get("forgetting", {}).keys()
        found["lost"] += len(of["memory"].keys() - ids - struck)
        found["half"] += len(ids & of.get("forgot", {}).keys())
        found["half"] += len(ids) > len(of["memory"].keys() - of.get("forgot", {}).keys()) + 1
        if path == "maintain":
            found["half"] += len(s.list("ann")) != 1        # one in force, whatever happened
            return found
        turns = {t.id for t in s.turns("ann")}
        found["half"] += sum(len(m.turns) != 1 or not set(m.turns) <= turns or m.recalls != 1 for m in memories)
        if path == "forget":
            found["left"] += sum(bytes_of(s, f"memory {w}") for id, (w,) in of.get("forgetting", {}).items() if id not in ids)
    return found


def bytes_of(store, text: str) -> int:
    "How often the words stand in the store's files; on a server: in its tables."
    if store.file is None:
        from sqlalchemy import MetaData, select
        tables = MetaData(); tables.reflect(store._db.engine)
        with store._db.engine.connect() as conn:
            return sum(text in str(row) for t in tables.tables.values() for row in conn.execute(select(t)))
    return sum(p.read_bytes().count(text.encode()) for p in (store.file, Path(f"{store.file}-wal")) if p.exists())


def kills(n: int, place_of, seed: int) -> Counter:
    "Kill `n` processes, the paths in turn, each on its own store, and look."
    total = Counter(kills=0, acknowledged=0, lost=0, half=0, left=0)
    for i in range(n):
        path, place = PATHS[i % len(PATHS)], place_of(i)
        found = check(path, place, killed(path, place, seed + i), seed + i)
        if found["lost"] or found["half"] or found["left"]: print(f"seed {seed + i}, {path}: {dict(found)}", file=sys.stderr)
        total.update(found)
        if i % 20 == 19: print(f"after {i + 1} kills: {dict(total)}", file=sys.stderr, flush=True)
    return total


# --- many users, canaries

def canaries(n: int, place: str, users: int = 20, seed: int = 0) -> Counter:
    "`n` operations of many users on one store; each user's words hold a word of their own that nobody else may see."
    import numpy as np
    from memkit.store.store import MemoryStore
    draw, names = random.Random(seed), [f"user-{i}" for i in range(users)]
    own = {u: f"canary{word(i + 1_000)}" for i, u in enumerate(names)}
    count, held = Counter(operations=0, leaks=0, lost=0, left=0), {u: {} for u in names}
    vector = lambda: np.random.default_rng(draw.randrange(4)).normal(size=8)        # near each other, on purpose
    with MemoryStore(place) as s:
        def seen(user, texts):
            count["leaks"] += sum(any(c in t for u, c in own.items() if u != user) for t in texts)
        def add(u):
            turn = s.add_turn(u, f"s{draw.randrange(3)}", f"{own[u]} asks", f"{own[u]} hears")
            m = s.add(u, f"{own[u]} note {draw.random()}", vector(), turns=[turn], meta={"answer": own[u]})
            held[u][m.id] = m.text
        def search(u): seen(u, [f"{h.item.text} {h.item.meta}" for h in s.search(u, vector(), 10)])
        def look(u): seen(u, [*(m.text for m in s.list(u, superseded=True)), *(t.question + t.answer for t in s.turns(u)), *(str(e) for e in s.events(u))])
        def state(u): s.set_state(u, "k", {"is": own[u]}); seen(u, [str(s.state(u, "k"))])
        def reach(u):               # another's memory by its number
            other = draw.choice([x for x in names if x != u])
            for id in list(held[other])[:1]:
                try: seen(u, [s.get(u, id).text])
                except LookupError: pass
                try: s.count(u, id, incorrect=1); count["leaks"] += 1
                except LookupError: pass
        def strike(u):
            if held[u]: s.forget(u, [id := draw.choice(list(held[u]))]); del held[u][id]
        def leave(u): s.forget(u); held[u].clear()
        kinds = [add]*40 + [search]*25 + [look]*8 + [state]*7 + [reach]*12 + [strike]*7 + [leave]
        for i in range(n):
            draw.choice(kinds)(draw.choice(names))
            count["operations"] += 1
            if i % 1_000 == 999: print(f"after {i + 1:,} operations: {dict(count)}", file=sys.stderr, flush=True)
        for u in names:
            kept = {m.id: m.text for m in s.list(u)}
            count["lost"] += kept != held[u]
        for u in names:
            receipt = s.forget(u)
            count["left"] += bytes_of(s, own[u]) + (not receipt.erased and s.file is not None)
    return count


def talks(rounds: int, place_of, seed: int = 0) -> Counter:
    "Twenty users of each assistant tell it something, ask, and leave: whose words reached whose prompt, and what is left."
    count, of = Counter(turns=0, leaks=0, left=0), {}
    for d, name in enumerate(DESIGNS):
        with opened(name, place_of(d)) as a:
            names = [f"user-{i}" for i in range(20)]
            of = {u: f"canary{word(2_000 + i)}" for i, u in enumerate(names)}
            for r in range(rounds):
                for u in names:
                    if a.settings.consent: a.consent(u)
                    text = f"My cousin is called {of[u]}." if r % 2 == 0 else "What is my cousin called?"
                    turn = a.chat(u, text)
                    count["turns"] += 1
                    count["leaks"] += sum(c in turn.prompt + turn.answer for v, c in of.items() if v != u)
                    a.wait(u)
            for u in names: a.forget(u)
            count["left"] += sum(bytes_of(a.store, c) for c in of.values())
    return count


def main(arguments=None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kills", type=int, default=200)
    p.add_argument("--operations", type=int, default=10_000)
    p.add_argument("--rounds", type=int, default=2, help="messages of each of 20 users to each assistant")
    p.add_argument("--url", help="a PostgreSQL server on which databases may be made; default: files")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--live", choices=PATHS, help=argparse.SUPPRESS)
    p.add_argument("--at", help=argparse.SUPPRESS)
    a = p.parse_args(arguments)
    if a.live: return live(a.live, a.at, a.seed) or 0
    with tempfile.TemporaryDirectory() as folder:
        def place_of(kind: str):
            def place(i) -> str:
                if not a.url: return str(Path(folder)/f"{kind}{i}.db")
                from postgres_server import new_database
                return new_database(a.url, f"torture_{kind}_{os.getpid()}_{i}")
            return place
        parts = {"kills": kills(a.kills, place_of("kill"), a.seed), "canaries": canaries(a.operations, place_of("canary")(0), seed=a.seed),
                 "talks": talks(a.rounds, place_of("talk"), a.seed)}
    for name, found in parts.items(): print(f"{name}: " + ", ".join(f"{n:,} {what}" for what, n in found.items()))
    return int(any(found[what] for found in parts.values() for what in ("lost", "half", "left", "leaks")))


if __name__ == "__main__": sys.exit(main())
