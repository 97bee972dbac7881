"""The chat in a real JupyterLab and a real browser, worked as a person would, by mouse and by keyboard alone; its model says what it is told to say."""
import json

import lab as labs
from memkit.widgets.draw.frames import read_turns

pytestmark = labs.needed

OPEN = '''import time
from memkit.models.lm import ScriptedLM
from memkit.records import Document
from memkit.hybrid import HybridSettings, open_chatbot
from memkit.widgets.chat.chat import chat

NOTES = [Document(id="burn", title="Burns", source="lesson", text="Cool a burn under running water for twenty minutes. Do not put butter on it. Cover it loosely with cling film."),
         Document(id="penicillin", title="Penicillin allergy", source="lesson", text="Somebody who is allergic to penicillin must not take amoxicillin. A macrolide is often used instead."),
         Document(id="sinus", title="Sinusitis", source="lesson", text="Sinusitis mostly gets better by itself within three weeks. Amoxicillin is given only where it lasts, or where fever is high.")]
SAYS = {"burn": "Cool a burn under running water for twenty minutes.", "amoxicillin": "Somebody who is allergic to penicillin must not take amoxicillin."}
def say(messages):
    time.sleep(.8)          # long enough to be seen
    if "break" in messages[-1].text: raise ValueError("the model <b>can't</b> be reached")
    return next((text for word, text in SAYS.items() if word in messages[-1].text.split("answer:")[-1]), "I see.")
bot = open_chatbot("chat.sqlite3", corpus=NOTES, model=ScriptedLM(say), settings=HybridSettings(answers="model"))'''


def notebook(folder, *sources):
    cells = [{"cell_type": "code", "id": f"c{i}", "metadata": {}, "outputs": [], "execution_count": None, "source": s} for i, s in enumerate(sources)]
    path = folder/"chat.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


class Talking:
    "A chat on a page, as one sees and touches it."
    def __init__(self, page):
        from playwright.sync_api import expect
        self.page, self.expect, self.chat = page, expect, page.locator(".mk-chat")
        self.box, self.status = self.chat.get_by_label("Your message"), self.chat.locator(".mk-status")
        self.box.wait_for(timeout=60_000)
        self.chat.scroll_into_view_if_needed()

    def button(self, name): return self.chat.get_by_role("button", name=name, exact=True)
    def said(self): return self.chat.locator(".mk-you")
    def tells(self, words): self.expect(self.status).to_contain_text(words, timeout=20_000)
    def says(self, text):
        n = self.said().count()
        self.box.fill(text)
        self.box.press("Enter")
        self.expect(self.said()).to_have_count(n + 1, timeout=20_000)
        self.tells("Answered")

    def run_again(self):
        "Run the cell with the chat once more."
        old = self.box.element_handle()
        self.page.evaluate("""async () => { const app = window.jupyterapp; await app.commands.execute("notebook:run-all-cells"); }""")
        old.wait_for_element_state("hidden")
        self.box.wait_for(timeout=60_000)


