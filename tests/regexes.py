"""Every regular expression of memkit against hostile strings: prints those that take too long on 8,000 characters.

    python tests/regexes.py            a JSON list of [seconds, where, pattern, the string's beginning]

Patterns are those compiled while memkit is imported, those in calls of `re` that the source spells out, and those that a
turn of each assistant makes. Time is the process's own. A string of 1,000 characters comes first; only a pattern that
needs more than 1 ms for it is tried on 8,000, since what grows with the length alone needs 8 times as long there.
"""
import ast
import importlib
import json
import pkgutil
import re
import re._parser as sre
import signal
import sys
import time
from collections.abc import Iterator
from itertools import islice

FOUND: dict[tuple[str, int], str] = {}          # pattern and flags: where
SHORT, LONG, SUSPECT = 1_000, 8_000, .001       # characters, characters, seconds
METHODS = {"compile": 1, "match": 2, "fullmatch": 2, "search": 2, "sub": 4, "subn": 4, "split": 3, "findall": 2, "finditer": 2}
PIECES = (" ", "\n", "a", "A", "7", "a ", "Ann ", "7 ", "7,", "((", '"', "'", ". ", "a.", "a-", "*", "#", "|", ":", "a@a", "<", "a, ", "\n ", "- ", "a'")


def watch():
    "Note each pattern that a module of memkit compiles from now on."
    real = re._compile
    def noting(pattern, flags):
        caller = sys._getframe(2).f_globals.get("__name__", "")
        if caller.startswith("memkit") and isinstance(pattern, str): FOUND.setdefault((pattern, int(flags)), f"{caller}:{sys._getframe(2).f_lineno}")
        return real(pattern, flags)
    re._compile = noting


def spelled_out(module) -> Iterator[tuple[str, int, int]]:
    "The patterns in calls of `re` that can be evaluated with the module's own names: pattern, flags, line."
    names = vars(module)
    for node in ast.walk(ast.parse(open(module.__file__, encoding="utf-8").read())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "re"): continue
        at = METHODS.get(node.func.attr)
        if at is None or not node.args: continue
        given = node.args[at] if len(node.args) > at else next((k.value for k in node.keywords if k.arg == "flags"), ast.Constant(0))
        try: pattern, flags = (eval(compile(ast.Expression(x), "x", "eval"), dict(names)) for x in (node.args[0], given))
        except Exception: continue              # it depends on what it is given
        if isinstance(pattern, str): yield pattern, int(flags), node.lineno


def literals(pattern: str, flags: int) -> list[str]:
    "The words of a pattern, and a character of each of its classes."
    out = []
    def walk(sub):
        run = ""
        for op, of in sub:
            name = str(op)
            if name == "LITERAL": run += chr(of); continue
            out.append(run); run = ""
            if name == "IN":
                kinds = {"CATEGORY_SPACE": " ", "CATEGORY_DIGIT": "7", "CATEGORY_WORD": "a"}
                out.extend(chr(a) if str(o) == "LITERAL" else chr(a[0]) if str(o) == "RANGE" else kinds.get(str(a), "a") for o, a in of[:2] if str(o) != "NEGATE")
            elif name.endswith("REPEAT"): walk(of[2])
            elif name == "SUBPATTERN": walk(of[3])
            elif name == "ATOMIC_GROUP": walk(of)
            elif name.startswith("ASSERT"): walk(of[1])
            elif name == "BRANCH":
                for branch in of[1]: walk(branch)
        out.append(run)
    walk(sre.parse(pattern, flags))
    return sorted({x for x in out if x}, key=lambda x: (len(x), x))


def hostile(pattern: str, flags: int, n: int) -> Iterator[str]:
    "Strings of `n` characters: one piece over and over, also behind a beginning of the pattern's own and before an end that fits nothing."
    own = literals(pattern, flags)
    few = own[:: max(1, len(own)//8)][:8]
    pieces = dict.fromkeys((*PIECES, *few, *(x + " " for x in few), *(a + b for a in few[:3] for b in few[:3] if a != b)))
    for piece in pieces:
        body = (piece*(n//len(piece) + 1))[:n]
        yield body
        yield body + "\x00"
        for start in few[-2:]: yield start + body + "\x00"


class TooLong(Exception): pass


def repeats(pattern: str, flags: int) -> bool:
    "Has it a part that may be repeated without end? Others can't take more than the length's share."
    return "MAXREPEAT" in str(sre.parse(pattern, flags))


def seconds(compiled: re.Pattern, text: str, most: float = 1.) -> float:
    "Processor time of all matches in `text`, and of a match of the whole."
    def stop(*_): raise TooLong
    signal.signal(signal.SIGPROF, stop)
    start = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, most)
    try:
        for _ in compiled.finditer(text): pass
        compiled.fullmatch(text)
    except TooLong: pass
    finally: signal.setitimer(signal.ITIMER_PROF, 0)
    return time.process_time() - start


def slowest(pattern: str, flags: int) -> tuple[float, str]:
    "The most seconds that a hostile string of 8,000 characters costs, and its beginning."
    compiled, worst = re.compile(pattern, flags), (0., "")
    for i, short in enumerate(hostile(pattern, flags, SHORT)):
        if seconds(compiled, short) <= SUSPECT: continue
        long = next(islice(hostile(pattern, flags, LONG), i, None))
        worst = max(worst, (seconds(compiled, long), long[:24]))
        if worst[0] > .8: break
    return worst


def talk():
    "A turn of each assistant, so that what is compiled on the way is seen."
    from memkit import ScriptedLM, open_assistant
    for name, says in (("hybrid", "I am allergic to penicillin."), ("malp", "I am allergic to penicillin."), ("mark", "No. The pump is calibrated every Monday."),
                       ("map", "I loved the film Heat, 4 stars."), ("generative-agents", "I moved to York.")):
        with open_assistant(name, store=":memory:", model=ScriptedLM(lambda messages: "4 stars, I think. Take 5 mg at noon.")) as a:
            for text in (says, "What do you know about me?"): a.chat("ann", text)
            a.wait("ann")


def main(limit: float = .1):
    watch()
    import memkit
    for found in pkgutil.walk_packages(memkit.__path__, "memkit."):
        if found.name.endswith(("__main__", "_modidx")) or "._data" in found.name: continue
        module = importlib.import_module(found.name)
        for pattern, flags, line in spelled_out(module): FOUND.setdefault((pattern, flags), f"{found.name}:{line}")
    talk()
    slow = []
    for (pattern, flags), where in list(FOUND.items()):
        if not repeats(pattern, flags): continue
        took, start = slowest(pattern, flags)
        if took > limit: slow.append([round(took, 2), where, pattern, start])
        if took > limit: print(slow[-1], file=sys.stderr, flush=True)
    print(json.dumps({"patterns": len(FOUND), "slow": sorted(slow, reverse=True)}, ensure_ascii=False, indent=1))


if __name__ == "__main__": main()
