"""A whole Pointsman with emulated workers, for scenarios and benches.

Everything waits for events: the emulator prints `ready`, the supervisor tells NOTIFY_SOCKET, the rest is
asked through the product's own interfaces.  Every wait has a bound and says what it waited for.
Standard library only.
"""
import contextlib, http.client, json, os, pathlib, resource, select, shutil, signal, socket, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PM_BIN", ROOT / "build/release/bin"))


class Late(Exception):
    pass


def until(what, f, limit_s=20.0):
    """f() until it is true; polls what cannot be waited for."""
    end = time.monotonic() + limit_s
    while True:
        got = f()
        if got:
            return got
        if time.monotonic() > end:
            raise Late(f"waited {limit_s} s for {what}")
        time.sleep(0.02)


class Worker:
    """One emulated vLLM worker."""

    def __init__(self, folder, name, *options, model="emu-8b", port=0, kv_port=0, host="127.0.0.1",
                 kv_bound=False):
        """kv_bound: Pointsman binds kv_port, and the worker (--kv-connect) comes to it."""
        self.folder, self.name, self.model = folder, name, model
        self.options = [str(o) for o in options]
        self.log = folder / f"{name}.requests.jsonl"
        self.port, self.kv_port, self.host, self.kv_bound, self.kv_replay = port, kv_port, host, kv_bound, None
        self.process = None
        self.start()

    def start(self):
        command = [BIN / "pointsman-emulator", "--host", self.host, "--port", self.port, "--model", self.model,
                   "--kv-endpoint", f"tcp://{self.host}:{self.kv_port or '*'}", "--request-log", self.log,
                   "--debug-headers", *self.options]
        self.err = open(self.folder / f"{self.name}.log", "ab")
        self.process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=self.err)
        line = read_line(self.process.stdout, f"{self.name} to be ready", 20)
        said = dict(w.split("=", 1) for w in line.split() if "=" in w)
        self.port = int(said["port"])
        if "kv" in said and said["kv"] not in ("", "-", "off"):
            self.kv_port = int(said["kv"].rsplit(":", 1)[-1])
        self.kv_replay = said.get("kv_replay")

    def stop(self, how=signal.SIGTERM):
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(20)
        if self.process and self.process.stdout:
            self.process.stdout.close()
        self.err.close()

    def restart(self):
        self.stop(signal.SIGKILL)
        self.start()

    def get(self, path, body=None):
        return request(self.port, "POST" if body is not None else "GET", path, body, host=self.host)

    def state(self):
        return self.get("/emu/state")[1]

    def served(self):
        return self.state()["requests"]["ok"]

    def requests(self):
        """The worker's own log: one dict a line."""
        with open(self.log) as f:
            return [json.loads(line) for line in f if line.endswith("}\n")]

    def member(self):
        bind = "bind:" if self.kv_bound else ""
        kv = f", kvEvents: '{bind}tcp://{self.host}:{self.kv_port}'" if self.kv_port else ""
        kv += f", kvReplay: '{self.kv_replay}'" if self.kv_replay else ""
        return f"{{name: {self.name}, url: 'http://{self.host}:{self.port}'{kv}}}"


class OverSocket(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path, timeout=60):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Provider(Worker):
    """An emulated service elsewhere, behind the unix socket that providers are spoken to at."""

    def __init__(self, folder, name, *options, path, model="their-model", profile="remote"):
        self.path, self.sink = pathlib.Path(path), folder / f"{name}.sink.jsonl"
        super().__init__(folder, name, "--profile", profile, "--enable-kv-events", 0, "--body-log", self.sink, *options,
                         model=model, host=f"unix:{self.path}")

    def get(self, path, body=None, headers=None):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body)
        return answer_of(OverSocket(self.path), "POST" if body is not None else "GET", path, data, headers)

    def came(self):
        """All that was ever sent there but health questions: one dict a request, with its head and body."""
        with open(self.sink) as f:
            said = [json.loads(line) for line in f if line.endswith("}\n")]
        return [s for s in said if s["path"] != "/health"]


def read_line(pipe, what, limit_s):
    end = time.monotonic() + limit_s
    line = b""
    while not line.endswith(b"\n"):
        left = end - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            raise Late(f"waited {limit_s} s for {what}")
        c = os.read(pipe.fileno(), 1)
        if not c:
            raise Late(f"the program ended while we waited for {what}")
        line += c
    return line.decode().strip()


