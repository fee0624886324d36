"""SIGUSR2 again and again, under a flood of new connections and beside one slow client: no connection is reset, refused,
failed or left waiting.  replacements.py BACKEND [BUSY SLOW]: how many replacements of each kind.

A flood hides a wake-up that is lost when a listener changes hands (the next connection brings it); one client alone
shows it: its connection then waits for an event that does not come, while a stream keeps the old process there.  Each
answer is waited for LIMIT_S and no longer.
"""
import json, pathlib, random, re, shutil, signal, socket, subprocess, sys, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

BACKEND = sys.argv[1]
BUSY, SLOW = (int(n) for n in sys.argv[2:4]) if len(sys.argv) > 3 else (5, 15)
LIMIT_S = 10
if not shutil.which("wrk"):
    print("SKIPPED: no wrk (Debian: wrk)")
    sys.exit(77)


def replace(house, between=lambda: None):
    """between: called while the old ones still live."""
    old = set(house.pids("ingress", "ready"))
    house.supervisor.send_signal(signal.SIGUSR2)
    h.until("all to be replaced", lambda: len(now := set(house.pids("ingress", "ready"))) == len(old) and not old & now)
    between()
    h.until("the old ones to end", lambda: not old & set(house.pids("ingress")))


def stream(house):
    """One that keeps its ingress alive until it is closed."""
    s = socket.create_connection(("127.0.0.1", house.port), timeout=30)
    body = json.dumps({"model": house.model, "prompt": [1, 2], "stream": True, "max_tokens": 30000, "ignore_eos": True}).encode()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    said = b""
    while b"data: " not in said:
        said += s.recv(65536)
    return s


class Slow(threading.Thread):
    """One client, one connection at a time, each closed by the answer to its only request."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.stop, self.served, self.wrong, self.slowest = port, False, 0, [], 0.0

    def run(self):
        while not self.stop:
            began = time.monotonic()
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S) as s:
                    s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    said = b"".join(iter(lambda: s.recv(65536), b""))
                if not said.startswith(b"HTTP/1.1 200 ") or not said.endswith(b"]}"):
                    self.wrong.append(f"failed: {said[:200]}")
            except socket.timeout:
                self.wrong.append("stalled: waited for something else to happen")
            except OSError as e:
                self.wrong.append(f"reset or refused: {e}")
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.served += 1
            time.sleep(random.uniform(0, .0005))        # of no rhythm with what the processes do


with h.House(ingresses=2, io=BACKEND) as house:
    house.add("--profile", "zero")
    house.start()
    wrk = subprocess.Popen(["wrk", "-c", "16", "-t", "1", "-d", "600", "--timeout", f"{LIMIT_S}s", "--latency", "-H", "Connection: close",
                            f"http://127.0.0.1:{house.port}/v1/models"], stdout=subprocess.PIPE, text=True)
    began = time.monotonic()
    for _ in range(BUSY):
        replace(house)
    took = time.monotonic() - began
    wrk.send_signal(signal.SIGINT)
    said = wrk.communicate(timeout=30)[0]
    rate = float(re.search(r"Requests/sec: +([0-9.]+)", said)[1])
    slowest = re.search(r"Latency.*", said)[0].split()[3]
    print(f"{BUSY} replacements in {took:.1f} s at {rate:.0f} new connections/s, the slowest answer {slowest}", flush=True)
    assert "Socket errors" not in said and "Non-2xx" not in said, said

# Alone, and one listener: nobody else's connection wakes anybody, and the old process does not end and let go.
with h.House(ingresses=1, io=BACKEND) as house:
    house.add("--profile", "zero", "--t-o", ".1", "--tokenizer", "ids")
    house.start()
    client = Slow(house.port)
    client.start()

    def served():
        before = client.served
        h.until("more to be served", lambda: client.served > before + 3 or client.wrong, LIMIT_S + 5)

    for _ in range(SLOW):
        with stream(house) as held:
            replace(house, lambda: (served(), held.close()))
    client.stop = True
    client.join(LIMIT_S + 5)
    print(f"{SLOW} replacements beside one client: {client.served} connections one after another, "
          f"{len(client.wrong)} wrong, the slowest {client.slowest * 1000:.0f} ms")
    assert not client.wrong, client.wrong[:5]
