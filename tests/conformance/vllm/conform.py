"""Requests through Pointsman to two real vLLM workers, and what is proven of each.

conform.py PLACE [--requests N] [--seed N] [--at PORT:EVENTS:REPLAY ...]

One request at a time, so that what is cached where is a fact:
  ids         what the engine computed on (it returns them) is what its /tokenize says, and what ours says
  prompt      our prompt length is the engine's usage.prompt_tokens
  cached      the cached tokens we predicted for the worker that was chosen are the engine's, of 99 % at least
Then: a client that leaves frees its worker; a worker that is killed and started anew is believed to hold nothing.

--at: workers that run already (they are not stopped, and not restarted).  Prints `name value unit`, then the plain
closing line; exit 1 where anything is not so.
"""
import argparse, collections, json, pathlib, socket, subprocess, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import asks, environment, worker
from worker import h

SERVED = "tiny"


class Results:
    """What held and what did not; the first of each kind that did not is printed at once."""

    def __init__(self):
        self.held, self.broken, self.left_out = collections.Counter(), collections.Counter(), collections.Counter()

    def check(self, what, true, said):
        (self.held if true else self.broken)[what] += 1
        if not true and self.broken[what] <= 5:
            print(f"NOT SO: {what}: {said}", flush=True)

    def skip(self, what, why):
        if not self.left_out[what]:
            print(f"left out: {what}: {why}", flush=True)
        self.left_out[what] += 1

    def share(self, what):
        n = self.held[what] + self.broken[what]
        return self.held[what] / n if n else 0.0


# ---- one request and its answer ----

class Answer:
    """Status, id, text, usage, and the prompts' ids as the engine returned them."""

    def __init__(self, port, ask):
        body = dict(ask.body)
        if ask.tokens_known():
            body["return_token_ids"] = True
        self.status, raw, headers = h.request(port, "POST", ask.path, body, timeout=300)
        headers = {k.lower(): v for k, v in headers.items()}
        self.worker, self.id = headers.get("x-pointsman-worker"), headers.get("x-pointsman-request-id")
        self.raw = raw
        self.parts = [raw] if isinstance(raw, dict) else events(raw)
        self.text, self.prompts, self.usage = "", [], {}
        if self.status == 200:
            for part in self.parts:
                self.take(part)

    def take(self, part):
        if part.get("usage"):
            self.usage = part["usage"]
        if part.get("prompt_token_ids"):
            self.prompts.append(part["prompt_token_ids"])
        for choice in part.get("choices") or []:
            if choice.get("prompt_token_ids"):
                self.prompts.append(choice["prompt_token_ids"])
            said = choice.get("message") or choice.get("delta") or {}
            self.text += said.get("content") or choice.get("text") or ""

    def prompt_tokens(self):
        u = self.usage
        if "prompt_tokens" in u:
            return u["prompt_tokens"]
        if "input_tokens_details" in u:
            return u["input_tokens"]
        return u.get("input_tokens", 0) + u.get("cache_read_input_tokens", 0) + u.get("cache_creation_input_tokens", 0)

    def cached_tokens(self):
        u = self.usage
        details = u.get("prompt_tokens_details") or u.get("input_tokens_details")
        return details["cached_tokens"] if details else u.get("cache_read_input_tokens")


def events(raw):
    return [json.loads(line[6:]) for line in raw.splitlines()
            if line.startswith("data: ") and line != "data: [DONE]"]


# ---- what is compared ----

def by_tokenize(w, ask):
    """The ids that the worker's /tokenize gives for this request, or None where it knows less than the request says."""
    b = ask.body
    if ask.path == "/v1/completions":
        if not isinstance(b["prompt"], str):
            return None
        return w.tokenize(prompt=b["prompt"], add_special_tokens=b.get("add_special_tokens", True))
    if "truncate_prompt_tokens" in b:
        return None
    said = {k: b[k] for k in ("messages", "tools", "add_generation_prompt", "continue_final_message",
                              "add_special_tokens", "chat_template_kwargs") if k in b}
    if "reasoning_effort" in b:
        said["chat_template_kwargs"] = {"enable_thinking": b["reasoning_effort"] != "none",
                                        **(b.get("chat_template_kwargs") or {})}
    return w.tokenize(**said)


def explained(house, request_id):
    """Pointsman's own record of it, when its outcome is there."""
    def done():
        told = json.loads(house.ctl("explain", request_id, "--output", "json", check=False).stdout or "{}")
        return told if told.get("state") == "done" and told.get("decisions") else None
    return h.until(f"the outcome of {request_id}", done)


