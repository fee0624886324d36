"""Every inference route of the allow-list goes to a worker by its model, byte for byte but for the model's name, and
answers, errors and cut streams are in the words of the client's own API.  routes.py BACKEND"""
import email.parser, json, os, pathlib, queue, random, re, sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import group as g
import raw

BACKEND = sys.argv[1]
MODEL, OTHER, KEPT = "routes", "elsewhere", "kept"
ALIAS = MODEL + "-by-another-name"
os.environ.setdefault("ASAN_OPTIONS", "abort_on_error=1")
heard = queue.SimpleQueue()             # (worker's door, request line, headers, body)
script = queue.SimpleQueue()            # what the next requests are answered with: (bytes, how it ends)
BODY = 4 << 20                          # bodies of this gateway
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class Worker(raw.Played):
    def play(self, s, seen):
        while True:
            head, body = raw.whole_request(s, seen)
            if not head:
                return
            line, *fields = head.decode().split("\r\n")
            heard.put((self, line, dict((k.lower(), v.strip()) for k, v in (f.split(":", 1) for f in fields)), body))
            try:
                answer, end = script.get_nowait()
            except queue.Empty:
                answer, end = OK, "keep"
            s.sendall(answer)
            if end == "reset":
                g.reset(s)
            if end == "hold":
                s.recv(1)               # until the router gives up
            if end != "keep":
                return
            seen = b""


def drain(q):
    out = []
    while not q.empty():
        out.append(q.get())
    return out


def ask(path, body=b"", method="POST", answer=None, end="keep", kind="application/json"):
    """Status, headers, body, how it ended."""
    if answer is not None:
        script.put((answer, end))
    if isinstance(body, dict):
        body = json.dumps(body).encode()
    with raw.Client(house.port) as c:
        length = f"Content-Length: {len(body)}\r\nContent-Type: {kind}\r\n" if body or method == "POST" else ""
        return c.send(f"{method} {path} HTTP/1.1\r\nHost: r\r\n{length}\r\n".encode() + body).answer()


def error_of(path, got, status):
    """The error's words, when they are in the shape of the path's API."""
    assert got[0] == status and got[3] == "clean", (path, got)
    said = json.loads(got[2])
    if path.startswith("/v1/messages"):
        assert said["type"] == "error" and set(said["error"]) == {"type", "message"}, (path, said)
    else:
        assert set(said) == {"error"} and set(said["error"]) == {"message", "type", "param", "code"}, (path, said)
    return said["error"]


JSON_ROUTES = {
    "/v1/chat/completions": '"messages":[{"role":"user","content":"x"}]',
    "/v1/completions": '"prompt":[1,2,3]',
    "/v1/messages": '"max_tokens":3,"messages":[{"role":"user","content":"x"}]',
    "/v1/messages/count_tokens": '"messages":[{"role":"user","content":"x"}]',
    "/inference/v1/generate": '"token_ids":[1,2,3],"sampling_params":{"max_tokens":2}',
    "/v1/embeddings": '"input":["a","b"]',
    "/pooling": '"input":"a"',
    "/classify": '"input":"a"',
    "/score": '"text_1":"a","text_2":["b"]',
    "/v1/score": '"text_1":"a","text_2":["b"]',
    "/rerank": '"query":"q","documents":["a","b"]',
    "/v1/rerank": '"query":"q","documents":["a","b"]',
    "/v2/rerank": '"query":"q","documents":["a","b"]',
    "/tokenize": '"prompt":"a"',
    "/detokenize": '"tokens":[1,2]',
}


def by_model():
    """Odd spacing, numbers and order reach the worker of that model unchanged; of an alias the name alone changes."""
    for path, members in JSON_ROUTES.items():
        for name, real in ((MODEL, MODEL), (ALIAS, MODEL), (OTHER, OTHER)):
            body = '{ "seed" : 9007199254740993,\t%s , "model" :"%s","model_":"%s", "x":{"model":"%s"} }' % (
                members, name, ALIAS, ALIAS)
            drain(heard)
            status, headers, got, end = ask(path + "?q=%2e", body.encode())
            assert (status, got, end) == (200, b"{}", "clean"), (path, status, got)
            (worker, line, _, sent), = drain(heard)
            assert worker is (doors if real == MODEL else others)["a"], (path, name)
            assert line == f"POST {path}?q=%2e HTTP/1.1", line
            assert sent.decode() == body.replace(f'"model" :"{name}"', f'"model" :"{real}"'), (path, sent)
            assert headers["x-pointsman-model"] == real, headers
        # What the worker says is passed on, errors too.
        said = b'{"odd" : "error" , "n":1.50}'
        for status in (200, 400, 404, 422):
            head = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(said))
            got = ask(path, body.encode(), answer=head + said)
            assert (got[0], got[2], got[3]) == (status, said, "clean"), (path, got)


