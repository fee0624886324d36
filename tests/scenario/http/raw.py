"""Bytes as they are: a worker that is a function, and a client that says how an answer ended."""
import socket

import group as g


class Played(g.Door):
    """A worker played by a function of (connection, first bytes).  Probes are answered as ever."""

    play = None

    def relay(self, front, seen):
        self.play(front, seen)


def whole_request(s, seen=b""):
    """Reads one request with a Content-Length, as Pointsman writes them: head and body, or what came of them."""
    while b"\r\n\r\n" not in seen:
        more = s.recv(65536)
        if not more:
            return seen, b""
        seen += more
    head, body = seen.split(b"\r\n\r\n", 1)
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    while len(body) < length:
        more = s.recv(65536)
        if not more:
            break
        body += more
    return head, body


def post(model, path="/v1/completions", **more):
    body = g.json.dumps({"model": model, "prompt": "hi", **more}).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: router.test\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


class Ended(Exception):
    """The connection ended before what was waited for was there: "eof", "reset" or "timeout"."""


class Client:
    def __init__(self, port, limit_s=20, receive_bytes=None):
        self.s = socket.socket()
        self.s.settimeout(limit_s)
        if receive_bytes:               # else the kernel's buffer grows to tens of megabytes
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.s.connect(("127.0.0.1", port))
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.got = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.s.close()

    def send(self, data):
        self.s.sendall(data)
        return self

    def more(self):
        try:
            data = self.s.recv(65536)
        except ConnectionError:
            raise Ended("reset")
        except socket.timeout:
            raise Ended("timeout")
        if not data:
            raise Ended("eof")
        self.got += data

    def take(self, n):
        while len(self.got) < n:
            self.more()
        data, self.got = self.got[:n], self.got[n:]
        return data

    def line(self):
        while b"\r\n" not in self.got:
            self.more()
        line, self.got = self.got.split(b"\r\n", 1)
        return line

    def answer(self, to_head=False):
        """Status, header dict (lower-case names), body, end: "clean" or how it broke off.  Status 0: no head."""
        status, headers, body = 0, {}, bytearray()
        try:
            version, status, *_ = self.line().split(b" ", 2)
            assert version == b"HTTP/1.1", version
            status = int(status)
            while line := self.line():
                name, value = line.split(b":", 1)
                headers[name.decode().lower()] = value.strip().decode()
            if to_head or status < 200 or status in (204, 304):
                pass
            elif "transfer-encoding" in headers:
                assert headers["transfer-encoding"] == "chunked" and "content-length" not in headers, headers
                while size := int(self.line(), 16):
                    while size:         # piecewise: what came counts, also of a chunk that is cut
                        while not self.got:
                            self.more()
                        piece = self.take(min(size, len(self.got)))
                        body += piece
                        size -= len(piece)
                    assert self.take(2) == b"\r\n"
                assert self.line() == b""
            elif "content-length" in headers:
                left = int(headers["content-length"])
                while left:
                    while not self.got:
                        self.more()
                    piece = self.take(min(left, len(self.got)))
                    body += piece
                    left -= len(piece)
            else:
                assert headers.get("connection") == "close", headers
                try:
                    while True:
                        self.more()
                except Ended as e:
                    body, self.got = self.got, b""
                    return status, headers, body, "clean" if str(e) == "eof" else str(e)
        except Ended as e:
            return status, headers, bytes(body), str(e)
        return status, headers, bytes(body), "clean"

    def ended(self):
        """How the connection ends; nothing may come before."""
        try:
            self.more()
        except Ended as e:
            return str(e)
        raise AssertionError(f"more bytes: {self.got[:200]}")
