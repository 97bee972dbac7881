"ChatEndpoint against a server that misbehaves to order, and against a real `transformers serve`."
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path

import pytest
from faulty_server import (FaultyServer, after, closed_port, comments, drip, drip_headers, echo_error, event, garbage, half, hang_up, not_http, ok, refuses, say, silent,
                           sse, status)
from hypothesis import given
from hypothesis import strategies as st

from memkit.reading.validation import read_answer
from memkit.models.lm import UnusableAnswer, ask_json, schema_of, usage, watched
from memkit.models.endpoint import (AnswerStream, ChatEndpoint, EndpointError, PromptTooLong, chat_request, estimate_tokens, explain_status, pause,
                                  read_completion, retry_after)
from memkit.models.lm import Reply, certain_text, check_language_model, check_stream
from memkit.records import Message

SECRET, WORDS = "sk-very-secret-key", "my knee hurts since the divorce"
ASK = [Message(role="system", text="Be brief."), Message(role="user", text=WORDS)]


@pytest.fixture(autouse=True)
def no_key_in_the_environment(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("memkit.models.endpoint.BACKOFF", .01)     # nobody waits here

@pytest.fixture(scope="module", autouse=True)
def imported(): import openai  # noqa: F401  so that no test's patience is spent on an import

def endpoint(server, **options):
    url = server if isinstance(server, str) else server.url
    return ChatEndpoint(url, "m", **{"timeout": 20., "retries": 2, "api_key": SECRET} | options)

def chain(e):
    "Everything an exception and those behind it could print."
    out = []
    while e: out += [str(e), repr(e), repr(vars(e)), repr(e.args)]; e = e.__cause__ or e.__context__
    return "\n".join(out)

def failure(server, kind=EndpointError, ask=ASK, max_tokens=128, **options):
    "The error that `generate` raises, of which no word may be the user's."
    with pytest.raises(kind) as caught: endpoint(server, **options).generate([ask], max_tokens=max_tokens)
    said = chain(caught.value)
    assert "\n" not in str(caught.value)
    for secret in (SECRET, WORDS, "knee", "Be brief"): assert secret not in said
    return caught.value


# what goes out

def test_a_plain_request_holds_only_what_every_server_knows():
    with FaultyServer(ok()) as server:
        reply = endpoint(server).generate([ASK], max_tokens=9)[0]
        body = server.requests[0].body
    assert body == {"model": "m", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": WORDS}], "max_tokens": 9, "temperature": 0}
    assert server.requests[0].path == "/v1/chat/completions" and server.requests[0].headers["authorization"] == f"Bearer {SECRET}"
    told = {name.lower() for name in server.requests[0].headers}
    assert told <= {"accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "host",
                    "user-agent", "x-stainless-raw-response"}
    assert server.requests[0].headers["user-agent"] == "memkit"
    assert isinstance(reply, Reply) and (reply.text, reply.prompt_tokens, reply.answer_tokens) == ("Hello.", 7, 2)
    assert (reply.finished, reply.counts_exact, reply.tries) == (True, True, 1)

def test_sampling_and_stop_are_passed_on():
    with FaultyServer(ok("one two three")) as server:
        reply = endpoint(server).generate([ASK], temperature=.5, seed=11, stop=[" three", "four"])[0]
    assert {k: server.requests[0].body[k] for k in ("temperature", "seed", "stop")} == {"temperature": .5, "seed": 11, "stop": [" three", "four"]}
    assert reply.text == "one two" and reply.finished

def test_the_key_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "from-env")
    with FaultyServer(ok()) as server:
        lm = ChatEndpoint(server.url, "m")
        lm.generate([ASK])
    assert server.requests[0].headers["authorization"] == "Bearer from-env" and "from-env" not in repr(lm)

def test_loopback_is_never_reached_through_a_proxy(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"): monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    with FaultyServer(ok()) as server: assert endpoint(server, retries=0).generate([ASK])[0].text == "Hello."

def test_nothing_asked_nothing_sent():
    with FaultyServer(ok()) as server:
        assert endpoint(server).generate([]) == [] and server.requests == []

@pytest.mark.parametrize("slash", ["", "/"])
def test_a_trailing_slash_changes_nothing(slash):
    with FaultyServer(ok()) as server:
        endpoint(server.url + slash).generate([ASK])
        assert server.requests[0].path == "/v1/chat/completions"


# retries

@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 529])
def test_what_may_pass_is_tried_again(code):
    with FaultyServer(status(code), status(code), ok("At last.")) as server:
        reply = endpoint(server).generate([ASK])[0]
    assert (reply.text, reply.tries, len(server.posts)) == ("At last.", 3, 3)