def compare(house, results, ask, answer, sources):
    what = f"{ask.family} {answer.id}"
    told = explained(house, answer.id)
    decision, outcome = told["decisions"][-1], told["outcome"]
    sources[ask.path, decision["token_source"]] += 1
    results.check("seen", outcome["prompt_tokens"] == answer.prompt_tokens() and
                  outcome["cached_tokens"] == answer.cached_tokens(), f"{what}: {outcome} but {answer.usage}")
    if ask.tokens_known():
        w = next(w for w in house.workers if w.name == answer.worker)
        ids = by_tokenize(w, ask)
        results.check("returned", len(answer.prompts) >= 1, f"{what}: no prompt_token_ids")
        if ids is None:
            results.skip("tokenize", "it takes no ids, no lists and no truncation")
        else:
            results.check("tokenize", answer.prompts[0] == ids, f"{what}: {len(ids)} ids by /tokenize")
    if decision["prompt_tokens"] is None:
        results.skip(f"prompt of {ask.path}", "its tokens are not known here")
        return
    several = ask.path == "/v1/completions" and len(answer.prompts) > 1
    guessed = several and decision["token_source"] == "tokenize"       # of the others' length
    results.check("prompt guessed" if guessed else "prompt", decision["prompt_tokens"] == answer.prompt_tokens(),
                  f"{what}: ours {decision['prompt_tokens']}, the engine's {answer.prompt_tokens()} "
                  f"({decision['token_source']}): {json.dumps(ask.body)[:600]}")
    chosen = next(c for c in decision["candidates"] if c["worker"] == answer.worker)
    predicted = chosen["cached_tokens"] + chosen["speculative_tokens"]
    results.check("cached of several" if several else "cached", predicted == answer.cached_tokens(),
                  f"{what} on {answer.worker}: predicted {chosen['cached_tokens']}+{chosen['speculative_tokens']}, "
                  f"was {answer.cached_tokens()} of {answer.prompt_tokens()} ({decision['token_source']})")


class Followed:
    """Waits until what the workers published is in the index: the next prediction is of a known cache."""

    def __init__(self, house):
        self.house, self.last = house, {w.name: -1 for w in house.workers}

    def wait(self, name):
        w = next(w for w in self.house.workers if w.name == name)
        for number, _ in w.published(self.last[name] + 1):
            self.last[name] = number

        def applied():
            number = state(self.house, name)["cache"]["sequence_applied"]
            return self.last[name] < 0 or (number is not None and number >= self.last[name])
        h.until(f"{name}'s batches up to {self.last[name]} to be in the index", applied)


def mixed(house, results, n, seed, record, at_once):
    followed = Followed(house)
    sources, families = collections.Counter(), collections.Counter()
    cached = total = 0
    made = asks.mixed(SERVED, n, seed)
    said = None
    while True:
        try:
            ask = made.send(said)
        except StopIteration:
            break
        answer = Answer(house.port, ask)
        said = answer.text
        record.append({"path": ask.path, "body": ask.body, "prompts": answer.prompts,
                       "prompt_tokens": answer.prompt_tokens()})
        results.check("answered", answer.status == 200, f"{ask.family}: {answer.status} {answer.raw}: {ask.body}")
        if answer.status != 200:
            continue
        families[ask.family] += 1
        cached, total = cached + answer.cached_tokens(), total + answer.prompt_tokens()
        compare(house, results, ask, answer, sources)
        if not at_once:
            followed.wait(answer.worker)
    for (path, source), k in sorted(sources.items()):
        print(f"vllm_requests{{path={path},source={source}}} {k} requests")
    print(f"vllm_prompt_tokens {total} tokens\nvllm_cached_share {cached / total:.3f} ratio")
    return families


ROUTES = {"/v1/chat/completions": "chat", "/v1/completions": "completions"}
EACH = 8        # of the requests whose ids are made by hand: a process each


def ours(house, results, model, record):
    """`pointsctl blocks` over the same bodies: each prompt's ids are those the engine computed on."""
    for r in [r for r in record if r["prompts"] and r["path"] in ROUTES][::EACH]:
        said = subprocess.run([h.BIN / "pointsctl", "blocks", "--model", model, "--block-size", str(worker.BLOCK),
                               "--route", ROUTES[r["path"]], "--output", "json"],
                              input=json.dumps(r["body"]), capture_output=True, text=True, timeout=120)
        made = json.loads(said.stdout) if said.returncode == 0 else {"prompts": []}
        results.check("ids", [p["tokens"] for p in made["prompts"]] == r["prompts"],
                      f"{said.stderr}{made.get('end')} {made.get('why')}: {json.dumps(r['body'])[:300]}")