def test_a_conversation(lab, chromium, tmp_path):
    with labs.opened(chromium, lab, notebook(tmp_path, OPEN, 'chat(bot, "ann", key="ann")')) as page:
        t = Talking(page)
        t.expect(t.chat).to_contain_text("you haven’t agreed")
        t.box.press("Enter")
        t.expect(t.status.get_by_role("alert")).to_contain_text("there is nothing to send")
        t.button("Remember me").click()
        t.tells("You will be remembered")
        t.expect(t.button("Remember me")).to_be_hidden()

        t.box.type("I am allergic to penicillin,")
        t.box.press("Shift+Enter")
        t.box.type("since I was a child.")
        t.box.press("Enter")
        t.tells("Answering")                                            # busy: the button can't be pressed, and it is said
        t.expect(t.button("Send")).to_be_disabled()
        t.expect(t.status.get_by_role("status")).to_have_count(1)
        t.tells("Answered")
        t.expect(t.said()).to_have_text(["You: I am allergic to penicillin,\nsince I was a child."], use_inner_text=True)
        t.expect(t.box).to_have_value("")
        t.expect(t.box).to_be_focused()
        t.expect(t.button("Send")).to_be_enabled()
        t.says("What helps against a burn?")
        t.expect(t.chat.locator(".mk-exchange").last.locator(".mk-used", has_text="[1]")).to_contain_text("Burns (lesson")
        t.says("I have sinusitis. Can I take amoxicillin?")
        one = t.chat.locator(".mk-exchange").last
        t.expect(one.locator(".mk-used", has_text="[M1]")).to_contain_text("I am allergic to penicillin")
        one.locator("summary").click()
        t.expect(one).to_contain_text("reached the prompt")
        one.locator("summary").click()
        labs.shot(page, "chat", 1280, 800)

        t.box.fill("What makes a bone break?")
        t.button("Send").click()
        t.expect(t.status.get_by_role("alert")).to_contain_text("the model <b>can't</b> be reached", timeout=20_000)
        t.expect(t.box).to_have_value("What makes a bone break?")                 # what was typed stays
        t.box.fill("")

        one.get_by_role("button", name="Right").click()
        t.tells("was called right 1 time")
        t.expect(one.get_by_role("button", name="✓ Right")).to_be_disabled()
        t.button("What is remembered").click()
        memories = t.chat.get_by_label("Memories")
        t.expect(memories.locator("option")).to_have_count(3)
        t.expect(memories.locator("option").first).to_contain_text("recalled 1, right 1, wrong 0")
        memories.select_option(index=0)
        t.button("Delete the chosen").click()
        t.tells("Press again to delete 1 memory of ann")
        labs.shot(page, "chat_review", 1280, 800)
        t.button("Keep").click()
        t.tells("Nothing was deleted")
        t.button("Delete the chosen").dblclick()                        # too quick to be meant
        t.tells("Press again")
        t.expect(memories.locator("option")).to_have_count(3)
        page.wait_for_timeout(700)
        t.button("Press again to delete 1 memory").click()
        t.tells("Removed")
        t.tells("1 memory")
        t.expect(memories.locator("option")).to_have_count(2)
        t.expect(t.chat.locator(".mk-exchange").last).not_to_contain_text("allergic to penicillin, since")
        labs.shot(page, "chat_deleted", 1280)
        assert labs.errors(page) == []


def test_export_users_and_running_again(lab, chromium, tmp_path):
    with labs.opened(chromium, lab, notebook(tmp_path, OPEN.replace("chat.sqlite3", "again.sqlite3").replace("sleep(.8)", "sleep(0)"), 'for user in ("ann", "bob"): bot.consent(user)\nchat(bot, "ann", key="again")')) as page:
        t = Talking(page)
        t.says("What helps against a burn?")
        t.says("<img src=x onerror=alert(1)> & what about \u202eamoxicillin?")
        t.button("New session").click()
        t.tells("A new session")
        file = t.chat.get_by_label("File")
        file.fill("../out.jsonl")
        t.button("Export").click()
        t.expect(t.status.get_by_role("alert")).to_contain_text("give a plain name")
        file.fill("mine.jsonl")
        for _ in range(5):               # on a busy machine ipywidgets holds a text back while a press goes ahead; nobody presses within milliseconds
            page.wait_for_timeout(700)
            t.button("Export").click()
            try: t.expect(t.status).not_to_contain_text("../out.jsonl", timeout=10_000); break
            except AssertionError: pass  # pressed with the name of before
        t.tells(f"Wrote 2 turns of ann to {lab.notebooks/'mine.jsonl'}")
        t.button("Export").click()
        t.expect(t.status.get_by_role("alert")).to_contain_text("choose another name")
        turns = read_turns(lab.notebooks/"mine.jsonl")
        assert [x.text for x in turns] == t.said().evaluate_all("x => x.map(e => e.innerText.replace('You: ', ''))") and turns[0].documents

        user = t.chat.get_by_label("You are")
        user.fill("bob")
        user.press("Enter")
        t.tells("You are bob.")
        t.expect(t.said()).to_have_count(0)
        t.says("Is butter good for a burn?")
        user.fill(" ")
        user.press("Enter")
        t.expect(t.status.get_by_role("alert")).to_contain_text("user is empty")
        t.expect(user).to_have_value("bob")
        for cells in (1, 2):                                            # bob is still there, from the store: the first cell opens it anew
            t.run_again()
            t.expect(t.said()).to_have_text(["You: Is butter good for a burn?"])
            t.expect(t.chat.locator(".mk-used", has_text="[1]")).to_contain_text("Burns")
        user.fill("ann")
        user.press("Enter")
        t.expect(t.said()).to_have_count(2)
        t.expect(t.said().last).to_contain_text("<img src=x")
        labs.theme(page, "JupyterLab Dark")
        labs.shot(page, "chat_dark", 1280)
        labs.theme(page, "JupyterLab Light")
        assert labs.errors(page) == []