@pytest.mark.parametrize("act", [half, hang_up])
def test_a_broken_connection_is_tried_again(act):
    with FaultyServer(act, act, ok()) as server: assert endpoint(server).generate([ASK])[0].tries == 3
    with FaultyServer(act) as server:
        e = failure(server)
        assert "closed the connection, or broke the protocol, before its answer was complete" in str(e) and (e.tries, len(server.posts)) == (3, 3)

@pytest.mark.parametrize("code, says", [(500, "failed (500)"), (503, "failed (503)"), (429, "no more requests now (429)")])
def test_always_failing_is_reported_with_the_number_of_tries(code, says):
    with FaultyServer(status(code)) as server:
        e = failure(server)
        assert says in str(e) and "(tried 3 times)" in str(e) and (e.status, e.tries, len(server.posts)) == (code, 3, 3)

def test_no_retries_is_one_attempt():
    with FaultyServer(status(500)) as server: assert failure(server, retries=0).tries == 1 == len(server.posts)

@pytest.mark.parametrize("code, says", [
    (400, "refused the request (400)"), (401, "refused the key (401)"), (403, "refused the key (403)"), (404, "has no model 'm'"), (422, "(422)")])
def test_what_stays_wrong_is_not_tried_again(code, says):
    with FaultyServer(status(code)) as server:
        e = failure(server)
        assert says in str(e) and (e.status, e.tries, len(server.posts)) == (code, 1, 1)

def test_retry_after_is_honoured():
    with FaultyServer(status(429, headers={"Retry-After": "0.3"}), ok()) as server:
        assert endpoint(server).generate([ASK])[0].tries == 2
        assert server.posts[1].at - server.posts[0].at >= .3

def test_a_pause_longer_than_our_patience_is_not_begun():
    with FaultyServer(status(429, headers={"Retry-After": "3600"})) as server:
        start = time.monotonic()
        e = failure(server, timeout=30.)
        assert "no more requests now" in str(e) and len(server.posts) == 1 and time.monotonic() - start < 20

def test_timeout_covers_all_tries_together():
    with FaultyServer(after(.15, status(500))) as server:
        e = failure(server, retries=1000, timeout=.6)
        assert len(server.posts) <= 5 and ("within 0.6 s" in str(e) or "failed (500)" in str(e))

@given(st.integers(1, 60), st.floats(0, 1))
def test_pauses_are_bounded(tries, draw):
    assert 0 <= pause(tries, None, draw) <= 8 and pause(tries, None, 0.) == pause(tries, None, 1.)/2
    assert pause(tries, 5., draw) >= 5

@given(st.one_of(st.none(), st.text(max_size=40), st.floats().map(str)))
def test_any_retry_after_header_is_a_wait_or_nothing(value):
    assert (wait := retry_after(value)) is None or 0 <= wait < float("inf")

def test_retry_after_dates():
    now = datetime(2026, 11, 21, 10, tzinfo=timezone.utc)
    assert retry_after(format_datetime(now + timedelta(seconds=90)), now) == 90
    assert retry_after(format_datetime(now - timedelta(days=1)), now) == 0


# nothing hangs

@pytest.mark.parametrize("act", [silent, drip, drip_headers])
def test_silence_and_drips_end_at_the_timeout(act):
    with FaultyServer(act) as server:
        start = time.monotonic()
        e = failure(server, timeout=.3)
        assert "gave no complete answer within 0.3 s" in str(e) and time.monotonic() - start < 8  # the drip would go on for ever, the silence for 10 s

def test_an_address_where_nobody_listens():
    e = failure(f"http://127.0.0.1:{closed_port()}/v1")
    assert "can't be reached; is it running there" in str(e) and e.tries == 3 and e.status is None

def test_a_server_that_starts_late_is_found():
    port, servers = closed_port(), []
    def start_late(): servers.append(FaultyServer(ok("Awake."), port=port).__enter__())
    timer = threading.Timer(.3, start_late); timer.start()
    try: assert endpoint(f"http://127.0.0.1:{port}/v1", retries=200, timeout=20.).generate([ASK])[0].tries > 1
    finally:
        timer.join()
        for server in servers: server.__exit__()

def test_https_to_a_plain_server_says_so():
    with FaultyServer(ok()) as server: assert "http or https?" in str(failure(server.url.replace("http:", "https:")))