def own_errors():
    """What is refused here is refused in the words of the API, and asks no worker."""
    for path, members in JSON_ROUTES.items():
        drain(heard)
        e = error_of(path, ask(path, ('{%s,"model":"no-such"}' % members).encode()), 404)
        assert "no-such" in e["message"], e
        e = error_of(path, ask(path, ('{%s}' % members).encode()), 400)
        assert "model" in e["message"], e
        error_of(path, ask(path, b"{"), 400)
        error_of(path, ask(path, ('{"model":"%s",%s,"model":"%s"}' % (MODEL, members, OTHER)).encode()), 400)
        error_of(path, ask(path, method="GET"), 405)
        with raw.Client(house.port) as c:
            c.send(f"POST {path} HTTP/1.1\r\nHost: r\r\nContent-Length: {BODY + 1}\r\n\r\n".encode())
            error_of(path, c.answer(), 413)
        assert heard.empty(), heard.get()
        # The worker's connection breaks before an answer.
        body = ('{%s,"model":"%s"}' % (members, MODEL)).encode()
        error_of(path, ask(path, body, answer=b"HTTP/1.1 2", end="eof"), 502)
    for path in ("/v1/messages/batches", "/v1/messages/", "/v1/messagesx"):
        assert error_of(path, ask(path, b"{}"), 404)["type"] == "not_found_error"


def event(name, **data):
    data = {"type": name, **data}
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


MESSAGE = [
    event("message_start", message={"id": "msg_1", "type": "message", "role": "assistant", "content": [],
                                    "usage": {"input_tokens": 9, "output_tokens": 0}}),
    event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    event("ping"),
    event("content_block_delta", index=0, delta={"type": "text_delta", "text": "message_stop \"error\" größe"}),
    event("content_block_stop", index=0),
    event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 5}),
    event("message_stop"),
]
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOSED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def chunked(data, size):
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (data[i:i + size] for i in range(0, len(data), size)))


def streams(path, body, events, last):
    """A stream comes byte for byte, however it is cut into chunks; one that breaks off, at any event or byte, ends
    with an error event in its own words and without a clean end."""
    whole = b"".join(events)
    for size in (1, 7, 64, len(whole)):
        got = ask(path, body, answer=CHUNKED + chunked(whole, size) + b"0\r\n\r\n")
        assert got[0] == 200 and got[2] == whole and got[3] == "clean", (size, got)
    # Without a length the last word says that it is whole.
    got = ask(path, body, answer=CLOSED + whole, end="eof")
    assert got[2] == whole and got[3] == "clean", got
    ends = [sum(map(len, events[:i])) for i in range(len(events))]
    for at in sorted({*ends, *range(0, len(whole), 17)}):
        for head, how in ((CHUNKED + chunked(whole[:at], 50), "eof"), (CLOSED + whole[:at], "eof")):
            status, _, got, end = ask(path, body, answer=head, end=how)
            assert status == 200 and end != "clean", (at, end)
            begun, _, sorry = got.rpartition(b"event: error\ndata: ")
            assert begun in (whole[:at], whole[:at] + b"\n\n"), (at, got)
            said = json.loads(sorry)
            assert sorry.endswith(b"\n\n") and said["type"] == "error", sorry
            last(said, at, whole[:at].count(b"\n\n"))


def last_of_messages(said, at, events):
    assert said["error"]["type"] == "api_error" and said["error"]["message"], said


def outcome(headers):
    """What the books say of a request."""
    r = house.ctl("explain", headers["x-pointsman-request-id"], "--output", "json")
    return json.loads(r.stdout)["outcome"]


def messages():
    body = {"model": MODEL, "max_tokens": 5, "stream": True, "messages": [{"role": "user", "content": "x"}]}
    streams("/v1/messages", body, MESSAGE, last_of_messages)
    headers = ask("/v1/messages", body, answer=CHUNKED + chunked(b"".join(MESSAGE), 40) + b"0\r\n\r\n")[1]
    o = outcome(headers)
    assert (o["prompt_tokens"], o["completion_tokens"], o["error"]) == (9, 5, None), o
    # The engine fails in the middle: passed on as it is, and noted.
    sorry = event("error", error={"type": "api_error", "message": "no blocks"})
    got = ask("/v1/messages", body, answer=CHUNKED + chunked(MESSAGE[0] + sorry, 40) + b"0\r\n\r\n")
    assert got[2] == MESSAGE[0] + sorry and got[3] == "clean", got
    assert outcome(got[1])["error"] == "engine_error"