def request(port, method, path, body=None, headers=None, timeout=60, host="127.0.0.1"):
    """Status, parsed or raw body, headers."""
    data = None if body is None else body if isinstance(body, (bytes, str)) else json.dumps(body)
    return answer_of(http.client.HTTPConnection(host, port, timeout=timeout), method, path, data, headers)


def answer_of(c, method, path, data=None, headers=None):
    """Status, parsed or raw body, headers; the connection ends."""
    try:
        c.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        r = c.getresponse()
        raw = r.read()
        if "json" in (r.getheader("Content-Type") or ""):
            return r.status, json.loads(raw), dict(r.getheaders())
        return r.status, raw.decode(errors="replace"), dict(r.getheaders())
    finally:
        c.close()


def free_port(n=1, taken=set()):
    """The first of n free ports below the range that the kernel gives to clients, so that they stay free while nobody
    listens, also beside other tests."""
    for port in range(21000 + (os.getpid() * 97) % 6000, 32000):
        with contextlib.ExitStack() as stack:
            try:
                for i in range(n):
                    if port + i in taken:
                        raise OSError
                    s = stack.enter_context(socket.socket())
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    s.bind(("127.0.0.1", port + i))
            except OSError:
                continue
        taken.update(range(port, port + n))
        return port
    raise RuntimeError("no free port")