@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread only")
def test_an_interrupt_ends_the_wait():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)    # a background job starts with SIGINT ignored
    try: _interrupted()
    finally: signal.signal(signal.SIGINT, before)


def _interrupted():
    with FaultyServer(silent) as server:
        def interrupt():
            while not server.posts: time.sleep(.01)
            os.kill(os.getpid(), signal.SIGINT)
        thread = threading.Thread(target=interrupt); thread.start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt): endpoint(server, timeout=60.).generate([ASK]*20)
        thread.join()
        assert time.monotonic() - start < 9


# answers that are none

@pytest.mark.parametrize("content", [b"", b"<html>", b"{", b"\xff\xfe\x00", b"[" * 100_000, b"1" * 10_000])
def test_a_body_that_is_not_json(content):
    with FaultyServer(say(content)) as server:
        e = failure(server)
        assert ("not JSON" in str(e) or "no choices" in str(e)) and len(server.posts) == 1

@pytest.mark.parametrize("act", [not_http, say(b"not packed at all", headers={"Content-Encoding": "gzip"})])
def test_something_that_is_not_even_http(act):
    with FaultyServer(act) as server: assert "before its answer was complete" in str(failure(server))

def test_garbage_names_the_usual_cause():
    with FaultyServer(garbage) as server: assert "it usually ends in /v1" in str(failure(server))

@pytest.mark.parametrize("reply", [None, 3, "text", [], {}, {"error": {"message": WORDS}}, {"choices": None}, {"choices": []}, {"choices": {"0": 1}}])
def test_json_that_is_no_completion(reply):
    with FaultyServer(say(reply)) as server: assert "no choices" in str(failure(server))

@pytest.mark.parametrize("choice", [None, "text", {}, {"message": None}, {"message": "hi"}, {"message": {}}, {"message": {"content": None}}, {"message": {"content": 3}},
                                    {"message": {"content": [{"type": "text", "text": "hi"}]}}])
def test_a_completion_without_text(choice):
    with FaultyServer(say({"choices": [choice]})) as server: assert "without text" in str(failure(server))

@pytest.mark.parametrize("text", ["", " \n "])
def test_an_empty_answer_is_an_error_unless_a_stop_string_ends_it(text):
    with FaultyServer(ok(text)) as server:
        assert "the model had nothing to say" in str(failure(server))
        assert endpoint(server).generate([ASK], stop=["x"])[0].text == ""
    with FaultyServer(ok(text, finish="length")) as server: assert "max_tokens was used up" in str(failure(server))

@pytest.mark.parametrize("text", ["a\0b", "half \ud83d"])
def test_broken_characters_are_refused(text):
    with FaultyServer(ok(text)) as server: assert "broken characters" in str(failure(server))

json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda s: st.lists(s, max_size=3) | st.dictionaries(
    st.sampled_from(["choices", "message", "content", "usage", "finish_reason", "prompt_tokens", "completion_tokens", "x"]), s, max_size=4), max_leaves=12)

@given(json_values | st.builds(lambda c, u: {"choices": [{"message": {"content": c}, "finish_reason": u}], "usage": u}, json_values, json_values))
def test_any_json_is_a_completion_or_one_clear_error(value):
    try: text, finish, usage = read_completion(json.dumps(value).encode())
    except EndpointError: return
    assert isinstance(text, str) and isinstance(finish, str) and (usage is None or usage[0] > 0 <= usage[1])

@given(st.binary(max_size=60))
def test_any_bytes_are_a_completion_or_one_clear_error(content):
    with pytest.raises(EndpointError): read_completion(content)


# what the server says, and what we pass on

@pytest.mark.parametrize("code", [400, 401, 403, 404, 418, 422, 429, 500])
def test_a_server_that_repeats_everything_is_not_quoted(code):
    with FaultyServer(echo_error(code)) as server: failure(server)

def test_404_lists_the_models_there_are():
    names = {"object": "list", "data": [{"id": "phi-2"}, {"id": "llama"}]}
    with FaultyServer(status(404), models=say(names)) as server: assert str(failure(server)).endswith("; it offers phi-2, llama")
    with FaultyServer(status(404), models=garbage) as server: assert "offers" not in str(failure(server))
    with FaultyServer(status(404), models=say({"data": [3]})) as server: assert "offers" not in str(failure(server))

@pytest.mark.parametrize("message", ["This model's maximum context length is 2048 tokens.", "the request exceeds the available context size", "prompt is too long: 9 > 8"])
def test_too_long_for_the_server(message):
    with FaultyServer(status(400, message)) as server:
        e = failure(server, PromptTooLong)
        assert isinstance(e, ValueError) and "too long for its context window (400)" in str(e) and "max_tokens=128" in str(e)