MALP = '''from memkit.models.lm import ScriptedLM
from memkit.malp import open_malp
from memkit.widgets.chat.chat import chat
bot = open_malp(":memory:", ScriptedLM(lambda messages: "Noted."))'''


def test_by_keyboard_alone(lab, chromium, tmp_path):
    with labs.opened(chromium, lab, notebook(tmp_path, MALP, 'chat(bot)')) as page:
        t, keys = Talking(page), page.keyboard
        def tab_to(name, most=25, back=False):
            for _ in range(most):
                if page.evaluate("() => { const e = document.activeElement; return (e.labels && e.labels[0] ? e.labels[0].innerText : e.innerText || '').trim(); }") == name: return
                keys.press("Shift+Tab" if back else "Tab")
            raise AssertionError(f"{name} isn't reached by the Tab key")
        t.box.focus()
        keys.type("I have been allergic to penicillin since I was a child. dd aa")   # in command mode, d d deletes the cell
        keys.press("Enter")
        t.tells("Answered")
        keys.type("Which antibiotic should I avoid?")
        keys.press("Enter")
        t.expect(t.said()).to_have_count(2)
        t.tells("Answered")
        tab_to("Right", back=True)
        keys.press("Space")
        t.tells("was called right 1 time")
        t.box.focus()
        tab_to("What is remembered")
        keys.press("Enter")
        t.expect(t.chat.locator("option")).to_have_count(1)
        tab_to("Memories")
        keys.press("ArrowDown")
        t.expect(t.chat.locator(".mk-review")).to_contain_text("1: The user has been allergic")
        tab_to("Delete the chosen")
        keys.press("Enter")
        t.tells("Press again to delete 1 memory")
        t.expect(t.button("Press again to delete 1 memory")).to_be_focused()
        page.wait_for_timeout(700)
        keys.press("Enter")
        t.tells("Removed")
        t.expect(t.chat.locator("option")).to_have_count(0)
        t.expect(t.chat).to_contain_text("Nothing is remembered")
        tab_to("Delete everything")
        keys.press("Space")
        t.tells("Press again to delete everything")
        tab_to("Keep")
        keys.press("Enter")
        t.tells("Nothing was deleted")
        t.expect(t.box).to_be_focused()                                 # "Keep" has gone
        tab_to("Delete everything")
        keys.press("Space")
        t.expect(t.button("Press again to delete everything")).to_be_focused()
        page.wait_for_timeout(700)
        keys.press("Space")
        t.expect(t.said()).to_have_count(0)
        labs.shot(page, "chat_empty", 1280)
        assert page.locator(".jp-Notebook .jp-Cell").count() == 2 and labs.errors(page) == []
