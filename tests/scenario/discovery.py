"""Workers come and go by a file or by DNS, under load, without a reload: who is new gets requests, who is gone
ends what it has begun and leaves nothing behind, who comes back begins anew; what cannot be read changes nothing.

discovery.py file | dns
"""
import collections, http.client, json, os, pathlib, re, socket, struct, sys, threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

FLAPS = 100


class Clients:
    """Threads that ask until they are told to stop."""

    def __init__(self, house, n=4):
        self.house, self.ok, self.failed, self.stopping = house, collections.Counter(), [], threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(n)]
        for t in self.threads:
            t.start()

    def run(self, i):
        n = 0
        while not self.stopping.wait(0.01):     # the rate: there is other work for the CPU
            n += 1
            body = {"model": self.house.model, "prompt": [i * 10000 + n] * 96, "max_tokens": 2}
            try:
                status, said, head = h.request(self.house.port, "POST", "/v1/completions", body)
            except OSError as e:
                status, said, head = 0, repr(e), {}
            if status == 200:
                self.ok[head.get("x-pointsman-worker")] += 1
            else:
                self.failed.append((status, said))

    def reach(self, name):
        before = self.ok[name]
        h.until(f"requests to reach {name}", lambda: self.ok[name] > before + 2)

    def end(self):
        self.stopping.set()
        for t in self.threads:
            t.join()
        print(f"{sum(self.ok.values())} requests, {len(self.failed)} failed; {dict(self.ok)}")
        assert not self.failed, self.failed[:5]


def shown(house):
    """Workers by name, and the one source of members."""
    r = json.loads(house.ctl("workers", "--output", "json").stdout)
    return {w["worker"]: w for w in r["workers"]}, (r["discovery"] or [None])[0]


def counter(house, name):
    page = h.request(house.admin, "GET", "/metrics")[1]
    return sum(float(v) for v in re.findall(rf"^pointsman_{name}(?:{{.*}})? (\S+)$", page, re.M))


def connections(port):
    """To that port of anybody here, as the kernel has them."""
    with open("/proc/net/tcp") as f:
        return [line for line in f if line.split()[2].endswith(f":{port:04X}") and line.split()[3] == "01"]


def descriptors(house):
    return {r: sum(len(os.listdir(f"/proc/{p}/fd")) for p in house.pids(r)) for r in ("kvevents", "policy", "metrics")} | {
        "supervisor": len(os.listdir(f"/proc/{house.supervisor.pid}/fd"))}


def write(path, text):
    """As one should: a new file in the old one's place."""
    new = path.parent / ".new"
    new.write_text(text)
    os.replace(new, path)


def members(*workers):
    return "members:\n" + "".join(f"- {w.member()}\n" for w in workers) if workers else "members: []\n"


def stream_on(house, name, tokens):
    """An answer under way that this worker gives, as the connection and the answer."""
    for n in range(200):
        c = http.client.HTTPConnection("127.0.0.1", house.port, timeout=30)
        c.request("POST", "/v1/completions", json.dumps({
            "model": house.model, "prompt": [7000 + n] * 64, "max_tokens": tokens, "ignore_eos": True,
            "stream": True}), {"Content-Type": "application/json"})
        r = c.getresponse()
        if r.getheader("x-pointsman-worker") == name:
            return c, r
        c.close()
    raise h.Late(f"200 requests, and none went to {name}")


