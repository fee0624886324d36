"""curl as people use it (streams, HEAD, HTTP/1.0, a big body behind 100-continue, a chunked upload, keep-alive) and wrk at full
speed get what they ask for.  clients.py BACKEND"""
import json, pathlib, re, shutil, subprocess, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

for program in ("curl", "wrk"):
    if not shutil.which(program):
        print(f"SKIPPED: no {program}")
        sys.exit(77)


def curl(*args, stdin=None, path="/v1/completions", body=None):
    """What it says of the exchange with -v (heads), and what it got."""
    command = ["curl", "-sSv", "--max-time", "60", *args, f"http://127.0.0.1:{house.port}{path}"]
    if body is not None:
        command += ["-H", "Content-Type: application/json", "--data-binary", body]
    r = subprocess.run(command, capture_output=True, text=True, input=stdin, timeout=90)
    assert r.returncode == 0, (command, r.returncode, r.stderr[-2000:])
    return r.stderr, r.stdout


with h.House(ingresses=2, io=sys.argv[1]) as house:
    house.add("--profile", "zero", "--tokenizer", "ids", "--max-model-len", 1000000, "--num-gpu-blocks", 100000, count=2)
    house.start()
    small = json.dumps({"model": house.model, "prompt": [1, 2, 3], "max_tokens": 3})
    big = house.folder / "big.json"
    big.write_text(json.dumps({"model": house.model, "prompt": list(range(5, 400000)), "max_tokens": 1}))

    heads, got = curl(body=small)
    assert json.loads(got)["usage"]["prompt_tokens"] == 3, got
    heads, got = curl("-N", body=small.replace("}", ', "stream": true}'))
    assert got.endswith("data: [DONE]\n\n") and "chunked" in heads, (heads, got)
    heads, got = curl("-0", body=small.replace("}", ', "stream": true}'))
    assert got.endswith("data: [DONE]\n\n") and "chunked" not in heads.lower() and "connection: close" in heads, (heads, got)
    heads, got = curl("-I", path="/v1/models")
    assert "HTTP/1.1 200" in got and "content-length" in got, got
    # curl waits for the word before it sends a megabyte.
    heads, got = curl("-H", "Expect: 100-continue", "--expect100-timeout", "50", body=f"@{big}")
    assert "HTTP/1.1 100 Continue" in heads and json.loads(got)["usage"]["prompt_tokens"] > 300000, (heads[-2000:], got[:300])
    heads, got = curl("-T", "-", "-X", "POST", "-H", "Content-Type: application/json", stdin=big.read_text())
    assert "Transfer-Encoding: chunked" in heads and json.loads(got)["usage"]["prompt_tokens"] > 300000, (heads[-2000:], got[:300])
    heads, got = curl("--next", "-sSv", f"http://127.0.0.1:{house.port}/v1/models", path="/v1/models")
    assert "Re-using existing connection" in heads and got.count('"object":"list"') == 2, heads

    script = house.folder / "post.lua"
    script.write_text(f"""wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = [[{small}]]
""")
    said = subprocess.run(["wrk", "-c", "64", "-t", "1", "-d", "2", "--timeout", "20s", "-s", script,
                           f"http://127.0.0.1:{house.port}/v1/completions"], capture_output=True, text=True, timeout=60).stdout
    n = int(re.search(r"([0-9]+) requests in", said)[1])
    assert n > 100 and "Socket errors" not in said and "Non-2xx" not in said, said
    answered = house.stat()["requests"]
    assert answered["failed"] == answered["client_error"] == 0, answered
    print(f"wrk: {n} requests in 2 s, none failed ({sys.argv[1]})")
