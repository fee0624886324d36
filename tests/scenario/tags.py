"""Tags of requests, and a rule that keeps what has them at home: whatever the API, the size, the escapes; what cannot be
read; who may say so in a header; a classifier that answers, is slow, errs and dies.  The outside is a process of its own
that writes down all that it was sent.
tags.py
"""
import contextlib, http.server, json, signal, sys, threading

import house as h

DOCUMENTS = """
---
apiVersion: pointsman.io/v1alpha1
kind: InferenceProvider
metadata: {{name: cloud}}
spec:
  type: openai
  models: [{{name: big, upstream: their-model, price: {{input: 3, output: 15}}}}]
---
apiVersion: pointsman.io/v1alpha1
kind: RequestTag
metadata: {{name: pii}}
spec: {{patterns: [{{type: email}}, {{type: phone}}, {{type: iban}}, {{type: card}}, {{type: ssn}}, {{type: secret}}]}}
{more}
"""
HEADER = """
---
apiVersion: pointsman.io/v1alpha1
kind: RequestTag
metadata: {name: inhouse}
spec: {header: {name: X-Class, value: inhouse}}
"""
JUDGED = """
---
apiVersion: pointsman.io/v1alpha1
kind: RequestTag
metadata: {{name: judged}}
spec: {{classifier: {{url: "http://127.0.0.1:{port}/judge", label: private, deadline: 150ms}}}}
"""
RULES = """
  rules:
    - name: stays-home
      when: "{when}"
      remove: "candidate.kind == 'Provider'"
      onEmpty: Reject
    - name: rather-out
      keepFirst: ["candidate.kind == 'Provider'"]
"""
MARK = "anna.mark@example.com"


class Fleet(h.House):
    def __init__(self, when, more="", **named):
        super().__init__(candidates="[{pool: all}, {provider: cloud, model: big}]", documents=DOCUMENTS.format(more=more),
                         policy=RULES.format(when=when), **named)
        self.add("--profile", "zero")
        self.listed = self.workers[:]

    def __enter__(self):
        self.start()
        self.cloud = h.Provider(self.folder, "cloud", path=self.run / "provider.sock", profile="zero")
        self.workers.append(self.cloud)
        for row in ("w0", "cloud/big"):
            h.until(f"{row} to be up", lambda: self.state(row) == "up")
        return self

    def state(self, row):
        rows = json.loads(self.ctl("workers", "--output", "json").stdout)["workers"]
        return next((w["state"] for w in rows if w["worker"] == row), "absent")

    def where(self, body, path="/v1/chat/completions", headers=None):
        """Who answered, or the error's body."""
        status, answer, head = h.request(self.port, "POST", path, body, headers)
        head = {k.lower(): v for k, v in head.items()}
        return head.get("x-pointsman-worker") if status < 500 else (status, answer, head)

    def chat_goes(self, content, headers=None, **more):
        return self.where({"model": self.model, "messages": [{"role": "user", "content": content}], "max_tokens": 2, **more},
                          headers=headers)

    def counter(self, name):
        page = h.request(self.admin, "GET", "/metrics")[1]
        return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(f"pointsman_{name}_total"))


def at_home(row):
    assert row == "w0", row


