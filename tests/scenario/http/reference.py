"""What HTTP/1.1 says of bytes, written a second time and plainly: the reference differ.py compares the relay with.

It shares nothing with proto/ and reads whole byte strings, never pieces.  Source: RFC 9110, 9112; stricter as the
rules of proto/http1.h are; what crosses the gateway as README and actors/ingress say.
"""
import re

TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
TEXT = rb"[\t\x20-\x7e\x80-\xff]*"
STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([0-9]{3})(?: " + TEXT + rb")?")
FIELD = re.compile(rb"(" + TOKEN + rb"):(" + TEXT + rb")")
HOST = re.compile(rb"[!$%&'()*+,\-.0-9:;=A-Za-z\[\]_~]*")
TARGET = re.compile(rb"[!-\"$-~]+")             # visible ASCII without '#'
HOP = {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
# A client says these to us, and no worker hears them.
OURS = {b"host", b"content-length", b"expect", b"accept-encoding", b"authorization", b"cookie", b"x-api-key", b"api-key",
        b"x-request-id", b"x-data-parallel-rank", b"forwarded", b"x-forwarded-for", b"x-forwarded-host",
        b"x-forwarded-port", b"x-forwarded-proto", b"x-real-ip", b"x-goog-api-key", b"ocp-apim-subscription-key",
        b"x-auth-token", b"x-access-token", b"x-amz-security-token"}
POSTS = {b"/v1/chat/completions", b"/v1/completions", b"/v1/embeddings"}


class Bad(Exception):
    """No message: what it would be answered with, if it is a request."""


class Short(Exception):
    """A good beginning, and then the bytes end."""


def lines_of(head):
    """A head without its last CRLF, as lines."""
    for line in head.split(b"\r\n"):
        if b"\n" in line or b"\r" in line:
            raise Bad(400)
        yield line


def fields_of(lines):
    fields = []
    for line in lines:
        m = FIELD.fullmatch(line)
        if not m:
            raise Bad(400)
        fields.append((m[1], m[2].strip(b" \t")))
    return fields


def values(fields, name):
    return [v for n, v in fields if n.lower() == name]


def listed(fields, name):
    return [e.strip(b" \t").lower() for v in values(fields, name) for e in v.split(b",") if e.strip(b" \t")]


def length_of(fields):
    """Content-Length, None when there is none."""
    said = [e.strip(b" \t") for v in values(fields, b"content-length") for e in v.split(b",")]
    if not said:
        return None
    if any(not re.fullmatch(rb"[0-9]+", e) for e in said) or len({int(e) for e in said}) > 1 or int(said[0]) >= 1 << 63:
        raise Bad(400)
    return int(said[0])


def crossing(fields, more=()):
    """What of a head goes further."""
    gone = HOP | set(listed(fields, b"connection")) | set(more)
    return [(n, v) for n, v in fields if n.lower() not in gone and not n.lower().startswith((b"proxy-", b"x-pointsman-"))]


SIZE = re.compile(rb"([0-9a-fA-F]{1,16})((?:;" + TEXT + rb")?)\r\n")
SIZE_BEGUN = re.compile(rb"(?:[0-9a-fA-F]{1,16}(?:;" + TEXT + rb")?\r?)?")


def unchunk(data):
    """A chunked body at the start of data: (body, bytes used).  Bad and Short carry the body so far."""
    body, at, extra = b"", 0, 0
    while True:
        m = SIZE.match(data, at)
        if not m:
            raise (Short if SIZE_BEGUN.fullmatch(data, at) else Bad)(body)
        extra += len(m[2])
        if extra > 1024 or int(m[1], 16) >= 1 << 63:
            raise Bad(body)
        at, size = m.end(), int(m[1], 16)
        if size == 0:
            break
        body += data[at:at + size]
        end = data[at + size:at + size + 2]
        if end != b"\r\n":
            raise (Short if b"\r\n".startswith(end) else Bad)(body)
        at += size + 2
    m = re.compile(rb"(?:" + TEXT.replace(b"*", b"+") + rb"\r\n)*\r\n").match(data, at)
    if not m:
        begun = re.compile(rb"(?:" + TEXT.replace(b"*", b"+") + rb"\r\n)*" + TEXT + rb"\r?").fullmatch(data, at)
        raise (Short if begun else Bad)(body)
    if m.end() - at > 8192:
        raise Bad(body)
    return body, m.end()


# --- event streams --------------------------------------------------------------------------------

def events_of(stream):
    """(data of every event that is complete, is the end between two events?)"""
    text = stream.removeprefix(b"\xef\xbb\xbf")
    between = text != stream or stream not in (b"\xef", b"\xef\xbb")
    lines = re.split(rb"\r\n|\r|\n", text)
    events, data, begun = [], [], False
    for line in lines[:-1]:
        if line == b"":
            if data:
                events.append(b"\n".join(data))
            data, begun = [], False
            continue
        if line.startswith(b":"):
            continue
        begun = True
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
    return events, between and not begun and lines[-1] == b""


# --- a worker's answer ----------------------------------------------------------------------------

class Answer:
    """What a client must get of what a worker said.

    status   of the answer, 0: the worker's connection ended without a byte (a reused one: the request goes again)
    fields   its header fields that cross, in their order; None: the answer is our own error, `code` says which
    body     exactly these bytes
    whole    it ends as a whole one; else it breaks off behind `body`, with an error event `code` if `told`
    reuse    the worker's connection serves the next request
    stray    bytes follow that nobody asked for
    """
    fields, body, whole, code, told, gap, reuse, stray = None, b"", True, None, False, b"", False, False

    def ours(self, code):
        self.status, self.code = 502, code
        return self

    def broken(self, body, code):
        self.body, self.whole, self.code = body, False, code
        self.told = self.events and self.framing == "chunked"
        if self.told and self.watched and not events_of(body)[1]:
            self.gap = b"\n\n"
        return self


def read_answer(said, ended, minor):
    """said: all bytes of the worker; ended: it closed behind them; minor: of the client's HTTP/1.x."""
    a = Answer()
    if not said:
        a.status = 0
        return a
    while True:
        end = said.find(b"\r\n\r\n")
        if end < 0:
            # Wrong or only begun: the client hears of it either way.
            return a.ours("upstream_failed" if ended else None)
        try:
            first, *rest = lines_of(said[:end])
            m = STATUS_LINE.fullmatch(first)
            if not m or not 100 <= int(m[2]) <= 599 or int(m[2]) == 101:
                raise Bad(502)
            fields = fields_of(rest)
            length = length_of(fields)
        except Bad:
            return a.ours("upstream_bad_head")
        said = said[end + 4:]
        a.status = int(m[2])
        if a.status >= 200:
            break
        if not said:
            return a.ours("upstream_failed" if ended else None)
    codings = values(fields, b"transfer-encoding")
    connection = listed(fields, b"connection")
    keep = b"close" not in connection and (m[1] == b"1" or b"keep-alive" in connection)
    soon = [v for v in listed(fields, b"keep-alive") if re.fullmatch(rb"timeout=[01]", v)]
    kind = (values(fields, b"content-type") or [b""])[0].split(b";")[0].strip(b" \t").lower()
    encoded = any(v and v.lower() != b"identity" for v in values(fields, b"content-encoding"))
    a.events = kind == b"text/event-stream" and not encoded
    a.watched = a.events and a.status < 400
    a.fields = crossing(fields, (b"content-length", b"x-request-id"))
    if a.status in (204, 304):
        a.framing = "none"
        if a.status == 204 and (codings or length):
            keep = False
        rest = said
    elif codings and (length is not None or [c.lower() for c in codings] != [b"chunked"] or m[1] == b"0"):
        a.fields = None
        return a.ours("upstream_bad_head")
    elif codings:
        a.framing = "chunked" if minor else "close"
        try:
            a.body, used = unchunk(said)
        except Bad as e:
            return a.broken(e.args[0], "upstream_bad_body")
        except Short as e:
            return a.broken(e.args[0], "upstream_cut")
        rest = said[used:]
    elif length is not None:
        a.framing, a.length = "length", length
        if len(said) < length:
            return a.broken(said, "upstream_cut")
        a.body, rest = said[:length], said[length:]
    else:
        a.framing, a.body, rest, keep = "chunked" if minor else "close", said, b"", False
        if a.watched and b"[DONE]" not in events_of(said)[0]:
            return a.broken(said, "upstream_cut")
    a.stray = bool(rest)
    a.reuse = keep and not ended and not rest and not soon
    return a


# --- a client's requests --------------------------------------------------------------------------

class Request:
    """status: of our own answer, None: it goes to a worker, with `line`, `fields`, `body`; keep: another may follow;
    expects: it waits for 100 Continue, minor: of its HTTP/1.x, to_head: its answer has no body; id: what it called itself."""
    status, keep, expects, minor, to_head, id = None, False, False, 1, False, None


def read_request(data, body_max):
    """The request at the start of data, and how many bytes it is (all of them, when nothing may follow)."""
    r = Request()
    try:
        return r, parse_request(r, data, body_max)
    except Bad as e:
        r.status, r.keep = e.args[0], False
        return r, len(data)


def parse_request(r, data, body_max):
    skip = 2 if data.startswith(b"\r\n") else 0
    end = data.find(b"\r\n\r\n", skip)
    if end < 0:
        raise Bad(400)          # only made so: the heads of the generator end, or are wrong before
    first, *rest = lines_of(data[skip:end])
    m = re.fullmatch(rb"(" + TOKEN + rb") ([^ ]+) (HTTP/([0-9])\.([0-9]))", first)
    if not m:
        raise Bad(400)
    if m[3] not in (b"HTTP/1.0", b"HTTP/1.1"):
        raise Bad(505)
    method, target, r.minor = m[1], m[2], int(m[5])
    if not TARGET.fullmatch(target):
        raise Bad(400)
    host = None
    if not target.startswith(b"/"):
        full = re.fullmatch(rb"https?://([^/?]+)(.*)", target, re.I)
        if not full or not HOST.fullmatch(full[1]):
            raise Bad(400)
        host, target = full[1], full[2]
        target = target if target.startswith(b"/") else b"/" + target
    if len(first) + 2 > 8192:
        raise Bad(414)
    if len(rest) > 200 or end + 4 > 65536 or any(len(line) + 2 > 32768 for line in rest):
        raise Bad(431)
    fields = fields_of(rest)
    hosts = values(fields, b"host")
    if len(hosts) > 1 or (not hosts and r.minor) or (hosts and not HOST.fullmatch(hosts[0])):
        raise Bad(400)
    length = length_of(fields)
    codings = values(fields, b"transfer-encoding")
    if codings and (length is not None or not r.minor):
        raise Bad(400)
    if codings and [c.lower() for c in codings] != [b"chunked"]:
        raise Bad(501)
    expect = values(fields, b"expect")
    if any(e.lower() != b"100-continue" for e in expect):
        raise Bad(417)
    connection = listed(fields, b"connection")
    r.keep = b"close" not in connection and (r.minor == 1 or b"keep-alive" in connection)
    r.to_head = method == b"HEAD"
    r.id = (values(fields, b"x-request-id") or [None])[0]
    path = target.split(b"?")[0]
    at = end + 4
    bodiless = not codings and not length
    gets = path == b"/v1/models" or path.startswith(b"/v1/models/")
    if (method == b"POST" and path in POSTS) or not (path in POSTS or gets):
        refused = None if path in POSTS else 404
    else:
        refused = 200 if gets and method in (b"GET", b"HEAD") else 405
    if refused is None and any(v and v.lower() != b"identity" for v in values(fields, b"content-encoding")):
        refused = 415
    if refused is None and length is not None and length > body_max:
        refused = 413
    if refused is not None:             # its body is not read: the connection ends
        r.status, r.keep = refused, r.keep and bodiless
        return at if bodiless else len(data)
    r.expects = bool(expect) and r.minor == 1 and (bool(codings) or length is not None)
    if codings:
        try:
            r.body, used = unchunk(data[at:])
        except Bad:
            raise Bad(400)
        if len(r.body) > body_max:
            raise Bad(413)
        at += used
    else:
        r.body = data[at:at + (length or 0)]
        at += length or 0
    r.line = b"%s %s HTTP/1.1" % (method, target)
    r.fields = crossing(fields, OURS)
    return at
