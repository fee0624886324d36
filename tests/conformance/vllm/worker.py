"""One real vLLM worker on loopback, with what scenario/house.py wants of a worker.  Standard library and zmq only."""
import contextlib, http.client, os, pathlib, signal, struct, subprocess, sys, time

import zmq

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scenario"))
import house as h

START_LIMIT_S = 900     # two cores that others use too
BLOCK = 32              # the least that vLLM has attention for on CPUs


class RealWorker:
    def __init__(self, python, model, folder, name, served, blocks=300, options=(), at=None):
        """at: "PORT:EVENTS:REPLAY" of one that runs already and is not ours to stop."""
        self.python, self.model, self.folder, self.name, self.served = python, model, folder, name, served
        self.blocks, self.options, self.host = blocks, list(options), "127.0.0.1"
        self.ours = at is None
        self.port, self.kv_port, self.kv_replay = ([h.free_port() for _ in range(3)] if self.ours
                                                   else map(int, at.split(":")))
        self.process, self.log = None, folder / f"{name}.log"

    def start(self):
        """Begins; `wait` returns when it answers."""
        if not self.ours:
            return self
        events = ('{"enable_kv_cache_events": true, "publisher": "zmq", "topic": "kv-events", '
                  f'"endpoint": "tcp://*:{self.kv_port}", '
                  f'"replay_endpoint": "tcp://*:{self.kv_replay}"}}')
        command = ["nice", "-n", "10", self.python, "-W", "ignore", "-m", "vllm.entrypoints.openai.api_server",
                   "--model", self.model, "--served-model-name", self.served, "--host", self.host,
                   "--port", self.port, "--max-model-len", 4096, "--block-size", BLOCK,
                   "--num-gpu-blocks-override", self.blocks, "--max-num-seqs", 8, "--dtype", "bfloat16",
                   "--enforce-eager", "--enable-prefix-caching", "--enable-prompt-tokens-details",
                   "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
                   "--kv-events-config", events, *self.options]
        quiet = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
                 "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
                 "DO_NOT_TRACK": "1", "CUDA_VISIBLE_DEVICES": ""}
        self.err = open(self.log, "ab")
        # A session of its own: its engine is a child that must not outlive it.
        self.process = subprocess.Popen([str(c) for c in command], stdout=self.err, stderr=self.err,
                                        stdin=subprocess.DEVNULL, env={**os.environ, **quiet},
                                        start_new_session=True)
        return self

    def wait(self):
        def healthy():
            if self.ours and self.process.poll() is not None:
                raise h.Late(f"{self.name} ended with {self.process.returncode}:\n{self.tail()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                return self.get("/health")[0] == 200

        h.until(f"{self.name} to be healthy", healthy, START_LIMIT_S)
        return self

    def stop(self, how=signal.SIGTERM):
        if self.process is None:
            return
        for signum, limit_s in ((how, 60), (signal.SIGKILL, 20)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signum)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(limit_s)
            h_end = time.monotonic() + 20
            while self.process.poll() is not None and group_lives(self.process.pid) and time.monotonic() < h_end:
                time.sleep(0.05)
            if self.process.poll() is not None and not group_lives(self.process.pid):
                break
        self.process = None
        self.err.close()

    def tail(self, n=40):
        return "".join(self.log.read_text(errors="replace").splitlines(keepends=True)[-n:])

    def get(self, path, body=None, timeout=120):
        return h.request(self.port, "POST" if body is not None else "GET", path, body, timeout=timeout)

    def tokenize(self, **what):
        status, said, _ = self.get("/tokenize", {"model": self.served, **what})
        if status != 200:
            raise RuntimeError(f"/tokenize: {status} {said}")
        return said["tokens"]

    def series(self, name):
        """The sum of a series on its metrics page."""
        page = self.get("/metrics")[1]
        values = [float(line.rsplit(" ", 1)[1]) for line in page.splitlines()
                  if line.startswith((name + "{", name + " "))]
        if not values:
            raise RuntimeError(f"{self.name} has no series {name}")
        return sum(values)

    def published(self, since=0):
        """The batches that its publisher still keeps, from a number on: (number, bytes) each."""
        with zmq.Context() as context, context.socket(zmq.DEALER) as s:
            s.linger = 0
            s.connect(f"tcp://{self.host}:{self.kv_replay}")
            s.send_multipart([b"", struct.pack(">Q", since)])
            batches = []
            while True:
                if not s.poll(20000):
                    raise h.Late(f"waited 20 s for {self.name} to replay its batches")
                number, batch = s.recv_multipart()[-2:]
                if not batch:
                    return batches
                batches.append((struct.unpack(">Q", number)[0], batch))

    def member(self):
        return (f"{{name: {self.name}, url: 'http://{self.host}:{self.port}', "
                f"kvEvents: 'tcp://{self.host}:{self.kv_port}', kvReplay: 'tcp://{self.host}:{self.kv_replay}'}}")


def group_lives(pgid):
    try:
        os.killpg(pgid, 0)
        return True
    except (ProcessLookupError, PermissionError):
        return False
