"""A worker's name may have a dead address, none, no resolver, or another one tomorrow: clients do not notice as long
as one worker answers.  names.py BACKEND"""
import json, os, pathlib, shutil, socket, subprocess, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

BACKEND = sys.argv[1]
MOUNT = 'mount --bind "$1" /etc/hosts && mount --bind "$2" /etc/resolv.conf && shift 2 && exec "$@"'


def named(worker, name):
    worker.member = lambda: f"{{name: {worker.name}, url: 'http://{name}:{worker.port}'}}"


def hosts(*lines):
    """In place: the file is mounted."""
    with open(house.folder / "hosts", "w") as f:
        f.write("127.0.0.1 localhost\n" + "".join(line + "\n" for line in lines))


def silent(host, port):
    """Accepts nothing and answers nothing: the kernel drops what comes to a full queue."""
    at = socket.socket()
    at.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    at.bind((host, port))
    at.listen(0)
    fill = []
    for _ in range(2):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex((host, port))
        fill.append(s)
    return [at, *fill]


def prepare(house):
    (house.folder / "hosts").touch()
    (house.folder / "resolv.conf").write_text("nameserver 127.0.0.77\noptions timeout:1 attempts:1\n")
    house.prefix = ["unshare", "-m", "sh", "-c", MOUNT, "sh", house.folder / "hosts", house.folder / "resolv.conf"]


def ask():
    began = time.monotonic()
    status, body, headers = h.request(house.port, "POST", "/v1/completions",
                                      {"model": house.model, "prompt": [1, 2, 3], "max_tokens": 2})
    return status, headers.get("x-pointsman-worker"), time.monotonic() - began


probe = subprocess.run(["unshare", "-m", "sh", "-c", "mount --bind /etc/hosts /etc/hosts"], capture_output=True, text=True)
if probe.returncode != 0:
    print(f"SKIPPED: no mount namespace to put names into: {probe.stderr.strip()}")
    sys.exit(77)

# A resolver that never answers.
resolver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
resolver.bind(("127.0.0.77", 53))

# A silent address before the one that serves: found without its time-out.
with h.House(io=BACKEND, gateway="  timeouts: {connect: 20s, upstreamKeepAlive: 10ms}") as house:
    house.add("--profile", "zero", "--tokenizer", "ids")
    named(house.workers[0], "two.test")
    prepare(house)
    hosts("127.0.0.50 two.test", "127.0.0.1 two.test")
    dead = silent("127.0.0.50", house.workers[0].port)
    house.start()
    for _ in range(3):
        status, _, took = ask()
        assert status == 200 and took < 5, (status, took)

    # The worker moves: found after the first failure.
    for s in dead:
        s.close()
    port = house.workers[0].port
    house.workers[0].stop()
    house.workers.append(h.Worker(house.folder, "moved", "--profile", "zero", "--tokenizer", "ids",
                                  "--host", "127.0.0.51", model=house.model, port=port))
    hosts("127.0.0.51 two.test")
    h.until("the new address to be found", lambda: ask()[0] == 200)

# A resolver that does not answer costs the connect time-out and no more; a name that is known at last serves.
with h.House(io=BACKEND, gateway="  timeouts: {connect: 300ms}") as house:
    house.add("--profile", "zero", "--tokenizer", "ids")
    named(house.workers[0], "late.test")
    prepare(house)
    hosts()
    house.start()
    status, _, took = ask()
    assert status == 502 and 0.25 < took < 5, (status, took)
    hosts("127.0.0.1 late.test")
    h.until("the name to be known", lambda: ask()[0] == 200)
resolver.close()
