"""scrape -- what it costs to read the metrics of 100 workers, each once a second.

    tests/bench/run scrape [--workers 100] [--seconds 20] [--page vllm_main_2026-08.prom]

One process serves the pages of all workers, each at a port of its own: a recorded page of vLLM, /health and
/v1/models; other routes are 404, as vLLM's are outside of its dev mode.
    scrape_100_workers_core_share   CPU time of pointsman-metrics, in user and kernel mode, over the time that passed
    scrape_pages_per_s              pages read meanwhile, as it counts them
    scrape_page_us                  CPU time a page, /health with it
"""
import argparse, asyncio, multiprocessing, pathlib, resource, socket, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scenario"))
import house as h

LIMIT = 0.05

p = argparse.ArgumentParser()
p.add_argument("--workers", type=int, default=100)
p.add_argument("--seconds", type=float, default=20)
p.add_argument("--page", default="vllm_main_2026-08.prom")
a = p.parse_args()
PAGE = (h.ROOT / "tests/data/metrics" / a.page).read_bytes()
FILES = a.workers * 6 + 500
resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, max(FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))


def answer(status, type, body):
    return (f"HTTP/1.1 {status}\r\nContent-Type: {type}\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body


ANSWERS = {
    b"/metrics": answer("200 OK", "text/plain; version=0.0.4; charset=utf-8", PAGE),
    b"/health": answer("200 OK", "text/plain", b""),
    b"/v1/models": answer("200 OK", "application/json", b'{"data":[{"id":"emu-8b","max_model_len":32768}]}'),
}
NOT_FOUND = answer("404 Not Found", "application/json", b'{"detail":"Not Found"}')


class Server(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.head = transport, b""

    def data_received(self, data):
        self.head += data
        while b"\r\n\r\n" in self.head:
            head, _, self.head = self.head.partition(b"\r\n\r\n")
            self.transport.write(ANSWERS.get(head.split(b" ", 2)[1], NOT_FOUND))


def serve(sockets):
    async def main():
        loop = asyncio.get_running_loop()
        for s in sockets:
            await loop.create_server(Server, sock=s)
        await asyncio.Event().wait()
    asyncio.run(main())


class Page:
    """In the place of a worker: only where it is matters here."""
    def __init__(self, n, port):
        self.name, self.port = f"w{n}", port

    def member(self):
        return f"{{name: {self.name}, url: 'http://127.0.0.1:{self.port}'}}"

    def stop(self):
        pass


def cpu_s(pid):
    said = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(said[11]) + int(said[12])) / 100


def counted(house):
    page = h.request(house.admin, "GET", "/metrics")[1]
    return sum(int(x.split()[-1]) for x in page.splitlines() if x.startswith("pointsman_scrapes_total{"))


sockets = []
for _ in range(a.workers):
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen(16)
    sockets.append(s)
server = multiprocessing.Process(target=serve, args=(sockets,), daemon=True)
server.start()
try:
    with h.House() as house:
        house.workers = [Page(n, s.getsockname()[1]) for n, s in enumerate(sockets)]
        house.start()
        h.until("every worker to be up", lambda: house.stat()["workers_up"] == a.workers)
        pid = house.pids("metrics")[0]
        pages, cpu, began = counted(house), cpu_s(pid), time.monotonic()
        time.sleep(a.seconds)           # what is measured is an interval
        pages, cpu, took = counted(house) - pages, cpu_s(pid) - cpu, time.monotonic() - began
        share = cpu / took
        assert pages > a.workers * a.seconds * 0.8, f"only {pages} pages were read"
        over = f" (limit {LIMIT})" + (" over" if share > LIMIT else "") if a.workers == 100 else ""
        print(f"scrape_{a.workers}_workers_core_share {share:.4f} cores{over}")
        print(f"scrape_pages_per_s {pages / took:.1f} pages")
        print(f"scrape_page_us {cpu / pages * 1e6:.0f} us")
finally:
    server.terminate()
    server.join(10)