def test_a_refused_field_is_named():
    with FaultyServer(status(400, "unsupported", param="max_tokens")) as server: assert "refused the field 'max_tokens' (400)" in str(failure(server))
    with FaultyServer(status(400, "unsupported", param=WORDS)) as server: assert "refused the request (400)" in str(failure(server))

@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(code):
    with FaultyServer(ok("Stolen.")) as elsewhere:
        with FaultyServer(say({}, code, {"Location": f"{elsewhere.url}/chat/completions?{WORDS.replace(' ', '+')}"})) as server:
            e = failure(server)
            assert f"redirects to {elsewhere.url.removesuffix('/v1')} ({code})" in str(e) and elsewhere.requests == []
    assert "redirects to another address" in explain_status(307, chat_request("m", ASK), location=WORDS)

@pytest.mark.parametrize("usage", [None, {}, 3, {"prompt_tokens": -1, "completion_tokens": 2}, {"prompt_tokens": 5}, {"prompt_tokens": "5", "completion_tokens": True},
                                   {"prompt_tokens": 0, "completion_tokens": 0}, {"prompt_tokens": None, "completion_tokens": None}])
def test_wrong_or_missing_usage_is_replaced_by_an_estimate_that_says_so(usage):
    with FaultyServer(ok("Rest it.", usage=usage)) as server:
        lm = endpoint(server)
        reply = lm.generate([ASK])[0]
    assert not reply.counts_exact and not lm.counts_exact
    assert (reply.prompt_tokens, reply.answer_tokens) == (lm.count_tokens(lm.render(ASK)), estimate_tokens("Rest it."))

@pytest.mark.parametrize("finish, usage, finished", [
    ("stop", (7, 2), True), ("length", (7, 2), False), ("content_filter", (7, 2), False), (None, (7, 2), True), (None, (7, 8), False)])
def test_was_the_answer_finished(finish, usage, finished):
    with FaultyServer(ok("Rest it.", finish=finish, usage=usage)) as server: assert endpoint(server).generate([ASK], max_tokens=8)[0].finished is finished

def test_a_prompt_that_surely_does_not_fit_is_not_sent():
    with FaultyServer(ok()) as server:
        with pytest.raises(ValueError, match="context=50, answer included"): endpoint(server, context=50).generate([[Message(role="user", text="word "*50)]])
        assert server.requests == []


# several at a time

def by_question(h): (ok(f"re: {h.body['messages'][-1]['content']}"))(h)

def ask(n): return [[Message(role="user", text=f"q{i}")] for i in range(n)]

def test_replies_keep_the_order_of_the_questions():
    slow_first = lambda h: after(.2 if h.body["messages"][-1]["content"] == "q0" else 0, by_question)(h)
    with FaultyServer(slow_first) as server: assert [r.text for r in endpoint(server, timeout=20.).generate(ask(12))] == [f"re: q{i}" for i in range(12)]

@pytest.mark.parametrize("concurrency", [1, 3])
def test_no_more_requests_at_a_time_than_allowed(concurrency):
    together = threading.Barrier(concurrency)  # nobody is answered before that many are there
    def act(h): together.wait(20); by_question(h)
    with FaultyServer(act) as server:
        endpoint(server, concurrency=concurrency, timeout=60., retries=0).generate(ask(9))
        assert server.most == concurrency

def test_one_failure_names_its_conversation_and_ends_the_others():
    def act(h): (status(401) if h.body["messages"][-1]["content"] == "q2" else silent)(h)
    with FaultyServer(act) as server:
        with pytest.raises(EndpointError, match=r"^conversation 2: the server at .* refused the key") as caught:
            endpoint(server, timeout=60., concurrency=3).generate(ask(30))
        assert caught.value.status == 401 and len(server.posts) <= 4  # at most the one that took the failed one's place

def test_many_threads_may_share_one_endpoint():
    with FaultyServer(by_question) as server:
        lm, out = endpoint(server, timeout=20.), {}
        threads = [threading.Thread(target=lambda i=i: out.update({i: lm.generate([[Message(role="user", text=f"t{i}")]])[0].text})) for i in range(8)]
        for t in threads: t.start()
        for t in threads: t.join()
    assert out == {i: f"re: t{i}" for i in range(8)}

def test_it_works_inside_a_running_event_loop():
    import asyncio
    async def inside(): return endpoint(server).generate([ASK])[0].text
    with FaultyServer(ok()) as server: assert asyncio.run(inside()) == "Hello."


