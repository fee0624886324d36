"""More clients than descriptors: idle ones give way, a reload still reaches everybody, no process dies.
descriptors.py BACKEND"""
import http.client, pathlib, socket, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import house as h

FILES, CLIENTS = 256, 700


def ask():
    """Status of an answer; 0: the connection was refused or closed."""
    try:
        return h.request(house.port, "POST", "/v1/completions",
                         {"model": house.model, "prompt": [1, 2, 3], "max_tokens": 2})[0]
    except (ConnectionError, http.client.HTTPException):
        return 0


def refused():
    page = h.request(house.admin, "GET", "/metrics")[1]
    return sum(int(line.split()[-1]) for line in page.splitlines() if line.startswith("pointsman_connections_refused_total{"))


with h.House(io=sys.argv[1], ingresses=2, open_files=FILES, gateway="  client: {fairness: false}") as house:
    house.add("--profile", "zero", "--tokenizer", "ids", count=2)
    house.start()
    everybody = {p["pid"]: p["role"] for p in house.stat()["processes"] if p["role"] != "policy"}
    idle = [socket.create_connection(("127.0.0.1", house.port)) for _ in range(CLIENTS)]
    h.until("some to be refused", lambda: refused() > 0)

    # Idle for a second, they give way.
    h.until("a new client to be served", lambda: ask() == 200, 10)

    # Descriptors are left for what a reload brings.
    house.ctl("reload")
    assert house.generation() == 2
    for i in range(20):
        assert ask() == 200
    for s in idle:
        s.close()
    assert ask() == 200
    left = {p["pid"]: p["role"] for p in house.stat()["processes"] if p["role"] != "policy"}
    assert left == everybody, (left, everybody, house.tail())
