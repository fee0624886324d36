"""No spelling of any path reaches an engine's admin route: a worker sees the paths of the allow-list, exactly, and no
others, whatever was encoded, dotted, doubled, put in absolute form or behind a query."""
import itertools, os, pathlib, re, sys, threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import group as g
import raw

MODEL = "spelled"
os.environ.setdefault("ASAN_OPTIONS", "abort_on_error=1")
ADMIN = """/sleep /wake_up /is_sleeping /pause /resume /is_paused /reset_prefix_cache /reset_mm_cache
/reset_encoder_cache /collective_rpc /update_weights /init_weight_transfer_engine /abort_requests /server_info /version
/load /metrics /health /ping /docs /redoc /openapi.json /invocations /v1/load_lora_adapter /v1/unload_lora_adapter
/scale_elastic_ep /is_scaling_elastic_ep /start_profile /stop_profile /tokenizer_info /kv_event_sources /v1/realtime
/get_load /flush_cache /release_memory_occupation""".split()
ALLOWED = set("""/v1/chat/completions /v1/completions /v1/responses /v1/messages /v1/messages/count_tokens
/inference/v1/generate /v1/embeddings /pooling /classify /score /v1/score /rerank /v1/rerank /v2/rerank /tokenize
/detokenize /v1/audio/transcriptions /v1/audio/translations""".split())
BODY = b'{"model":"%s","prompt":"x"}' % MODEL.encode()
heard, lock = [], threading.Lock()


class Worker(g.Door):
    """Writes down every request that is not a probe: ours carry X-Request-Id, the probes' do not."""

    def serve(self, s):
        try:
            while True:
                head = b""
                while b"\r\n\r\n" not in head:
                    more = s.recv(65536)
                    if not more:
                        return
                    head += more
                if b"x-request-id:" in head.lower():
                    head, body = raw.whole_request(s, head)
                    with lock:
                        heard.append(head.split(b"\r\n")[0].decode("latin-1"))
                    page = b"{}"
                else:
                    page = g.PAGE if head.startswith(b"GET /metrics ") else b""
                    with self.probed:
                        self.probes += 1
                        self.probed.notify_all()
                s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(page) + page)
        except OSError:
            pass
        finally:
            s.close()


def encoded(path, which):
    return "".join("%%%02x" % ord(c) if which(i, c) else c for i, c in enumerate(path))


def spellings(path):
    """Ways in which some server somewhere would find that path."""
    name = path[1:]
    yield from (path, path.upper(), path.title(), path + "/", path + "//", path + "/.", path + "?", path + "?x=1",
                path + "#", path + ";", path + ";a=b", path + "%00", path + "%20", path + ".", path + "%2f", path + "\\",
                path + "%0d%0aX:y", path + "%3f", path + "\t", path + "%", path + "%zz")
    yield from ("/" + path, "//" + path, "/." + path, "/./" + name, "/%2e/" + name, "/x/.." + path, "/x/%2e%2e" + path,
                "/x/.%2e" + path, "/x/%2E%2E" + path, "/..;" + path, "/x/..;" + path, "/;" + path, "/;x" + path,
                "\\" + name, "/\\" + name, "/%5c" + name, "/%2f" + name, "%2f" + name, name, "/%252e%252e" + path,
                "/%c0%ae%c0%ae" + path, "/%ef%bc%8f" + name, "/\u2025" + path)
    yield encoded(path, lambda i, c: i == 1)
    yield encoded(path, lambda i, c: i == len(path) - 1)
    yield encoded(path, lambda i, c: c != "/")
    yield encoded(path, lambda i, c: True)
    yield encoded(path, lambda i, c: True).upper().replace("%", "%25")
    for ok in ("/v1/completions", "/v1/responses", "/v1/responses/resp_1", "/v1/models/m", "/tokenize"):
        up = "/.." * ok.count("/")
        yield from (ok + up + path, ok + up.replace("..", "%2e%2e") + path, ok + up.replace("/", "%2f") + path,
                    ok + up.replace("..", "..;") + path, ok + ";" + path, ok + path, ok + "//" + path,
                    ok + "%00" + path, ok + "%20HTTP/1.1%0d%0a" + path, ok + " " + path, ok + "\\..\\.." + path)
        # Behind a query it is no path: the worker is asked for the path before.
        yield from (ok + "?" + path, ok + "?/.." + path, ok + "#" + path)


def targets(path):
    yield from spellings(path)
    for host in ("http://r", "http://r:80", "HTTP://R", "https://r", "http://u:p@r", "http://", "//r", "ftp://r"):
        yield from (host + path, host + "/" + path, host + "/v1/completions/../.." + path, host + "?" + path)


def statuses(lines):
    """Each request on a connection that is kept while it is; what is refused as no HTTP ends it."""
    c = raw.Client(house.port)
    for line in lines:
        for again in (False, True):
            try:
                length = b"" if line.startswith(b"GET") else b"Content-Length: %d\r\n" % len(BODY)
                c.send(line + b" HTTP/1.1\r\nHost: r\r\n" + length + b"\r\n" + (BODY if length else b""))
                status, headers, _, end = c.answer()
            except OSError:
                status = 0
            if status == 0 and not again:       # it was ending
                c.s.close()
                c = raw.Client(house.port)
                continue
            break
        yield line, status
        if status == 0 or headers.get("connection") == "close":
            c.s.close()
            c = raw.Client(house.port)
    c.s.close()


scenario = g.Scenario(MODEL, workers="a", door=Worker)
with g.Group([scenario], "auto") as house:
    house.start()
    lines = {f"{method} {target}".encode("utf-8", "surrogateescape")
             for path in ADMIN for method, target in itertools.product(("GET", "POST"), targets(path))}
    lines |= {f"{m} {p}".encode() for m in ("DELETE", "PUT", "HEAD", "OPTIONS", "CONNECT", "TRACE", "PATCH", "sleep")
              for p in ("/sleep", "*", "r:80", "/v1/completions", "/v1/responses/..", "http://r/sleep")
              if m != "HEAD"}
    lines |= {b"POST " + p.encode() for p in ALLOWED}
    count, passed = 0, 0
    for line, status in statuses(sorted(lines)):
        count += 1
        assert 200 <= status < 600, (line, status)
        passed += status == 200
    # Whatever reached a worker is one of the paths that exist here, to the byte.
    print(f"{count} requests, {len(heard)} reached a worker")
    for line in heard:
        method, target, version = re.fullmatch(r"(\S+) (\S+) (\S+)", line).groups()
        assert target.split("?", 1)[0] in ALLOWED and method == "POST" and version == "HTTP/1.1", line
    # And those that exist did: or nothing was tried here.
    paths = {line.split(" ")[1] for line in heard}
    missing = {p for p in ALLOWED if p not in paths and not p.startswith("/v1/audio")}
    assert not missing, missing
    assert len([l for l in heard if "?" in l]) > 50, "queries are passed on"
    house.settle()
