"""What operators do in haste: look before they reload, go back, freeze, close a provider; and the promise that no request
leaves under the old rules once a reload has returned."""
import json, threading

import house as h

TWO = "[{pool: all}, {provider: cloud, model: big}]"
CLOUD = """
---
apiVersion: pointsman.io/v1alpha1
kind: InferenceProvider
metadata: {name: cloud}
spec:
  type: openai
  prior: {ttft: 1ms}
  models: [{name: big, upstream: their-model, price: {input: 3, output: 15}}]
---
apiVersion: pointsman.io/v1alpha1
kind: RequestTag
metadata: {name: personal}
spec: {patterns: [{type: email}]}
"""
PREFERRED = """
  rules:
  - {name: cloud-first, prefer: "candidate.kind == 'Provider'"}
"""
STRICT = """
  rules:
  - {name: personal-stays, when: "'personal' in request.tags", remove: "candidate.kind == 'Provider'", onEmpty: Reject}
  - {name: cloud-first, prefer: "candidate.kind == 'Provider'"}
"""
PERSONAL = "write to jane.doe@example.com please"


def rows(house):
    return {w["worker"]: w for w in json.loads(house.ctl("workers", "--output", "json").stdout)["workers"]}


def up(house, row):
    h.until(f"{row} to be up", lambda: rows(house).get(row, {}).get("state") == "up")


def sent_by(answer):
    return {k.lower(): v for k, v in answer[2].items()}.get("x-pointsman-worker")


def ready(house):
    return h.request(house.admin, "GET", "/readyz")[1]


def decided_by(house, answer):
    id = {k.lower(): v for k, v in answer[2].items()}["x-pointsman-request-id"]
    return json.loads(house.explain(id, "--output", "json"))


def dry_run(house):
    before = house.generation()
    assert "nothing changed" in house.ctl("reload", "--dry-run").stdout
    house.policy = STRICT
    house.write()
    said = house.ctl("reload", "--dry-run").stdout
    assert "+ policy standard: rules[personal-stays] {" in said, said
    house.listen.append(f"127.0.0.1:{h.free_port()}")
    house.write()
    said = house.ctl("reload", "--dry-run").stdout
    assert "+ gateway front: listen 127.0.0.1:" in said and "spec.listen changed: takes effect after a restart" in said, said
    house.listen.pop()
    house.policy = STRICT.replace("remove:", "removes:")
    house.write()
    r = house.ctl("reload", "--dry-run", check=False)
    assert r.returncode == 1 and "removes" in r.stdout + r.stderr and "remove" in r.stderr, r
    assert house.generation() == before
    house.policy = PREFERRED
    house.write()


class Load:
    """Four clients that ask and ask; each question has a number, by which the provider's own log knows it again."""

    def __init__(self, house, cloud, text):
        self.house, self.cloud, self.text = house, cloud, text
        self.over, self.lock, self.begun, self.answers = threading.Event(), threading.Lock(), 0, []

    def ask(self):
        while not self.over.is_set():
            with self.lock:
                self.begun += 1
                n = self.begun
            self.answers.append(self.house.chat(f"{self.text} [{n}]"))

    def came(self):
        """Numbers that the provider was sent."""
        return [int(c["body"].split("[")[-1].split("]")[0]) for c in self.cloud.came() if self.text in c["body"]]

    def more(self, n):
        done = len(self.answers)
        h.until(f"{n} more answers", lambda: len(self.answers) >= done + n)

    def __enter__(self):
        self.threads = [threading.Thread(target=self.ask) for _ in range(4)]
        for t in self.threads:
            t.start()
        h.until("requests at the provider", lambda: len(self.came()) > 20)
        return self

    def __exit__(self, *_):
        self.over.set()
        for t in self.threads:
            t.join(60)
        assert all(a[0] == 200 for a in self.answers), [a[:2] for a in self.answers if a[0] != 200][:3]


def tightened_under_load(house, cloud):
    """The rule comes while requests flow that it forbids.  What is asked after the answer is not sent there."""
    with Load(house, cloud, PERSONAL) as load:
        house.policy = STRICT
        house.write()
        house.ctl("reload")
        begun = load.begun
        load.more(100)
        assert house.chat("nothing new")[0] == 200 and "nothing new" in cloud.came()[-1]["body"]
    assert max(load.came()) <= begun < load.begun, ("one left under the old rules", begun, sorted(load.came())[-5:], load.begun)
    answers = load.answers
    assert sent_by(answers[0]) == "cloud/big" and sent_by(answers[-1]) == "w0", (answers[0], answers[-1])
    # Each decision says by which documents it was made.
    listed = {g["config_hash"] for g in json.loads(house.ctl("generations", "--output", "json").stdout)}
    first, last = (json.dumps(decided_by(house, a)) for a in (answers[-50], answers[-1]))
    now = house.stat()["config_hash"]
    assert now in last and now in listed and len(listed) == 2, (now, listed, last)
    assert "personal-stays" in last, last