RESPONSE = [
    event("response.created", sequence_number=0, response={"id": "resp_s-1", "status": "in_progress", "error": None}),
    event("response.output_text.delta", sequence_number=1, delta="response.completed \"error\" größe"),
    event("response.completed", sequence_number=2,
          response={"id": "resp_s-1", "output": [{"text": "x" * 6000}],
                    "usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5}}),
]


def last_of_responses(said, at, events):
    assert said["message"] and said["sequence_number"] == events, (said, at)


def kept_at(worker, path, method="GET", **more):
    """It is asked of that worker alone; what that said."""
    drain(heard)
    status, headers, got, end = ask(path, method=method, **more)
    (asked, line, sent, _), = drain(heard)
    assert asked is stored.doors[worker], (path, line)
    assert line == f"{method} {path} HTTP/1.1" and headers["x-pointsman-worker"] == worker, (line, headers)
    return status, headers, got, end


def said(status, **doc):
    body = json.dumps(doc).encode()
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body


def a_is_first():
    """Who was busy comes last until a later page of it was read."""
    stored.doors["a"].wait_probes(3)


def on_b(answer):
    """The second candidate is asked because the first is busy: what is kept, is kept there."""
    a_is_first()
    script.put((said(503, error="busy"), "keep"))
    got = ask("/v1/responses", {"model": KEPT, "input": "x"}, answer=answer)
    assert got[0] == 200 and got[1]["x-pointsman-worker"] == "b", got
    return got


def nobody_keeps(path, id, method="GET", body=b""):
    drain(heard)
    e = error_of(path, ask(path, body, method=method), 404)
    assert e["code"] == "response_not_found" and id in e["message"], e
    assert heard.empty(), "never a random worker"


def responses():
    streams("/v1/responses", {"model": MODEL, "input": "x", "stream": True}, RESPONSE, last_of_responses)
    headers = ask("/v1/responses", {"model": MODEL, "input": "x", "stream": True},
                  answer=CHUNKED + chunked(b"".join(RESPONSE), 40) + b"0\r\n\r\n")[1]
    o = outcome(headers)
    assert (o["prompt_tokens"], o["cached_tokens"], o["completion_tokens"]) == (9, 0, 5), o
    failed = event("response.failed", response={"id": "resp_f", "error": {"message": "no blocks"}})
    got = ask("/v1/responses", {"model": MODEL, "input": "x"}, answer=CHUNKED + chunked(failed, 9) + b"0\r\n\r\n")
    assert got[2] == failed and got[3] == "clean" and outcome(got[1])["error"] == "engine_error"

    nobody_keeps("/v1/responses/resp_none", "resp_none")
    nobody_keeps("/v1/responses/resp_none", "resp_none", "DELETE")
    nobody_keeps("/v1/responses/resp_none/cancel", "resp_none", "POST")
    nobody_keeps("/v1/responses", "resp_none", "POST",
                 {"model": KEPT, "input": "x", "previous_response_id": "resp_none"})
    on_b(said(200, created=1.5, id="resp_j", output=[{"id": "msg_1"}]))
    on_b(CHUNKED + chunked(b"".join(RESPONSE), 1) + b"0\r\n\r\n")
    for id in ("resp_j", "resp_s-1"):
        kept_at("b", f"/v1/responses/{id}")
        kept_at("b", f"/v1/responses/{id}?include[]=x&starting_after=3")
        kept_at("b", f"/v1/responses/{id}/cancel", "POST", answer=said(200, id=id))
        got = kept_at("b", "/v1/responses", "POST", body={"model": KEPT, "previous_response_id": id, "input": "y"},
                      answer=said(200, id=id + "-next"))
        kept_at("b", f"/v1/responses/{id}-next")
    text = house.ctl("explain", got[1]["x-pointsman-request-id"]).stdout
    assert "pinned" in text and "pinned-elsewhere" in text, text
    # What was kept is not computed again: its usage was booked when it was, and its speed teaches nothing.
    headers = kept_at("b", "/v1/responses/resp_s-1?stream=true",
                      answer=CHUNKED + chunked(b"".join(RESPONSE), 40) + b"0\r\n\r\n")[1]
    o = outcome(headers)
    assert o["prompt_tokens"] is None and o["ttft_us"] is None and "x-pointsman-alias" not in headers, (o, headers)
    # Not by chance: what keeps nothing goes to the faster one.
    a_is_first()
    assert ask("/v1/responses", {"model": KEPT, "input": "x"})[1]["x-pointsman-worker"] == "a"
    # What b says is the answer, and what b does not say nobody else does.
    for status in (404, 429, 500, 503):
        assert kept_at("b", "/v1/responses/resp_j", answer=said(status, odd=1))[0] == status
    drain(heard)
    error_of("/v1/responses/resp_j", ask("/v1/responses/resp_j", method="GET", answer=b"HTTP/1.1 2", end="eof"), 502)
    assert [x[0] for x in drain(heard)] == [stored.doors["b"]]
    # Another model's worker cannot go on from it.
    e = error_of("/v1/responses", ask("/v1/responses", {"model": OTHER, "previous_response_id": "resp_j"}), 400)
    assert OTHER in e["message"], e
    error_of("/v1/responses", ask("/v1/responses", b'{"model":"%s","previous_response_id":"resp_j",'
                                  b'"previous_response_id":"resp_s-1"}' % KEPT.encode()), 400)
    a_is_first()
    # What a worker says of one that it keeps moves and drops no other, which may be kept elsewhere.
    assert ask("/v1/responses", {"model": KEPT, "input": "x"}, answer=said(200, id="resp_a"))[1]["x-pointsman-worker"] == "a"
    kept_at("a", "/v1/responses/resp_a", answer=said(200, id="resp_j"))
    kept_at("a", "/v1/responses/resp_a/cancel", "POST", answer=said(200, id="resp_j"))
    kept_at("b", "/v1/responses/resp_j")
    kept_at("a", "/v1/responses/resp_a", "DELETE", answer=said(200, id="resp_j", deleted=True))
    kept_at("b", "/v1/responses/resp_j")
    kept_at("a", "/v1/responses/resp_a")
    # Deleted is forgotten; no body where none belongs; other methods.
    assert kept_at("b", "/v1/responses/resp_j", "DELETE", answer=said(200, id="resp_j", deleted=True))[0] == 200
    nobody_keeps("/v1/responses/resp_j", "resp_j")
    error_of("/v1/responses/resp_s-1", ask("/v1/responses/resp_s-1", method="PUT"), 405)
    with raw.Client(house.port) as c:
        c.send(b"GET /v1/responses/resp_s-1 HTTP/1.1\r\nHost: r\r\nContent-Length: 2\r\n\r\n{}")
        error_of("/v1/responses/resp_s-1", c.answer(), 400)
    # Known before its client can know it: the stream goes on, and it is asked for already.
    a_is_first()
    script.put((said(503, error="busy"), "keep"))
    first = RESPONSE[0].replace(b"resp_s-1", b"resp_open")
    script.put((CHUNKED + chunked(first, len(first)), "hold"))
    with raw.Client(house.port) as c:
        body = json.dumps({"model": KEPT, "input": "x"}).encode()
        c.send(b"POST /v1/responses HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        while b"resp_open" not in c.got:
            c.more()
        kept_at("b", "/v1/responses/resp_open")


def form(boundary, *parts):
    return b"".join(b"--%s\r\n%s\r\n\r\n%s\r\n" % (boundary, head, value) for head, value in parts) + \
        b"--%s--\r\n" % boundary


def named(name, value, more=b""):
    return b'Content-Disposition: form-data; name="%s"%s' % (name, more), value


def audio():
    """A form goes by its model part, byte for byte but for that part's value; what is not plainly one form is refused."""
    rng = random.Random(7)
    for path in ("/v1/audio/transcriptions", "/v1/audio/translations"):
        for size, name, real in ((300, MODEL, MODEL), (70000, ALIAS, MODEL), (BODY - 2000, ALIAS, MODEL),
                                 (5000, OTHER, OTHER)):
            sound = rng.randbytes(size // 2) + b"\r\n--X-\r\n--\r\n\r--X-b--" + rng.randbytes(size // 2)
            file = named(b"file", sound, b'; filename="mod\\"el.wav"\r\nContent-Type: audio/wav')
            model = named(b"model", name.encode())
            for parts in ((file, model, named(b"language", name.encode())), (model, named(b"stream", b"true"), file)):
                body = form(b"X-b", *parts)
                drain(heard)
                status, headers, got, end = ask(path, body, kind='multipart/form-data; boundary="X-b"')
                assert (status, got, end) == (200, b"{}", "clean"), (path, size, status, got)
                (worker, line, sent_head, sent), = drain(heard)
                assert worker is (doors if real == MODEL else others)["a"] and line == f"POST {path} HTTP/1.1", line
                want = form(b"X-b", *((h, real.encode() if (h, v) == model else v) for h, v in parts))
                assert sent == want, (path, size, len(sent), len(want))
                assert sent_head["content-type"] == 'multipart/form-data; boundary="X-b"', sent_head
                assert headers["x-pointsman-model"] == real, headers
                # Another reader finds the same in what the worker got.
                parsed = email.parser.BytesParser().parsebytes(b"Content-Type: " + sent_head["content-type"].encode()
                                                               + b"\r\n\r\n" + sent)
                values = {p.get_param("name", header="content-disposition"): p.get_payload(decode=True)
                          for p in parsed.get_payload()}
                assert values["model"] == real.encode(), values["model"]
        two = form(b"X-b", named(b"model", MODEL.encode()), named(b"model", OTHER.encode()))
        one = form(b"X-b", named(b"model", MODEL.encode()))
        kind = "multipart/form-data; boundary=X-b"
        drain(heard)
        for body, kind, status, why in (
                (two, kind, 400, "model is given twice"), (one[:-4], kind, 400, "at byte"), (b"", kind, 400, "boundary"),
                (one, "multipart/form-data", 400, "boundary"), (one, "application/json", 415, "multipart/form-data"),
                (one, kind + "\r\nContent-Type: application/json", 400, "twice"),
                (one, "multipart/form-data; boundary=other", 400, "boundary"),
                (form(b"X-b", named(b"x", b"y")), kind, 400, "model"),
                (form(b"X-b", named(b"model", b"no-such")), kind, 404, "no-such")):
            e = error_of(path, ask(path, body, kind=kind), status)
            assert why in e["message"], (why, e)
        assert heard.empty(), heard.get()


def away():
    """A pin outlives the ingress that made it; a worker that does not answer is said to be away."""
    old = house.pids("ingress", "ready")
    house.supervisor.send_signal(g.h.signal.SIGUSR2)
    g.h.until("another ingress", lambda: (p := house.pids("ingress")) and not set(p) & set(old))
    kept_at("b", "/v1/responses/resp_s-1")
    # A worker that was removed and came back keeps nothing of before.
    text = house.config.read_text()
    on_b(said(200, id="resp_c"))
    kept_at("b", "/v1/responses/resp_c")
    rest = [d for d in text.split("---\n") if f"metadata: {{name: {KEPT}-b}}" not in d]
    assert len(rest) == text.count("---\n"), "one document less"
    house.config.write_text("---\n".join(rest).replace(f"{KEPT}-a, {KEPT}-b]", f"{KEPT}-a]"))
    house.ctl("reload")                 # drained first, then gone
    g.h.until("it to be gone", lambda: ask("/v1/responses/resp_c", method="GET")[0] == 404)
    nobody_keeps("/v1/responses/resp_c", "resp_c")
    house.config.write_text(text)
    house.ctl("reload")
    g.h.until("it to be up again", lambda: (s := house.stat())["workers_up"] == s["workers_count"] == 4)
    nobody_keeps("/v1/responses/resp_c", "resp_c")
    # An answer without an id, or one that is not read, is counted.
    on_b(said(200, odd=1))
    on_b(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc")
    page = g.h.request(house.admin, "GET", "/metrics")[1]
    assert re.search(r'pointsman_pins_lost_total\{process="ingress"[^}]*\} [1-9]', page), page
    assert re.search(r'pointsman_pins_unknown_total\{process="policy"[^}]*\} [1-9]', page), page
    on_b(said(200, id="resp_s-1"))
    stored.doors["b"].shut()

    def down():
        got = ask("/v1/responses/resp_s-1", method="GET")
        return got[0] == 503 and json.loads(got[2])["error"]["code"] == "pinned_worker_down"

    g.h.until("its worker to be down", down, 40)
    drain(heard)
    assert down() and heard.empty()


demo, other = g.Scenario(MODEL, workers="a", door=Worker), g.Scenario(OTHER, workers="a", door=Worker)
stored = g.Scenario(KEPT, door=Worker, scrape="100ms")
with g.Group([demo, other, stored], BACKEND, "  policyProcess: {probation: 10ms}", body=f"{BODY >> 20}MiB") as house:
    doors, others = demo.doors, other.doors
    house.start()
    by_model()
    own_errors()
    messages()
    responses()
    audio()
    print(house.settle())
    away()
print(f"every route by its model ({BACKEND})")
