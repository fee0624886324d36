"""Prompts of text become the engine's own token ids here: they go where their prefix is, and no worker is asked.

  native.py turns     conversations, tools and completions; what explain says of them
  native.py folders   reloads with the same model, another one, a broken one; what is kept
  native.py huge      prompts of 20 MB: nobody waits for them, whoever dies or goes away meanwhile
"""
import json, os, pathlib, shutil, socket, subprocess, sys, threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

DEMO = h.ROOT / "etc/models/demo"
WORKER = ("--time-scale", 400, "--block-size", 16, "--num-gpu-blocks", 8192, "--model-dir", DEMO)


def tokenizer(folder, more=""):
    return f"  tokenizer: {{path: {folder}{more}}}\n"


def sum_of(house, counter):
    page = h.request(house.admin, "GET", "/metrics")[1]
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines()
               if line.startswith(f"pointsman_{counter}_total"))


def decision(house, headers):
    one = {k.lower(): v for k, v in headers.items()}["x-pointsman-request-id"]
    # A policy process may be too new to be known where it is asked.
    return h.until(f"the decision of {one}", lambda: json.loads(
        house.ctl("explain", one, "--output", "json", check=False).stdout or "{}").get("decisions"))[-1]


def said(house, text):
    return sum(text in line for line in open(house.folder / "pointsman.log", errors="replace"))


def words(first, n):
    return " ".join(f"word{(first * 7919 + i * 31) % 5000}" for i in range(n))


def ask(house, path, body):
    status, answer, headers = h.request(house.port, "POST", path, {"model": house.model, "max_tokens": 4, **body})
    assert status == 200, (status, answer)
    told = decision(house, headers)
    worker = {k.lower(): v for k, v in headers.items()}["x-pointsman-worker"]
    assert told["token_source"] == "native" and told["token_note"] is None, told
    assert told["prompt_tokens"] == told["exact_tokens"] == answer["usage"]["prompt_tokens"], (told, answer)
    return answer, worker, told


