"""Where one message goes: the modules that run for it, in order, for each installed design.

    python tools/stops.py            stops and rooms of a second message, for each design
    python tools/stops.py NAME       the walk itself: module and first function of each stop
"""
import sys
from pathlib import Path

SAYS = {"map": ("I just watched Alien, 5 stars.", "Can you recommend me a science fiction film?")}
USUAL = ("I have been allergic to penicillin since I was a child.", "Am I allergic to penicillin?")


def walk(assistant, text: str) -> list[tuple[str, str]]:
    "Each module of memkit that runs while a message is answered, when it is entered for the first time, and by which function."
    seen, order = set(), []
    root = str(Path(sys.modules["memkit"].__file__).parent)

    def enter(frame, event, arg):
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(root): return
        module = Path(name).relative_to(root).with_suffix("").as_posix()
        if module not in seen and not frame.f_code.co_name.startswith("<"):
            seen.add(module)
            order.append((module, frame.f_code.co_name))

    sys.setprofile(enter)
    try: assistant.chat("ann", text)
    finally: sys.setprofile(None)
    return order


def main():
    import memkit
    names = sys.argv[1:] or list(memkit.assistants())
    for name in names:
        with memkit.open_assistant(name, store=":memory:", model=memkit.ScriptedLM(lambda messages: "I see.")) as a:
            if a.settings.consent: a.consent("ann")
            first, second = SAYS.get(name, USUAL)
            a.chat("ann", first)
            stops = walk(a, second)
            print(f"{name:18} {len(stops)} stops in {len({module.split('/')[0] for module, _ in stops})} rooms")
            if sys.argv[1:]: print(*(f"  {module:24} {function}" for module, function in stops), sep="\n")


if __name__ == "__main__": main()