# settings

@pytest.mark.parametrize("url", ["", "localhost:8000/v1", "ftp://host/v1", "http://", "http://host:port/v1", "http://host:99999/v1", "http://h/v1?x=1", "http://h/v1#m"])
def test_addresses_that_cannot_be(url):
    with pytest.raises(ValueError, match="base_url must look like"): ChatEndpoint(url, "m")

def test_a_password_in_the_address_is_refused_and_not_shown():
    with pytest.raises(ValueError) as caught: ChatEndpoint("http://me:hush@host/v1", "m")
    assert "hush" not in str(caught.value)

@pytest.mark.parametrize("options", [
    {"timeout": 0}, {"timeout": float("nan")}, {"timeout": float("inf")}, {"retries": -1}, {"concurrency": 0}, {"context": 0}])
def test_settings_that_cannot_be(options):
    with pytest.raises(ValueError): ChatEndpoint("http://h/v1", "m", **options)

@pytest.mark.parametrize("key", ["sk 1", "sk\n1", "schlüssel"])
def test_a_key_that_no_header_can_carry(key):
    with pytest.raises(ValueError) as caught: ChatEndpoint("http://h/v1", "m", api_key=key)
    assert key not in str(caught.value)

def test_the_model_needs_a_name():
    with pytest.raises(ValueError, match="model is empty"): ChatEndpoint("http://h/v1", " ")

def test_repr_tells_where_but_not_the_key():
    assert repr(endpoint("http://h/v1")) == "ChatEndpoint('http://h/v1', 'm', key set)" and "not set" in repr(endpoint("http://h/v1", api_key=None))

def test_a_missing_tokenizer_says_what_it_may_be(tmp_path):
    lm = endpoint("http://h/v1", tokenizer=tmp_path/"nowhere")
    with pytest.raises(FileNotFoundError, match="no tokenizer at .*nowhere"): lm.count_tokens("a")

@given(st.text(), st.text())
def test_the_estimate_is_additive_within_one_token_and_never_above_the_bytes(a, b):
    a, b = (t.encode("utf-8", "ignore").decode() for t in (a, b))
    assert estimate_tokens(a) <= len(a.encode()) and estimate_tokens(a) + estimate_tokens(b) - 1 <= estimate_tokens(a + b) <= estimate_tokens(a) + estimate_tokens(b)

def test_importing_the_module_loads_nothing_heavy():
    code = "import sys, memkit.models.endpoint; print([m for m in ('openai', 'torch', 'transformers', 'httpx', 'httpx2', 'pydantic') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


# pieces

def streamed(lm, ask=ASK, **how):
    "The pieces of a stream, and the reply that it returns."
    pieces, going = [], lm.stream(ask, **how)
    while True:
        try: pieces.append(next(going))
        except StopIteration as end: return pieces, end.value

def broken_off(server, ask=ASK, **options):
    "What was shown before a stream failed, and the error, of which no word may be the user's or the server's."
    pieces = []
    with pytest.raises(EndpointError) as caught:
        for p in endpoint(server, **options).stream(ask): pieces.append(p)
    for secret in (SECRET, WORDS, "knee", "Be brief", "Rest"): assert secret not in chain(caught.value)
    return pieces, caught.value

def test_a_stream_is_shown_as_it_comes_and_counted_by_the_server():
    with FaultyServer(sse("Rest ", "it", ".", usage=(31, 4))) as server:
        pieces, reply = streamed(endpoint(server), max_tokens=9)
        body = server.posts[0].body
    assert pieces == ["Rest", " it", "."] and isinstance(reply, Reply)
    assert (reply.text, reply.prompt_tokens, reply.answer_tokens, reply.finished, reply.counts_exact, reply.tries) == ("Rest it.", 31, 4, True, True, 1)
    assert body["stream"] is True and body["stream_options"] == {"include_usage": True} and body["max_tokens"] == 9

def test_the_contract_of_streams():
    text = "One, two, three."
    def both(h): (sse("One, ", "two, ", "three.") if h.body.get("stream") else ok(text))(h)
    with FaultyServer(both) as server: check_stream(lambda: endpoint(server))

@pytest.mark.parametrize("pieces, stop, shown", [
    (["<th", "ink>Is it", " flu?</thi", "nk>\n", "\nA ", "cold."], (), "A cold."), (["<think>Is it flu"], (), ""), (["Rest. Us", "er", ": and"], ("User:",), "Rest."), (["Rest. Us", "e it."], ("User:",), "Rest. Use it."),
    (["  ", "Rest", "\n\n"], (), "Rest")])