def by_file():
    with h.House(ingresses=1, gateway="  policyProcess: {probation: 0s}") as house:
        folder = house.folder / "found"
        folder.mkdir()
        path = folder / "members.yaml"
        house.workerset = f"  discovery: {{file: {{path: {path}}}}}\n  scrapeInterval: 200ms"
        w0, w1, w2 = (house.add("--profile", "zero", "--tokenizer", "ids") for _ in range(3))
        house.listed = [w0]
        house.start()
        clients = Clients(house)
        clients.reach("w0")
        # No file yet: whoever is written in the set serves, and the rest is told.
        assert "1 workers and those that 1 sets find" in house.ctl("check", house.config).stdout
        told = house.ctl("workers").stdout
        assert "never answered; 0 members" in told and "cannot be read" in told, told
        write(path, members(w1))
        clients.reach("w1")
        workers, source = shown(house)
        assert {n: w["source"] for n, w in workers.items()} == {"w0": "static", "w1": "file"}, workers
        assert (source["state"], source["members"]) == ("ok", 1), source
        hash_before = house.stat()["config_hash"]

        # Rewritten in place.
        path.write_text(members(w1, w2))
        clients.reach("w2")
        stat = house.stat()
        assert stat["generation"] == 1 and stat["revision"] >= 2 and stat["config_hash"] != hash_before, stat
        row = shown(house)[0]["w2"]
        h.until("w2's events to be followed", lambda: shown(house)[0]["w2"]["cache"]["state"] == "exact")
        at_rest = {**descriptors(house)}

        # Gone: the stream that it has ends well, nobody new goes there, nothing of it stays.
        w2.get("/emu/config", {"t-o": 0.02})            # so that it is still under way
        connection, answer = stream_on(house, "w2", 60)
        write(path, members(w1))
        h.until("w2 to drain", lambda: shown(house)[0].get("w2", {}).get("state") == "draining")
        settled = clients.ok["w2"] + 4          # those that had been decided
        text = answer.read().decode()
        assert text.rstrip().endswith("data: [DONE]"), text[-300:]
        assert text.count('"text"') >= 60, text.count('"text"')
        connection.close()
        w2.get("/emu/config", {"t-o": 0})
        h.until("w2 to be removed", lambda: "w2" not in shown(house)[0])
        assert clients.ok["w2"] <= settled, (clients.ok["w2"], settled)
        h.until("connections to w2 to be closed", lambda: not connections(w2.port) and not connections(w2.kv_port))
        h.until("its index slots to be free", lambda: not [
            s for s in json.loads(house.ctl("index", "--slots", "--output", "json").stdout)["slots"]
            if s["row"] == row["row"]])

        # Back under the same name: the same row, begun anew.
        write(path, members(w1, w2))
        clients.reach("w2")
        again = shown(house)[0]["w2"]
        assert again["row"] == row["row"] and again["row_gen"] == row["row_gen"] + 1, (row, again)

        # What cannot be read changes nothing, and is told with its place.
        for bad, told in (("members:\n- {name: w1\n", "members.yaml:"), ("", "holds nothing"),
                          ("member: []\n", "members.yaml:1:1"), (None, "cannot be read")):
            if bad is None:
                path.unlink()
            else:
                write(path, bad)
            source = h.until(f"the source to fail: {told}", lambda: [
                s for s in (shown(house)[1],) if s["state"] == "failing" and told in s["text"]])[0]
            assert set(shown(house)[0]) == {"w0", "w1", "w2"}
            assert told in house.ctl("workers").stdout
        # One member that is not good, among those that are.
        write(path, members(w1, w2) + "- {name: w3, url: 'http://127.0.0.1:1', kvEvents: 'tcp://10.0.0.1:1'}\n")
        source = h.until("the source to speak again", lambda: [
            s for s in (shown(house)[1],) if s["state"] == "ok" and s["not_taken"] == 1])[0]
        assert source["members"] == 2 and "members.yaml:4:" in source["text"] and "another host" in source["text"], source
        assert counter(house, "discovery_refused") == 1 and counter(house, "discovery_failures_total") >= 4

        # As Kubernetes replaces a ConfigMap: a link to a link, of which the inner one is moved.
        for n, names in (("1", [w1]), ("2", [w1, w2])):
            (folder / f"..{n}").mkdir()
            (folder / f"..{n}" / "members.yaml").write_text(members(*names))
        os.symlink("..1", folder / "..data")
        os.symlink("..data/members.yaml", folder / ".link")
        os.replace(folder / ".link", path)
        h.until("the link to be followed", lambda: "w2" not in shown(house)[0])
        os.symlink("..2", folder / "..tmp")
        os.replace(folder / "..tmp", folder / "..data")
        clients.reach("w2")
        # A reload meanwhile: what is found stays found.
        house.ctl("reload")
        assert house.generation() == 2 and set(shown(house)[0]) == {"w0", "w1", "w2"}

        # A reload to a file that is not there: they stay, and it is told.
        house.workerset = house.workerset.replace("members.yaml", "mistyped.yaml")
        house.write()
        house.ctl("reload")
        workers, source = shown(house)
        assert set(workers) == {"w0", "w1", "w2"} and source["state"] == "failing", (set(workers), source)
        clients.reach("w2")
        house.workerset = house.workerset.replace("mistyped.yaml", "members.yaml")
        house.write()
        house.ctl("reload")
        # What was decided until now is told with the worker that it was, however often that one flaps.
        connection, answer = stream_on(house, "w2", 2)
        answer.read()
        asked = answer.getheader("x-pointsman-request-id")
        h.until("its decision and outcome", lambda: all(
            x in house.ctl("explain", asked).stdout for x in ("outcome at", "choose w2")))
        told = house.ctl("explain", asked).stdout
        connection.close()

        # Flapping: each time the same row, and nothing grows.
        path.unlink()
        for n in range(FLAPS):
            before = counter(house, "discovery_changes_total")
            write(path, members(w1) if n % 2 == 0 else members(w1, w2))
            h.until(f"flap {n}", lambda: counter(house, "discovery_changes_total") > before)
        clients.reach("w2")
        assert house.ctl("explain", asked).stdout == told and " from w2 after" in told, told
        workers = shown(house)[0]
        assert workers["w2"]["row"] == row["row"] and max(w["row"] for w in workers.values()) <= 2, workers
        clients.end()
        h.until("descriptors as before", lambda: all(
            n <= at_rest[r] + 2 for r, n in descriptors(house).items()))
        h.until("the ledger to be empty", lambda: all(
            w["pending_tokens"] == 0 and w["prefilling"] == 0 and w["decoding"] == 0 for w in shown(house)[0].values()))