def client_leaves(house, results):
    """A stream that nobody reads to its end any more: the engine aborts it."""
    def of_all(name):
        return sum(w.series(name) for w in house.workers)

    wanted = 4000
    body = json.dumps({"model": SERVED, "prompt": [11, 12, 13], "max_tokens": wanted, "ignore_eos": True,
                       "stream": True})
    before = of_all("vllm:generation_tokens_total")
    with socket.create_connection(("127.0.0.1", house.port)) as s:
        s.sendall((f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                   f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
        got = b""
        while got.count(b"data: ") < 3:
            part = s.recv(65536)
            assert part, got
            got += part
        h.until("the engine to run it", lambda: of_all("vllm:num_requests_running") == 1)
    # 0.32.0 does not count it under finished_reason="abort": that it ended early is the proof.
    h.until("the engine to run nothing", lambda: of_all("vllm:num_requests_running") == 0, 120)
    made = of_all("vllm:generation_tokens_total") - before
    results.check("abort on disconnect", made < wanted / 2, f"{made} of {wanted} tokens were made")
    print(f"vllm_abort_after {made:.0f} tokens")


def restart(house, results):
    """Killed and started anew under the same address: seen, and nothing of before is believed."""
    ids = [(i * 31) % 90000 + 7 for i in range(640)]
    ask = asks.Ask("restart", "/v1/completions", {"model": SERVED, "prompt": ids, "max_tokens": 1})
    first = Answer(house.port, ask)
    again = Answer(house.port, ask)
    results.check("warm", again.worker == first.worker and again.cached_tokens() >= 600, f"{again.usage}")
    w = next(w for w in house.workers if w.name == first.worker)
    restarts = state(house, w.name)["cache"]["restarts"]
    w.stop(9)
    h.until("the dead worker to be unhealthy", lambda: state(house, w.name)["state"] != "up", 60)
    other = Answer(house.port, ask)
    results.check("another serves", other.status == 200 and other.worker != w.name, f"{other.status} {other.worker}")
    w.start().wait()
    h.until("the worker to be back", lambda: state(house, w.name)["state"] == "up", 60)
    # At once: it is up before its metrics page or its events say that it began anew.
    told = explained(house, Answer(house.port, ask).id)["decisions"][-1]
    back = next(c for c in told["candidates"] if c["worker"] == w.name)
    results.check("nothing believed after a restart", back["cached_tokens"] + back["speculative_tokens"] == 0, f"{back}")
    h.until("the restart to be noticed", lambda: state(house, w.name)["cache"]["restarts"] > restarts, 60)


def state(house, name):
    said = json.loads(house.ctl("workers", "--output", "json").stdout)["workers"]
    return next(one for one in said if one["worker"] == name)


# ---- the whole ----

def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("place", type=pathlib.Path)
    options.add_argument("--requests", type=int, default=300)
    options.add_argument("--seed", type=int, default=6)
    options.add_argument("--at", nargs="*", default=[])
    options.add_argument("--tokenize", action="store_true", help="by the workers' /tokenize instead of our own")
    options.add_argument("--at-once", action="store_true", help="send the next before the last one's events are in")
    options.add_argument("--record", type=pathlib.Path, help="the requests and the engine's ids, one a line")
    options = options.parse_args()
    python, model = environment.ready(options.place), options.place / "model"
    for name, version in environment.versions(python).items():
        print(f"vllm_with {name} {version}")
    results, record = Results(), []
    tokens = f"  tokenizer: {{path: {json.dumps(str(model.resolve()))}}}" if not options.tokenize else ""
    with h.House(model=SERVED, io="epoll", workerset=tokens) as house:
        for i in range(len(options.at) or 2):
            at = options.at[i] if options.at else None
            house.workers.append(worker.RealWorker(python, model, house.folder, f"w{i}", SERVED, at=at))
        for w in house.workers:
            w.start()
        for w in house.workers:
            w.wait()
        house.start()
        for w in house.workers:
            h.until(f"{w.name} to be up", lambda: state(house, w.name)["state"] == "up", 60)
            if w.published():
                h.until(f"what {w.name} holds to be known", lambda: state(house, w.name)["cache"]["state"] == "exact")
        families = mixed(house, results, options.requests, options.seed, record, options.at_once)
        ours(house, results, model, record)
        client_leaves(house, results)
        if options.at:
            results.skip("restart", "the workers are not ours")
        else:
            restart(house, results)
    if options.record:
        options.record.write_text("".join(json.dumps(r) + "\n" for r in record))
    print("vllm_families " + " ".join(f"{k.replace(' ', '-')}={v}" for k, v in sorted(families.items())))
    for what in sorted(results.held | results.broken):
        print(f"vllm_{what.replace(' ', '_')} {results.held[what]}/{results.held[what] + results.broken[what]} requests")
    wrong = {what for what, n in results.broken.items() if n and what not in ("cached of several", "prompt guessed")}
    if results.share("cached") >= 0.99:
        wrong.discard("cached")
    right = len(results.held | results.broken) - len(wrong)
    print(f"{right} passed, {len(wrong)} failed, {len(results.left_out)} skipped")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except environment.Missing as e:
        print(f"SKIPPED: {e}")
        sys.exit(77)