def test_what_is_shown_never_has_to_be_taken_back(pieces, stop, shown):
    with FaultyServer(sse(*pieces)) as server: got, reply = streamed(endpoint(server), stop=stop or ["§"])
    assert "".join(got) == reply.text == shown and "" not in got

@given(st.text(alphabet="<>/think Us:er.", max_size=40), st.integers(1, 5))
def test_any_text_in_any_pieces_only_grows(text, size):
    stream, shown = AnswerStream(["User:"]), ""
    for i in range(0, len(text), size): shown += stream.feed("data: " + json.dumps(event(text[i:i + size])))
    assert stream.text == text and certain_text(text, ["User:"]).startswith(shown)

@pytest.mark.parametrize("act, says", [
    (sse("Rest ", "it", end=()), "stopped in the middle of its answer"), (sse("Rest ", "it", end=(), broken=True), "closed the connection, or broke the protocol"),
    (sse("Rest ", b"{not json", "it"), "no JSON object"), (sse("Rest ", b"[1]", "it"), "no JSON object"), (sse("Rest ", {"error": {"message": WORDS}}), "broke its answer off"), (sse("Rest ", "it\ud83d"), "broken characters")])
def test_a_stream_that_breaks_is_no_answer_and_is_not_begun_again(act, says):
    with FaultyServer(act) as server:
        pieces, e = broken_off(server)
        assert pieces[0] == "Rest" and says in str(e) and "after a part of it was shown; ask again" in str(e) and len(server.posts) == 1

def test_a_stream_that_breaks_before_its_first_word_is_tried_again():
    with FaultyServer(sse(end=(), broken=True), status(503), sse("At last.")) as server:
        pieces, reply = streamed(endpoint(server))
        assert (pieces, reply.tries, len(server.posts)) == (["At last."], 3, 3)

def test_a_stream_that_falls_silent_ends_at_the_timeout():
    with FaultyServer(sse("Rest ", "it", pause=5)) as server:
        pieces, e = broken_off(server, timeout=.6)
        assert pieces == ["Rest"] and "gave no complete answer within 0.6 s" in str(e) and "after a part" in str(e)

def test_a_slow_first_byte_within_the_limit_is_no_error():
    with FaultyServer(after(.3, sse("Rest."))) as server: assert streamed(endpoint(server))[0] == ["Rest."]

def test_a_stream_that_never_ends_is_ended():
    with FaultyServer(comments) as server: assert "gave no complete answer within 0.4 s (timeout)" in str(broken_off(server, timeout=.4)[1])

def test_a_connection_that_never_stands(monkeypatch):
    import socket
    monkeypatch.setattr("memkit.models.endpoint.CONNECT", .2)
    with socket.socket() as listens:
        listens.bind(("127.0.0.1", 0)); listens.listen(0)
        address, waiting = listens.getsockname(), []
        for _ in range(4):      # nobody accepts: the queue is full then, and the next one hangs
            s = socket.socket(); s.setblocking(False); s.connect_ex(address); waiting.append(s)
        e = failure(f"http://127.0.0.1:{address[1]}/v1", retries=1)
        for s in waiting: s.close()
    assert "gave no connection within 0.2 s" in str(e) and e.tries == 2

def test_a_server_that_takes_no_stream_answers_in_one_piece_and_is_asked_so_from_then_on():
    with FaultyServer(refuses("stream", ok("Rest it."))) as server:
        lm = endpoint(server)
        assert streamed(lm)[0] == ["Rest it."] == streamed(lm)[0]
        assert ["stream" in r.body for r in server.posts] == [True, False, False] and all("stream_options" not in r.body for r in server.posts[1:])

def test_a_server_that_counts_no_stream_is_estimated():
    with FaultyServer(refuses("stream_options", sse("Rest ", "it.", usage=None), named=False)) as server:
        pieces, reply = streamed(endpoint(server))
        assert pieces == ["Rest", " it."] and not reply.counts_exact and "stream" in server.posts[1].body

def test_a_server_that_overhears_stream_answers_whole():
    with FaultyServer(ok("Rest it.")) as server: assert streamed(endpoint(server))[0] == ["Rest it."]
    with FaultyServer(garbage) as server: assert "not JSON" in str(broken_off(server)[1])

def test_a_reader_who_leaves_ends_the_request():
    with FaultyServer(sse("Rest ", "it", pause=9)) as server:
        start, going = time.monotonic(), endpoint(server).stream(ASK)
        assert next(going) == "Rest"
        going.close()
        assert time.monotonic() - start < 8