def turns():
    tools = [{"type": "function", "function": {"name": "look_up", "description": "Look a word up.", "parameters": {
        "type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}}}]
    with h.House(workerset=tokenizer(DEMO)) as house:
        house.add(*WORKER, count=3)
        house.start()
        forms = []
        for p in range(3):
            forms.append(("/v1/chat/completions", {"messages": [
                {"role": "system", "content": words(p, 600)}, {"role": "user", "content": "What comes first?"}]}))
            forms.append(("/v1/chat/completions", {"tools": tools, "messages": [
                {"role": "system", "content": words(10 + p, 600)}, {"role": "user", "content": "Look it up."}]}))
            forms.append(("/v1/completions", {"prompt": words(20 + p, 600)}))
        homes = []
        for path, body in forms:
            answer, worker, told = ask(house, path, body)
            homes.append((worker, answer, told["blocks"] * told["block_tokens"]))
        assert len({worker for worker, _, _ in homes}) == 3, homes      # spread while nothing is cached
        for w in house.workers:         # the engines' own words, and not what we guess from having sent it there
            last = w.state()["next_seq"] - 1
            h.until(f"{w.name}'s batches up to {last} to be in the index", lambda: json.loads(
                house.ctl("workers", "--output", "json").stdout)["workers"][int(w.name[1:])]["cache"]["sequence_applied"] == last)
        for (path, body), (home, first, blocks) in zip(forms, homes):
            if "messages" in body:
                more = {**body, "messages": body["messages"] + [
                    {"role": "assistant", "content": first["choices"][0]["message"]["content"]},
                    {"role": "user", "content": "And then?"}]}
            else:
                more = {"prompt": body["prompt"] + " and so on"}
            answer, worker, told = ask(house, path, more)
            assert worker == home, (path, home, worker, told)
            cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            chosen, = [c for c in told["candidates"] if c["worker"] == worker]
            assert cached == chosen["cached_tokens"] > 600, (cached, chosen)
        assert sum_of(house, "tokenize_calls") == 0
        assert sum_of(house, "tokens_native") == 2 * len(forms)

        # An image ends what can be known; what stands before it is known all the same.
        body = {"messages": [{"role": "system", "content": words(0, 600)}, {"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]}
        status, _, headers = h.request(house.port, "POST", "/v1/chat/completions", {"model": house.model, **body})
        told = decision(house, headers)
        assert told["token_source"] == "native" and told["prompt_tokens"] is None, (status, told)
        assert told["exact_tokens"] > 600 and told["token_note"], told
        assert told["chosen_worker"] == homes[0][0], (told, homes)
        text = house.ctl("explain", {k.lower(): v for k, v in headers.items()}["x-pointsman-request-id"]).stdout
        assert "tokens (native" in text and "tokens are known: " in text, text


def models_kept(house):
    return sorted(os.listdir(house.run / "models"))


def reload(house):
    generation = house.generation()
    answer = house.ctl("reload").stdout
    assert house.generation() == generation + 1, (generation, house.tail())
    return answer


def folders():
    with h.House() as house:
        other, broken = house.folder / "other", house.folder / "broken"
        shutil.copytree(DEMO, other)
        shutil.copytree(DEMO, broken)
        # Another model, yet the engines' own tokens: else the workers' probes would find them out, and be asked.
        (other / "chat_template.jinja").write_text("{# another #}" + (DEMO / "chat_template.jinja").read_text())
        (broken / "tokenizer.json").write_bytes((DEMO / "tokenizer.json").read_bytes()[:-100])
        house.add(*WORKER, count=2)
        house.workerset = tokenizer(DEMO)
        house.start()

        def source():
            status, answer, headers = house.chat("Where do these tokens come from?")
            assert status == 200, answer
            return decision(house, headers)

        assert source()["token_source"] == "native"
        assert said(house, "models: making") == 1 and len(models_kept(house)) == 1

        # The same model: nothing is made, and nothing read.
        for _ in range(3):
            reload(house)
        assert source()["token_source"] == "native" and said(house, "models: making") == 1

        # Another one while requests come: none fails, and each is made into tokens here.
        over, failed, sources = threading.Event(), [], []

        def client(n):
            while not over.is_set():
                status, answer, headers = house.chat(words(n, 50))
                if status != 200:
                    failed.append((status, answer))
                sources.append({k.lower(): v for k, v in headers.items()}.get("x-pointsman-request-id"))

        threads = [threading.Thread(target=client, args=(n,)) for n in range(4)]
        for t in threads:
            t.start()
        for folder in (other, DEMO, other):
            house.workerset = tokenizer(folder)
            house.write()
            reload(house)
            then = len(sources)
            h.until("requests to be decided anew", lambda: len(sources) > then + 8)
        over.set()
        for t in threads:
            t.join()
        assert not failed, failed[:3]
        assert sum_of(house, "tokenize_calls") == 0, house.tail()
        assert said(house, "models: making") >= 2

        # A broken one: told with its place; the workers are asked instead.
        house.workerset = tokenizer(broken)
        house.write()
        line = next(i for i, text in enumerate(house.config.read_text().splitlines(), 1) if "tokenizer:" in text)
        answer = reload(house)
        assert f"pointsman.yaml:{line}:" in answer and "tokenizer.json" in answer, answer
        told = source()
        assert told["token_source"] == "tokenize" and "tokenizer.json" in told["token_note"], told
        check = house.ctl("check", house.config, check=False)
        assert f"pointsman.yaml:{line}:" in check.stderr and "tokenizer.json" in check.stderr, check
        # The supervisor's own check reads the documents alone: such a folder refuses nothing.
        alone = subprocess.run([h.BIN / "pointsman", "-n", "-c", house.config], capture_output=True, text=True)
        assert (alone.returncode, alone.stderr) == (0, "") and alone.stdout.startswith("configuration ok: "), alone

        # Mended where it lies: a reload is enough.
        shutil.copy(DEMO / "tokenizer.json", broken / "tokenizer.json")
        assert "warning" not in reload(house)
        assert source()["token_source"] == "native"

        # No generation uses the first ones any more.
        h.until("models that nobody uses to be gone", lambda: reload(house) is not None and len(models_kept(house)) == 1)

        # A new start finds what was made.
        kept = models_kept(house)
        house.stop()
        made = said(house, "model: made")
        house.start()
        assert source()["token_source"] == "native" and models_kept(house) == kept
        assert said(house, "from the store") >= 1 and said(house, "model: made") == made + 1

        # A pipe in its place holds nobody up: it is made anew.
        house.stop()
        (house.run / "models" / kept[0]).unlink()
        os.mkfifo(house.run / "models" / kept[0])
        house.start()
        assert source()["token_source"] == "native" and (house.run / "models" / kept[0]).is_file()
        assert said(house, "model: made") == made + 2


HUGE = 20 << 20                         # more than the house takes in a second, with all that it does with one


def connect(house, source="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", house.port), timeout=120, source_address=(source, 0))


def huge(house, first):
    text = words(first, 200)
    body = json.dumps({"model": house.model, "max_tokens": 4,
                       "messages": [{"role": "user", "content": text * (HUGE // len(text))}]}).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" \
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def answer_of(c):
    data = b"".join(iter(lambda: c.recv(65536), b""))
    c.close()
    head, _, body = data.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    return status, body, {k.lower(): v for k, v in headers.items()}


def begin(house, request, source="127.0.0.1"):
    """All but the last byte is there."""
    c = connect(house, source)
    c.sendall(request[:-1])
    return c, request[-1:]


def order():
    with h.House(gateway="  client: {fairness: false}", workerset=tokenizer(DEMO, ", maxModelLen: 32768")) as house:
        house.add("--profile", "zero", "--keep-alive", 60, "--block-size", 16, "--model-dir", DEMO, count=2)
        house.start()
        everybody = {p["pid"]: p["role"] for p in house.stat()["processes"]}

        # Four of one client, one of another's, then small ones.
        big = [begin(house, huge(house, n)) for n in range(4)]
        late = begin(house, huge(house, 9), "127.0.0.2")
        for c, rest in big:
            c.sendall(rest)
        h.until("all of them to be asked about", lambda: sum_of(house, "bodies_aside") >= 4)
        late[0].sendall(late[1])
        small = [house.chat(words(n, 20)) for n in range(10)]
        answers = [answer_of(c) for c, _ in big]
        other = answer_of(late[0])
        assert all(status == 200 for status, _, _ in small), small
        assert all(status == 400 for status, _, _ in [*answers, other]), [(a[0], a[1][:120]) for a in [*answers, other]]
        when = [decision(house, headers)["when"] for _, _, headers in answers]
        whens = [decision(house, headers)["when"] for _, _, headers in small]
        told = decision(house, answers[0][2])
        # Made here as far as the model takes them; where the machine is too slow for that, decided by load alone.
        assert told["prompt_tokens"] is None and told["token_note"], told
        assert told["token_source"] == "native" or "too long" in told["token_note"] or "in time" in told["token_note"], told
        assert min(whens) < max(when), (whens, when)            # asked after them, decided before (turns: unit.aside)
        # No small one waited as long as the quickest of them took.
        slowest = max(decision(house, headers)["stages"]["total_us"] for _, _, headers in small)
        quickest = min(decision(house, a[2])["stages"]["total_us"] for a in [*answers, other])
        assert slowest < quickest, (slowest, quickest)
        assert {p["pid"]: p["role"] for p in house.stat()["processes"]} == everybody, house.tail()

        # Clients that go away while their prompts are read: each byte is given back.
        big = [begin(house, huge(house, n)) for n in range(2)]
        before = sum_of(house, "bodies_aside")
        for c, rest in big:
            c.sendall(rest)
        h.until("some to be read", lambda: sum_of(house, "bodies_aside") > before)
        for c, _ in big:
            c.close()
        h.until("nothing of them to be left", lambda: "requests 0 slots of" in house.ctl("stat", "--segments").stdout
                and " 0 B in arenas" in house.ctl("stat", "--segments").stdout)
        assert house.chat("still here?")[0] == 200

        # The policy process dies in the middle of it: the standby reads them anew.
        big = [begin(house, huge(house, n)) for n in range(2)]
        before = sum_of(house, "bodies_aside")
        for c, rest in big:
            c.sendall(rest)
        h.until("some to be read", lambda: sum_of(house, "bodies_aside") > before)
        house.kill("policy", "active")
        answers = [answer_of(c) for c, _ in big]
        assert all(status == 400 for status, _, _ in answers), answers
        assert house.chat("still here?")[0] == 200

        # An ingress dies while they are read: its memory goes when the threads are through, and nobody dies of it.
        policies = house.pids("policy")
        big = [begin(house, huge(house, n)) for n in range(2)]
        before = sum_of(house, "bodies_aside")
        for c, rest in big:
            c.sendall(rest)
        h.until("some to be read", lambda: sum_of(house, "bodies_aside") > before)
        dead = house.kill("ingress")
        h.until("its successor", lambda: dead not in house.pids("ingress") and house.pids("ingress", "ready"))
        for c, _ in big:
            c.close()
        assert house.chat("still here?")[0] == 200
        assert house.pids("policy") == policies, house.tail()


{"turns": turns, "folders": folders, "huge": order}[sys.argv[1]]()