def rollback(house, cloud):
    generations = json.loads(house.ctl("generations", "--output", "json").stdout)
    assert [g["by"] for g in generations] == ["reload", "start"], generations
    said = house.ctl("reload", "--rollback", "--dry-run").stdout
    assert "- policy standard: rules[personal-stays]" in said, said
    house.ctl("reload", "--rollback")
    assert sent_by(house.chat(PERSONAL)) == "cloud/big"
    generations = json.loads(house.ctl("generations", "--output", "json").stdout)
    assert (generations[0]["by"], generations[0]["of"]) == ("rollback", 1), generations
    assert generations[0]["config_hash"] == generations[2]["config_hash"] == house.stat()["config_hash"]
    house.ctl("reload", "--rollback", 2)
    assert sent_by(house.chat(PERSONAL)) == "w0"
    r = house.ctl("reload", "--rollback", 77, check=False)
    assert r.returncode == 1 and "pointsctl generations" in r.stderr, r
    assert house.ctl("reload", 2, check=False).returncode == 2
    assert "rollback to 2" in house.ctl("generations").stdout
    assert "nothing changed" in house.ctl("reload", "--dry-run").stdout, "the files are as they were"


def freeze(house):
    before = house.generation()
    house.ctl("policy", "freeze", "incident 7")
    for r in (house.ctl("reload", check=False), house.ctl("reload", "--rollback", check=False)):
        assert r.returncode == 1 and "incident 7" in r.stderr and "policy thaw" in r.stderr, r
    house.hup()
    h.until("SIGHUP to be refused", lambda: house.tail(400).count(f"generation {before} serves on: \"policies are frozen") == 3)
    assert house.generation() == before
    assert any("frozen since" in o and "incident 7" in o for o in ready(house)["orders"]), ready(house)
    assert ready(house)["ready"] is True, "it serves on"
    assert "\npointsman_frozen 1\n" in h.request(house.admin, "GET", "/metrics")[1]
    assert "ordered: policies are frozen" in house.ctl("stat").stdout
    house.ctl("reload", "--dry-run")
    house.ctl("policy", "thaw")


def disable(house, cloud):
    up(house, "cloud/big")
    r = house.ctl("provider", "disable", "clowd", check=False)
    assert r.returncode == 1 and 'did you mean "cloud"' in r.stderr, r
    with Load(house, cloud, "nothing private") as load:
        house.ctl("provider", "disable", "cloud")
        begun = load.begun
        load.more(100)
        house.ctl("reload")
        load.more(50)
    answers = load.answers
    assert max(load.came()) <= begun < load.begun, "one was sent after the order"
    assert rows(house)["cloud/big"]["state"] == "disabled"
    assert "provider cloud is disabled" in ready(house)["orders"], ready(house)
    why = house.ctl("workers", "--why").stdout
    assert "disabled (operator)" in why and "pointsctl provider enable cloud" in why, why
    said = json.dumps(decided_by(house, answers[-1]))
    assert '"disabled"' in said, said


def kept_by_a_successor(house, cloud):
    house.ctl("policy", "freeze", "until Monday")
    house.stop()
    house.start()
    up(house, "w0")
    assert sorted(o.split(" (")[0].split(" since")[0] for o in ready(house)["orders"]) == [
        "policies are frozen", "provider cloud is disabled"], ready(house)
    assert house.ctl("reload", check=False).returncode == 1
    came = len(cloud.came())
    assert sent_by(house.chat("nothing personal")) == "w0" and len(cloud.came()) == came
    house.ctl("policy", "thaw")
    house.ctl("provider", "enable", "cloud")
    house.ctl("reload")
    assert ready(house)["orders"] == []
    up(house, "cloud/big")
    assert sent_by(house.chat("nothing personal")) == "cloud/big"


with h.House(ingresses=2, candidates=TWO, documents=CLOUD, policy=PREFERRED) as house:
    house.add("--profile", "zero")
    house.listed = house.workers[:]
    house.start()
    cloud = h.Provider(house.folder, "cloud", path=house.run / "provider.sock", profile="zero")
    house.workers.append(cloud)
    up(house, "w0")
    up(house, "cloud/big")
    dry_run(house)
    tightened_under_load(house, cloud)
    rollback(house, cloud)
    freeze(house)
    disable(house, cloud)
    kept_by_a_successor(house, cloud)