def test_what_cannot_be_asked_is_refused_before_anything_is_sent():
    with FaultyServer(ok()) as server:
        with pytest.raises(ValueError, match="max_tokens"): endpoint(server).stream(ASK, max_tokens=0)
        with pytest.raises(ValueError, match="no user message"): endpoint(server).stream(ASK[:1])
        assert server.requests == []


# JSON by a schema

@dataclass(frozen=True)
class Colour:
    name: str
    sure: float = 1.

def asked(lm, **how): return ask_json(lm, ASK, lambda text: read_answer(text, Colour), "looker", Colour, **how)

def test_a_schema_is_sent_where_the_server_takes_one():
    with FaultyServer(ok('{"name": "red", "sure": 0.5}')) as server:
        assert asked(endpoint(server)) == Colour("red", .5)
        form = server.posts[0].body["response_format"]
    assert form["type"] == "json_schema" and form["json_schema"]["schema"] == schema_of(Colour) and form["json_schema"]["strict"]

@pytest.mark.parametrize("named", [True, False])
def test_a_server_that_refuses_a_schema_is_asked_without_and_repaired(named):
    acts = iter([ok("It is red."), ok('{"name": "red"}'), ok('{"name": "blue"}')])
    with FaultyServer(refuses("response_format", lambda h: next(acts)(h), named=named)) as server:
        lm = endpoint(server)
        with watched() as w: assert asked(lm) == Colour("red")
        assert not lm.takes_schema and asked(lm) == Colour("blue")
        assert ["response_format" in r.body for r in server.posts] == [True, False, False, False]
        assert "can't be used" in server.posts[2].body["messages"][-1]["content"]
    assert usage(w.calls) == {"calls": 2, "prompt_tokens": 14, "answer_tokens": 4, "exact": True, "parts": {"looker": {"calls": 2, "prompt_tokens": 14, "answer_tokens": 4}}}

def test_a_schema_that_was_taken_and_not_kept_is_repaired_too():
    with FaultyServer(ok('{"colour": "red"}'), ok('{"name": "red"}')) as server: assert asked(endpoint(server)) == Colour("red")
    with FaultyServer(ok("<think>{}</think>It is red.")) as server:
        with pytest.raises(UnusableAnswer, match="no JSON"): asked(endpoint(server))

def test_a_refusal_is_remembered_only_where_it_was_the_reason():
    with FaultyServer(status(400, "no", param="temperature"), status(400, "no"), ok()) as server:
        lm = endpoint(server)
        with pytest.raises(EndpointError): lm.generate([ASK])
        lm.generate([ASK])
        assert ["temperature" in r.body for r in server.posts] == [True, False, True]

def test_what_a_server_wants_otherwise_is_remembered():
    with FaultyServer(status(400, "Use 'max_completion_tokens' instead.", param="max_tokens"), ok()) as server:
        lm = endpoint(server)
        lm.generate([ASK]); lm.generate([ASK])
        assert ["max_tokens" in r.body for r in server.posts] == [True, False, False]


# a real server

TEMPLATE = "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} </s> {% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"

def save_tiny_llama(folder):
    "A LLaMA of random weights that writes ASCII, by a byte-level BPE trained here on two hundred made-up words."
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    words = [" " + a + b + c for a in "bdfgk" for b in "aeiou" for c in ("", "l", "m", "n", "r", "s", "t", "x")]
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = [*map(chr, range(33, 127)), "Ġ", "Ċ"]  # as byte-level BPE writes ASCII, space and line break
    marks = ["</s>", "<system>", "<user>", "<assistant>"]
    inner.train_from_iterator(words*3, trainers.BpeTrainer(vocab_size=400, special_tokens=marks, initial_alphabet=alphabet, show_progress=False))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", pad_token="</s>", clean_up_tokenization_spaces=False)
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                         max_position_embeddings=256, bos_token_id=None, eos_token_id=0, pad_token_id=0, initializer_range=.5)).float()
    model.save_pretrained(folder); tokenizer.save_pretrained(folder)

def wait_until_up(url, process, log, seconds=120):
    from urllib.request import ProxyHandler, build_opener
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            with build_opener(ProxyHandler({})).open(f"{url}/health", timeout=2): return
        except OSError: time.sleep(.2)
    raise RuntimeError(f"transformers serve did not come up; it said: {log.read_text()[-2000:]}")

