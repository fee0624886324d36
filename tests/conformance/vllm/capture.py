"""Writes tests/data/vllm-VERSION anew: what a real vLLM sent, and what it makes of requests.

    capture.py PLACE                     the requests, made by its own preparation over etc/models/demo
    capture.py PLACE --at PORT:EVENTS:REPLAY      and what a worker that runs sends: events, metrics, streams

PLACE is the environment's (environment.py).  What is written is looked at before it is kept.
"""
import argparse, http.client, json, pathlib, shutil, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import asks, edge, environment, worker
from worker import h

SERVED = "tiny"
HERE = pathlib.Path(__file__).resolve().parent
CONFIG = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 8192, "hidden_size": 64,
          "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "head_dim": 32, "max_position_embeddings": 4096}


def requests():
    for path, body in edge.requests():
        yield {"path": path, "body": {"model": SERVED, **body}}
    for ask in asks.mixed(SERVED, 80):
        yield {"path": ask.path, "body": ask.body}


def prepared(python, folder):
    """Each request with what vLLM makes of it; the body as the text that was read."""
    with tempfile.TemporaryDirectory() as place:
        model = pathlib.Path(place) / "demo"
        shutil.copytree(h.ROOT / "etc/models/demo", model)
        (model / "config.json").write_text(json.dumps(CONFIG))
        sent = [json.dumps(r) for r in requests()]
        r = subprocess.run([python, "-W", "ignore", HERE / "render.py", model], input="\n".join(sent) + "\n",
                           capture_output=True, text=True, timeout=1800)
    if r.returncode != 0:
        raise RuntimeError(r.stderr[-2000:])
    lines = []
    for ask, said in zip(sent, r.stdout.rstrip("\n").split("\n"), strict=True):
        ask, said = json.loads(ask), json.loads(said)
        line = {"path": ask["path"], "body": json.dumps(ask["body"])}
        if "error" in said:
            line["refused"] = said["error"].split("\n")[0][:80]
        else:
            line["prompts"] = [p["ids"] for p in said["prompts"]]
        lines.append(json.dumps(line, separators=(",", ":")))
    (folder / "requests.jsonl").write_text("\n".join(lines) + "\n")
    return len(lines)


def raw(port, path, body=None):
    """The answer's bytes as they came, chunks undone."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    c.request("POST" if body else "GET", path, body and json.dumps(body), {"Content-Type": "application/json"})
    said = c.getresponse()
    got = said.read()
    c.close()
    if said.status != 200:
        raise RuntimeError(f"{path}: {said.status} {got}")
    return got


def streams(w, folder):
    said = {"messages": [{"role": "user", "content": "Which train leaves first?"}], "max_tokens": 6, "temperature": 0}
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    for name, path, body in (
            ("chat", "/v1/chat/completions", {**said, **usage}),
            ("chat_continuous_usage", "/v1/chat/completions", {
                **said, "stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
            ("chat_no_usage", "/v1/chat/completions", {**said, "stream": True}),
            ("completions", "/v1/completions", {"prompt": [5] * 40, "max_tokens": 6, "temperature": 0, **usage}),
            ("completions_two", "/v1/completions", {"prompt": [[5] * 40, [7] * 5], "max_tokens": 2, **usage}),
            ("messages", "/v1/messages", {**said, "stream": True}),
            ("responses", "/v1/responses", {"input": "Which train leaves first?", "max_output_tokens": 6,
                                            "stream": True})):
        for suffix in ("sse", "json"):
            more = {} if suffix == "sse" else {"stream": False, "stream_options": None}
            body = {k: v for k, v in {"model": SERVED, **body, **more}.items() if v is not None}
            (folder / f"{name}.{suffix}").write_bytes(raw(w.port, path, body))
        if name in ("chat_continuous_usage", "chat_no_usage"):
            (folder / f"{name}.json").unlink()


def events(w, folder):
    """One batch of each kind, as published: plain, salted, a chain, removed."""
    kept = {}
    for number, batch in w.published():
        kind = ("removed" if b"BlockRemoved" in batch else "cleared" if b"AllBlocksCleared" in batch else
                "salted" if b"tenant-" in batch else
                "child" if b"\xb1parent_block_hash\xcf" in batch else "stored")
        kept.setdefault(kind, batch)
    for kind, batch in kept.items():
        (folder / f"{kind}.bin").write_bytes(batch)
    return sorted(kept)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("place", type=pathlib.Path)
    options.add_argument("--at")
    options = options.parse_args()
    python = environment.ready(options.place)
    version = environment.versions(python)[environment.PACKAGE]
    folder = h.ROOT / f"tests/data/vllm-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    if not options.at:
        print(f"{prepared(python, folder)} requests")
        return
    w = worker.RealWorker(python, "", folder, "w0", SERVED, at=options.at)
    for part in ("events", "answers"):
        (folder / part).mkdir(exist_ok=True)
    print("events:", *events(w, folder / "events"))
    streams(w, folder / "answers")
    (folder / f"vllm_{version}.prom").write_bytes(raw(w.port, "/metrics"))


if __name__ == "__main__":
    main()