class House(contextlib.AbstractContextManager):
    """Workers and one Pointsman before them."""

    def __init__(self, folder=None, ingresses=1, io="auto", minimize="PredictedTTFT", model="emu-8b",
                 gateway="", workerset="", policy="", candidates="[{pool: all}]", documents="", level=None,
                 open_files=None):
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="pointsman-"))
        self.own_folder = folder is None
        # A tmpfs, as /run is where it counts; sockets' paths are short there too.
        shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.run = pathlib.Path(tempfile.mkdtemp(prefix="pointsman-", dir=shm)) / "run"
        self.config = self.folder / "pointsman.yaml"
        self.ingresses, self.io, self.minimize, self.model = ingresses, io, minimize, model
        self.gateway, self.workerset, self.policy, self.level = gateway, workerset, policy, level
        self.candidates, self.documents = candidates, documents         # of the policy; behind all others
        self.open_files = open_files
        self.port, self.admin = free_port(), free_port()
        self.listen = [f"127.0.0.1:{self.port}"]
        self.workers, self.supervisor, self.notify = [], None, None
        self.listed = None      # workers that the configuration names; None: all
        self.prefix, self.options = [], []      # before and behind the supervisor's command

    def add(self, *options, name=None, count=1, **named):
        for _ in range(count):
            self.workers.append(Worker(self.folder, name or f"w{len(self.workers)}", *options,
                                       model=self.model, **named))
        return self.workers[-1]

    def write(self, text=None):
        listed = self.workers if self.listed is None else self.listed
        members = "members: [" + ", ".join(w.member() for w in listed) + "]" if listed else ""
        self.config.write_text(text or f"""\
apiVersion: pointsman.io/v1alpha1
kind: GatewayBackend
metadata: {{name: front}}
spec:
  listen: {json.dumps(self.listen)}
  ingresses: {self.ingresses}
  admin: {{listen: "127.0.0.1:{self.admin}"}}
  io: {{backend: {self.io}}}
  models: [{{name: {self.model}, policy: standard}}, {{name: small, aliasOf: {self.model}}}]
{self.gateway}
---
apiVersion: pointsman.io/v1alpha1
kind: InferenceWorkerSet
metadata: {{name: emulated}}
spec:
  engine: vllm
  model: {self.model}
  {members}
{self.workerset}
---
apiVersion: pointsman.io/v1alpha1
kind: InferencePool
metadata: {{name: all}}
spec: {{workerSets: [emulated]}}
---
apiVersion: pointsman.io/v1alpha1
kind: InferencePolicy
metadata: {{name: standard}}
spec:
  match: {{models: [{self.model}, small]}}
  candidates: {self.candidates}
  minimize: {self.minimize}
{self.policy}
{self.documents}
""")

    def start(self, wait=True):
        if not self.config.exists():
            self.write()
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = str(self.folder / "notify")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self.notify.bind(path)
        os.chmod(path, 0o666)           # a supervisor under another user id tells it too
        self.err = open(self.folder / "pointsman.log", "ab")
        command = [*self.prefix, BIN / "pointsman", "-r", self.run, "-c", self.config, *self.options]
        if self.level:
            command += [self.level]
        files = self.open_files
        limit = files and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)))
        self.supervisor = subprocess.Popen([str(c) for c in command], stderr=self.err, stdout=self.err,
                                           env={**os.environ, "NOTIFY_SOCKET": path}, preexec_fn=limit)
        if wait:
            self.wait_notify("READY=1", 40)
        return self

    def wait_notify(self, what, limit_s):
        end = time.monotonic() + limit_s
        while True:
            self.notify.settimeout(max(0.01, min(0.5, end - time.monotonic())))
            try:
                if what in self.notify.recv(4096).decode():
                    return
            except socket.timeout:
                pass
            if self.supervisor.poll() is not None:
                raise Late(f"pointsman ended with {self.supervisor.returncode}:\n{self.tail()}")
            if time.monotonic() > end:
                raise Late(f"waited {limit_s} s for {what}:\n{self.tail()}")

    def tail(self, n=40):
        with open(self.folder / "pointsman.log", errors="replace") as f:
            return "".join(f.readlines()[-n:])

    def ctl(self, *args, check=True, limit_s=60):
        r = subprocess.run([str(BIN / "pointsctl"), "-r", str(self.run), *map(str, args)],
                           capture_output=True, text=True, timeout=limit_s)
        if check and r.returncode != 0:
            raise RuntimeError(f"pointsctl {' '.join(map(str, args))}: {r.returncode}\n{r.stdout}{r.stderr}")
        return r

    def explain(self, id, *more):
        """What is said of a request, once the process that decided it is known there: a new one is so a moment later."""
        return until(f"{id} to be known", lambda: "(ask again)" not in (
            said := self.ctl("explain", id, *more).stdout) and said)

    def stat(self):
        return json.loads(self.ctl("stat", "--output", "json").stdout)

    def counter(self, name):
        """Of all processes, as the metrics page has it."""
        page = request(self.admin, "GET", "/metrics")[1]
        return sum(int(l.split()[-1]) for l in page.splitlines() if l.startswith(f"pointsman_{name}{{"))

    def pids(self, role, state=None):
        return [p["pid"] for p in self.stat()["processes"]
                if p["role"] == role and p["pid"] and p["state"] != "gone" and (state is None or p["state"] == state)]

    def kill(self, role, state=None, how=signal.SIGKILL):
        pid = self.pids(role, state)[0]
        os.kill(pid, how)
        return pid

    def generation(self):
        return self.stat()["generation"]

    def hup(self):
        self.supervisor.send_signal(signal.SIGHUP)

    def chat(self, text, **more):
        body = {"model": self.model, "messages": [{"role": "user", "content": text}], "max_tokens": 4, **more}
        return request(self.port, "POST", "/v1/chat/completions", body)

    def stop(self, expect=0):
        if self.supervisor and self.supervisor.poll() is None:
            self.supervisor.send_signal(signal.SIGTERM)
            self.supervisor.wait(60)
        if self.supervisor and expect is not None and self.supervisor.returncode != expect:
            raise RuntimeError(f"pointsman ended with {self.supervisor.returncode}:\n{self.tail()}")
        wrong = [line for line in open(self.folder / "pointsman.log", errors="replace") if " ledger: " in line]
        if wrong:
            raise RuntimeError(f"the ledger does not come out even:\n{''.join(wrong[:5])}")

    def __exit__(self, kind, error, trace):
        try:
            self.stop(None if error else 0)
        finally:
            if self.supervisor and self.supervisor.poll() is None:
                self.supervisor.kill()
            for w in self.workers:
                w.stop()
            if error:
                sys.stderr.write(self.tail())
                sys.stderr.write(f"kept: {self.folder}\n")
            shutil.rmtree(self.run.parent, ignore_errors=True)
            if self.own_folder and not error:
                shutil.rmtree(self.folder, ignore_errors=True)


class Load:
    """pointsman-load under way, until it is told to stop; what it began is finished."""

    def __init__(self, target, *options):
        self.out = tempfile.NamedTemporaryFile(suffix=".json")
        self.process = subprocess.Popen([str(BIN / "pointsman-load"), "--targets", target, "--json", self.out.name,
                                         *map(str, options)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self):
        """Its summary."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        with self.out:
            return json.load(open(self.out.name))


def load(target, *options, check=True, limit_s=300):
    """pointsman-load; its summary as a dict."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        r = subprocess.run([str(BIN / "pointsman-load"), "--targets", target, "--json", out.name,
                            *map(str, options)], capture_output=True, text=True, timeout=limit_s)
        if check and r.returncode != 0:
            raise RuntimeError(f"pointsman-load: {r.returncode}\n{r.stdout[-2000:]}{r.stderr[-2000:]}")
        return json.load(open(out.name))
