"""A loopback server that misbehaves to order: each request gets the next act of a script, the last act is repeated.

    with FaultyServer(status(500), status(500), ok("Hello.")) as server:
        ChatEndpoint(server.url, "m").generate(...)
        server.requests   # what came in: Request(at, method, path, headers, body)

An act is a function of the request's handler. Nothing here stays longer than the `with` block.
"""
import json
import socket
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Request:
    at: float      # seconds since the server started
    method: str
    path: str
    headers: dict  # names in lower case
    body: object   # parsed JSON, or None


def completion(text="Hello.", finish="stop", usage=(7, 2), **changes) -> dict:
    "A chat completion as OpenAI's API lays it out; `usage=None` leaves the token counts away."
    body = {"id": "c-1", "object": "chat.completion", "created": 0, "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}]}
    if usage is not None: body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": 0} if isinstance(usage, tuple) else usage
    return body | changes


def send(handler, code, content: bytes, headers=(), length=None):
    handler.send_response(code)
    for name, value in {"Content-Type": "application/json", "Content-Length": str(len(content) if length is None else length), **dict(headers)}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(content)


def say(value, code=200, headers=()): return lambda h: send(h, code, value if isinstance(value, bytes) else json.dumps(value).encode(), headers)

def ok(text="Hello.", **options): return say(completion(text, **options))

def status(code, message="no", headers=(), **error): return say({"error": {"message": message, **error}}, code, headers)

def garbage(h): send(h, 200, b"<html>It works!</html>", {"Content-Type": "text/html"})

def half(h):
    whole = json.dumps(completion()).encode()
    send(h, 200, whole[:len(whole)//2], length=len(whole))
    h.close_connection = True

def hang_up(h): h.close_connection = True

def not_http(h): h.wfile.write(b"220 mail.example ready\r\n"); h.close_connection = True

def silent(h): h.server.closing.wait(10)

def drip(h):
    "A body that never comes to its end, a byte at a time: every single read succeeds."
    send(h, 200, b"", length=100_000)
    while not h.server.closing.wait(.02): h.wfile.write(b" ")

def drip_headers(h):
    h.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not h.server.closing.wait(.02): h.wfile.write(b"z")

def event(text=None, finish=None, **more) -> dict:
    "One piece of a streamed answer."
    return {"choices": [{"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": finish}]} | more

def sse(*pieces, end=("stop", "usage", "[DONE]"), usage=(7, 2), broken=False, pause=0.):
    """A streamed answer: texts, and dicts or bytes as they are. `end`: what comes last, in order. `broken`: the connection
    is cut inside of a chunk. `pause`: seconds of silence after the first piece."""
    counts = {"choices": [], "usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": 0}} if usage else None
    last = [{"stop": event(finish="stop"), "length": event(finish="length"), "usage": counts, "[DONE]": b"[DONE]"}[e] for e in end]
    def act(h):
        h.send_response(200)
        for name, value in {"Content-Type": "text/event-stream; charset=utf-8", "Transfer-Encoding": "chunked"}.items(): h.send_header(name, value)
        h.end_headers()
        for i, p in enumerate([*(event(p) if isinstance(p, str) else p for p in pieces), *filter(None, last)]):
            if i == 1 and pause: h.server.closing.wait(pause)
            line = b"data: " + (p if isinstance(p, bytes) else json.dumps(p).encode()) + b"\n\n"
            h.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        h.wfile.write(b"ff\r\ndata: {" if broken else b"0\r\n\r\n")
        h.close_connection = broken
    return act

def comments(h):
    "A stream that never says anything, and is never silent."
    send(h, 200, b"", {"Content-Type": "text/event-stream"}, length=100_000)
    while not h.server.closing.wait(.02): h.wfile.write(b": still there\n\n")

def refuses(field, act, code=400, named=True):
    "`act`, where the request doesn't hold `field`; else a refusal, with the field as its `param` or in its words alone."
    refusal = status(code, f"Unexpected field: {field}", **({"param": field} if named else {}))
    return lambda h: (refusal if field in h.body else act)(h)

def after(seconds, act):
    "`act`, that many seconds late."
    def late(h): h.server.closing.wait(seconds); act(h)
    return late

def echo_error(code):
    "Refuses, and repeats everything it was told, the key included."
    return lambda h: send(h, code, json.dumps({"error": {"message": f"bad: {json.dumps(h.body)} {h.headers['Authorization']}", "code": str(h.body)}}).encode(),
                          {"X-Echo": json.dumps(h.body)})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self): self.act(self.server.next_act())

    def do_GET(self): self.act(self.server.models)

    def act(self, act):
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.body = json.loads(content) if content else None
        request = Request(time.monotonic() - self.server.started, self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, self.body)
        with self.server.lock: self.server.requests.append(request); self.server.busy += 1; self.server.most = max(self.server.most, self.server.busy)
        try: act(self)
        except OSError: self.close_connection = True  # the client has gone
        finally:
            with self.server.lock: self.server.busy -= 1

    def log_message(self, *args): pass


class FaultyServer(ThreadingHTTPServer):
    daemon_threads, block_on_close = True, False

    def __init__(self, *script, models=status(404), port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.script, self.models, self.requests, self.lock = list(script), models, [], threading.Lock()
        self.started, self.closing, self.busy, self.most = time.monotonic(), threading.Event(), 0, 0
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    def next_act(self):
        with self.lock: return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def handle_error(self, request, client_address): pass  # clients that leave early are what the tests are about

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(.01,), daemon=True).start()
        return self

    def __exit__(self, *args):
        self.closing.set(); self.shutdown(); self.server_close()

    @property
    def posts(self) -> list[Request]: return [r for r in self.requests if r.method == "POST"]


def closed_port() -> int:
    "A port on which nobody listens."
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