class Zone:
    """A DNS server on loopback, over UDP, for the names in .records: [(type, data)]."""

    TYPES = {"A": 1, "CNAME": 5, "SRV": 33}

    def __init__(self):
        self.records, self.rcode, self.mute, self.authoritative, self.asked = {}, 0, False, True, 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    @staticmethod
    def name(text):
        return b"".join(bytes([len(x)]) + x.encode() for x in text.rstrip(".").split(".")) + b"\0"

    def run(self):
        while True:
            ask, who = self.socket.recvfrom(4096)
            self.asked += 1
            if self.mute:
                continue
            end, labels = 12, []
            while ask[end]:
                labels.append(ask[end + 1:end + 1 + ask[end]].decode())
                end += ask[end] + 1
            end += 5
            kind = struct.unpack(">H", ask[end - 4:end - 2])[0]
            found = [r for r in self.records.get(".".join(labels), []) if self.TYPES[r[0]] in (kind, 5)]
            answer = b""
            for what, data in found if self.rcode == 0 else []:
                rdata = (socket.inet_aton(data) if what == "A" else self.name(data) if what == "CNAME" else
                         struct.pack(">HHH", 0, 1, data[1]) + self.name(data[0]))
                answer += b"\xc0\x0c" + struct.pack(">HHIH", self.TYPES[what], 1, 0, len(rdata)) + rdata
            flags = 0x8000 | (0x0400 if self.authoritative else 0) | 0x0100 | self.rcode
            self.socket.sendto(ask[:2] + struct.pack(">HHHHH", flags, 1, len(found) if self.rcode == 0 else 0, 0, 0) +
                               ask[12:end] + answer, who)