def what_is_personal_stays_home_in_every_shape():
    with Fleet("'pii' in request.tags") as f:
        assert f.chat_goes("hello") == "cloud/big"
        tool = [{"id": "c1", "type": "function", "function": {"name": "mail", "arguments": json.dumps({"to": MARK})}}]
        part = [{"type": "text", "text": "see below"}, {"type": "text", "text": f"{MARK}, please"}]
        chats = [
            [{"role": "user", "content": f"write to {MARK}"}],
            [{"role": "system", "content": MARK}, {"role": "user", "content": "hi"}],
            [{"role": "user", "content": part}],
            [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": tool},
             {"role": "tool", "tool_call_id": "c1", "content": "ok"}],
            [{"role": "user", "content": "a" * 100_000 + f" {MARK}"}],
        ]
        for messages in chats:
            at_home(f.where({"model": f.model, "messages": messages, "max_tokens": 2}))
        for text in ("DE89 3704 0044 0532 0130 00", "4111 1111 1111 1111", "536-22-8726", "Tel. 030 901820",
                     "رقم البطاقة ٤١١١ ١١١١ ١١١١ ١١١١", "gh" + "p_" + "Q7w3Er9Ty5Ui1Op2As4Df6Gh8Jk0Lz3Xc5Vb7Nm9"):
            at_home(f.chat_goes(text))
        at_home(f.where({"model": f.model, "prompt": ["x", MARK], "max_tokens": 2}, "/v1/completions"))
        at_home(f.where({"model": f.model, "input": MARK, "max_output_tokens": 2}, "/v1/responses"))
        escaped = '{"model":"%s","max_tokens":2,"messages":[{"role":"user","content":"%s"}]}' % (
            f.model, "".join(f"\\u{ord(c):04x}" for c in MARK))
        at_home(f.where(escaped.encode()))
        # What nobody can read is taken for personal; a large body that has nothing goes out.
        at_home(f.where({"model": f.model, "prompt": [5, 6, 7], "max_tokens": 2}, "/v1/completions"))
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
        assert f.chat_goes([{"type": "text", "text": "who is this?"}, image]) == "w0"
        assert f.counter("tags_unknown") == 2
        assert f.chat_goes("b" * 100_000) == "cloud/big"
        # Home is gone: refused, and by which rule.
        f.workers[0].stop(signal.SIGKILL)
        status, answer, head = f.chat_goes(MARK)
        assert status in (502, 503), (status, answer)
        h.until("the worker to be known as down", lambda: f.state("w0") == "down")
        status, answer, head = f.chat_goes(MARK)
        assert status == 503 and f.chat_goes("hello again") == "cloud/big", (status, answer)
        came = json.dumps(f.cloud.came())
        assert "hello again" in came and MARK not in came and "anna" not in came
        said = f.explain(head["x-pointsman-request-id"])
        assert "pii" in said and "stays-home" in said, said


def a_header_is_believed_of_a_trusted_peer_alone():
    with Fleet("'inhouse' in request.tags", HEADER, gateway='  client: {trustedPeers: ["127.0.0.1"]}') as f:
        assert f.chat_goes("hello") == "cloud/big"
        assert f.chat_goes("hello", {"X-Class": "night, inhouse"}) == "w0"
    with Fleet("'inhouse' in request.tags", HEADER, gateway='  client: {trustedPeers: ["192.0.2.1"]}') as f:
        assert f.chat_goes("hello", {"X-Class": "inhouse"}) == "cloud/big"


class Judge(http.server.ThreadingHTTPServer):
    """A classifier; `says`: a label, None for an error, or an event to wait for before an answer that is too late."""

    def __init__(self, port):
        super().__init__(("127.0.0.1", port), Answer)
        self.says, self.asked = "public", []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def end(self):
        self.shutdown()
        self.server_close()


class Answer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        self.server.asked.append(texts)
        says = self.server.says
        if isinstance(says, threading.Event):
            says.wait(30)
        answer = json.dumps({"data": [{"index": 0, "label": str(says), "probs": [0.9, 0.1]}]}).encode()
        with contextlib.suppress(BrokenPipeError):      # nobody waits any more
            self.send_response(200 if says else 500)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    def log_message(self, *_):
        pass


def a_classifiers_silence_is_taken_for_a_yes():
    port = h.free_port()
    judge = Judge(port)
    with Fleet("'judged' in request.tags", more=JUDGED.format(port=port)) as f:
        assert f.chat_goes("one") == "cloud/big" and judge.asked == [["one"]]
        assert f.chat_goes("one") == "cloud/big" and len(judge.asked) == 1, "its word is kept"
        judge.says = "private"
        assert f.chat_goes("two") == "w0"
        judge.says = None
        assert f.chat_goes("three") == "w0"
        slow = judge.says = threading.Event()
        assert f.chat_goes("four") == "w0"
        slow.set()
        judge.says = "public"
        assert f.chat_goes("five") == "cloud/big"
        judge.end()
        assert f.chat_goes("six") == "w0" and f.chat_goes("seven") == "w0"
        assert f.chat_goes("one") == "cloud/big", "what it said stays said"
        assert f.counter("tags_unknown") == 4 and f.counter("classify_failures") >= 3, f.counter("classify_failures")
        assert f.counter("classify_hits") >= 3 and f.counter("classify_calls") >= 5
        came = json.dumps(f.cloud.came())
        assert not any(word in came for word in ("two", "three", "four", "six", "seven")), came


TESTS = [what_is_personal_stays_home_in_every_shape, a_header_is_believed_of_a_trusted_peer_alone,
           a_classifiers_silence_is_taken_for_a_yes]
for test in TESTS:
    if len(sys.argv) < 2 or sys.argv[1] == test.__name__:
        test()
        print(f"ok {test.__name__}", flush=True)