@pytest.fixture(scope="module")
def served(tmp_path_factory):
    missing = [m for m in ("fastapi", "uvicorn", "torch", "transformers") if importlib.util.find_spec(m) is None]
    if missing: pytest.skip(f"no {', '.join(missing)}: pip install 'transformers[serving]' torch")
    folder = tmp_path_factory.mktemp("served")
    (folder/"hub").mkdir(); save_tiny_llama(folder/"model")
    port, log = closed_port(), folder/"log"
    command = [Path(sys.executable).with_name("transformers"), "serve", folder/"model", "--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    env = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(folder/"hub"), "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    with open(log, "w") as out: process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=out, env=env)
    try:
        wait_until_up(f"http://127.0.0.1:{port}", process, log)
        yield f"http://127.0.0.1:{port}/v1", str(folder/"model")
    finally:
        process.terminate()
        try: process.wait(15)
        except subprocess.TimeoutExpired: process.kill(); process.wait()

def real(served, **options): return ChatEndpoint(*served, **{"context": 256, "tokenizer": served[1], "timeout": 120.} | options)

def test_real_server_keeps_the_contract(served): check_language_model(lambda: real(served))

def test_real_server_keeps_the_contract_without_a_tokenizer(served): check_language_model(lambda: real(served, tokenizer=None), exact=False)

def test_real_server_says_what_transformers_says(served):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    tokenizer, model = AutoTokenizer.from_pretrained(served[1]), AutoModelForCausalLM.from_pretrained(served[1], dtype=torch.float32)
    asked = [[Message(role="system", text="bal dat"), Message(role="user", text=text)] for text in ("fit fun", "gas gum kit", "bel")]
    replies = real(served).generate(asked, max_tokens=12)
    for messages, reply in zip(asked, replies):
        ids = tokenizer.apply_chat_template([{"role": m.role, "content": m.text} for m in messages], add_generation_prompt=True, return_tensors="pt", return_dict=True)
        new = model.generate(**ids, max_new_tokens=12, do_sample=False)[0, ids["input_ids"].shape[1]:]
        assert reply.text == tokenizer.decode(new, skip_special_tokens=True).strip() and reply.text
        assert (reply.prompt_tokens, reply.answer_tokens, reply.finished, reply.counts_exact) == (ids["input_ids"].shape[1], len(new), len(new) < 12, True)
    assert len({r.text for r in replies}) > 1

def test_real_server_streams(served):
    check_stream(lambda: real(served))
    pieces, reply = streamed(real(served), [Message(role="user", text="fit fun")], max_tokens=12)
    assert len(pieces) > 1 and reply.counts_exact

def test_real_server_takes_or_refuses_a_schema_and_answers(served):
    lm = real(served)
    assert lm.generate([[Message(role="user", text="fit fun")]], max_tokens=4, schema=schema_of(Colour))[0].text

def test_real_server_refuses_another_model(served):
    with pytest.raises(EndpointError, match=r"check the model's name 'phi-9'") as caught: ChatEndpoint(served[0], "phi-9", timeout=60.).generate([ASK])
    assert caught.value.status == 400 and "knee" not in chain(caught.value)


# --- servers that want it otherwise

def test_a_server_that_calls_max_tokens_otherwise():
    with FaultyServer(status(400, "Use 'max_completion_tokens' instead.", param="max_tokens"), ok()) as server:
        assert endpoint(server).generate([ASK], max_tokens=9)[0].text == "Hello."
        first, second = (r.body for r in server.requests)
    assert first["max_tokens"] == second["max_completion_tokens"] == 9 and "max_tokens" not in second

def test_a_server_that_has_one_temperature_only():
    with FaultyServer(status(400, "Only the default (1) is supported.", param="temperature"), ok()) as server:
        assert endpoint(server).generate([ASK])[0].tries == 2
        assert "temperature" not in server.requests[1].body

def test_a_field_is_left_out_once():
    with FaultyServer(status(400, "no", param="temperature")) as server:
        assert "refused the field 'temperature' (400)" in str(failure(server)) and len([r for r in server.requests if r.method == "POST"]) == 2

@pytest.mark.parametrize("text, said", [("<think>Is it flu? No.</think>\n\nA cold.", "A cold."), ("A cold.", "A cold.")])
def test_thoughts_are_no_part_of_an_answer(text, said):
    with FaultyServer(ok(text)) as server: assert endpoint(server).generate([ASK])[0].text == said

def test_thoughts_without_an_end_are_no_answer():
    with FaultyServer(ok("<think>Is it flu", finish="length")) as server: assert "max_tokens was used up" in str(failure(server))