def by_dns():
    zone = Zone()
    with h.House(ingresses=1, gateway="  policyProcess: {probation: 0s}\n  timeouts: {drain: 1s}") as house:
        port, kv = h.free_port(), h.free_port()
        one, two = (house.add("--profile", "zero", "--tokenizer", "ids", host=f"127.0.0.{i}", port=port, kv_port=kv)
                    for i in (2, 3))
        three = house.add("--profile", "zero", "--tokenizer", "ids")
        house.listed = []
        dns = f"interval: 100ms, resolver: '127.0.0.1:{zone.port}'"
        house.workerset = f"""\
  scrapeInterval: 200ms
  discovery: {{dns: {{name: vllm.test, port: {port}, kvEventsPort: {kv}, emptyMeansNone: true, {dns}}}}}"""
        zone.records["vllm.test"] = [("A", one.host)]
        house.start()
        clients = Clients(house)
        clients.reach(one.host)
        assert shown(house)[0][one.host]["source"] == "dns"
        h.until("its events to be followed", lambda: shown(house)[0][one.host]["cache"]["state"] == "exact")
        zone.records["vllm.test"] = [("A", two.host), ("A", one.host)]
        clients.reach(two.host)

        # No answer, no such name, no records: nothing changes, and the operator can see it.
        def failing(told):
            h.until(f"the source to fail: {told}", lambda: shown(house)[1]["state"] == "failing" and
                    told in shown(house)[1]["text"])
            assert set(shown(house)[0]) == {one.host, two.host}
            assert counter(house, "discovery_failing") == 1
            clients.reach(one.host)

        zone.rcode = 3
        failing("not found")
        zone.rcode = 2
        failing("contact")
        zone.rcode, zone.mute = 0, True
        failing("Timeout")
        kept, zone.records["vllm.test"], zone.authoritative, zone.mute = zone.records["vllm.test"], [], False, False
        failing("not authoritative")
        zone.records["vllm.test"], zone.authoritative = [("CNAME", "vllm.test")], True
        failing("none is an address")
        zone.records["vllm.test"] = kept
        h.until("the source to answer", lambda: shown(house)[1]["state"] == "ok")

        # Fewer records are meant.
        zone.records["vllm.test"] = [("A", two.host)]
        h.until("one to be gone", lambda: set(shown(house)[0]) == {two.host})
        clients.reach(two.host)

        # Services, by another source after a reload: it answers before the new rules are in force.
        zone.records["_http._tcp.vllm.test"] = [("SRV", ("localhost", three.port))]
        house.workerset = f"  scrapeInterval: 200ms\n  discovery: {{dns: {{name: _http._tcp.vllm.test, type: SRV, {dns}}}}}"
        house.write()
        house.ctl("reload")
        clients.reach(f"localhost.{three.port}")
        h.until("two to be gone", lambda: set(shown(house)[0]) == {f"localhost.{three.port}"})
        clients.end()

        # None at all, said by who may say it.
        house.workerset = house.workerset.replace("type: SRV", "type: SRV, emptyMeansNone: true")
        house.write()
        house.ctl("reload")
        three.get("/emu/config", {"t-o": 0.05})         # an answer takes longer than a drain may
        connection, answer = stream_on(house, f"localhost.{three.port}", 1000)
        zone.records["_http._tcp.vllm.test"] = []
        try:
            text = answer.read().decode()
        except http.client.IncompleteRead as e:
            text = e.partial.decode()
        assert "worker_removed" in text and "[DONE]" not in text, text[-500:]
        connection.close()
        h.until("all to be gone", lambda: not shown(house)[0])
        status, said, _ = h.request(house.port, "POST", "/v1/completions", {
            "model": house.model, "prompt": [1], "max_tokens": 1})
        assert status == 503 and said["error"]["code"] == "no_candidate", (status, said)


{"file": by_file, "dns": by_dns}[sys.argv[1]]()
