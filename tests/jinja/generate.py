#!/usr/bin/python3
"""Templates and contexts by chance, with what Jinja2 makes of them: generate.py SEED COUNT.

Lines for compare.c.  The environment is Hugging Face's (transformers' chat_template_utils).
What differs between Jinja2's own releases, what prints an address and what we refuse by intent
(integers beyond 64 bits, random, pprint …) is not generated, or left out when it turns up.
"""
import json, random, re, sys, warnings
from datetime import datetime, timezone

import jinja2, jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1796027400
warnings.simplefilter("ignore", SyntaxWarning)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.fromtimestamp(NOW, timezone.utc).replace(tzinfo=None).strftime(f)
    return env


WORDS = ["", "a", "B", "user", "system", " x ", "Hello World", "\n", "a\nb\r\nc", "é", "ß", "Straße",
         "日本語", "👩‍👩‍👧", "<b>&'\"", "1", "42", "-7", "3.5", "1e3", "a,b,,c", "a b  c", "\t tab",
         "ΑΣ", "ǆ", "ﬁ", "x\u2028y", "\u00a0nb\u00a0", "%s", "{}", "It's", 'say "hi"', "a\\b", "İ",
         "content", "role", "_x", "items", "0", "aaa", "abcabc", "Ünïcödé ẞ", "1_000", "0x1f", "inf"]


class Maker:
    def __init__(self, rng):
        self.r = rng
        self.vars = []

    def pick(self, *options):
        return self.r.choice(options)

    def value(self, depth=2):
        r = self.r.random()
        if depth == 0 or r < 0.55:
            return self.pick(None, True, False, 0, 1, -1, 2, 7, 10**15, 0.5, -2.5, 1.0, 1e16, 1e-5,
                             123456.789, *WORDS)
        if r < 0.75:
            return [self.value(depth - 1) for _ in range(self.r.randrange(4))]
        keys = self.r.sample(["role", "content", "a", "b", "items", "name", "é", "x y", "id", "1"],
                             self.r.randrange(5))
        return {k: self.value(depth - 1) for k in keys}

    def context(self):
        c = {"n": self.r.choice([0, 1, 2, 3, -4, 17]), "f": self.r.choice([0.0, 1.5, -0.25, 2e20]),
             "s": self.r.choice(WORDS), "t": self.r.choice(WORDS), "b": self.r.random() < 0.5,
             "none_": None, "xs": [self.value(1) for _ in range(self.r.randrange(5))],
             "words": [self.r.choice(WORDS) for _ in range(self.r.randrange(5))],
             "nums": [self.r.choice([1, 2, 3, 0, -1, 2.5, 1.0]) for _ in range(self.r.randrange(5))],
             "d": self.value_dict(), "v": self.value(),
             "messages": [{"role": self.pick("user", "system", "assistant", "tool"),
                           "content": self.pick("hi", "", "a\nb", None, [{"type": "text", "text": "é"}],
                                                self.r.choice(WORDS))}
                          for _ in range(self.r.randrange(4))]}
        for m in c["messages"]:
            if self.r.random() < 0.3:
                m["tool_calls"] = [{"function": {"name": "f", "arguments": self.value_dict()}}]
        return c

    def value_dict(self):
        keys = self.r.sample(["a", "b", "B", "c", "key", "items", "é", "z", "A"], self.r.randrange(6))
        return {k: self.value(1) for k in keys}

    def string(self):
        s = self.r.choice(WORDS)
        quote = self.pick("'", '"')
        out = s.replace("\\", "\\\\").replace(quote, "\\" + quote)
        if self.r.random() < 0.5:
            out = out.replace("\n", "\\n").replace("\t", "\\t")
        if self.r.random() < 0.05:
            out += self.pick("\\x41", "\\u00e9", "\\101", "\\q", "\\é", "\\\n")
        return quote + out + quote

    def name(self):
        return self.pick("n", "f", "s", "t", "b", "none_", "xs", "words", "nums", "d", "v", "messages",
                         "undefd", *(self.vars or ["s"]), *(self.vars or ["n"]))

    def lit(self):
        return self.pick("0", "1", "2", "-1", "3", "10", "1.5", "0.1", "1e3", "100_0", "0x1F", "none",
                         "true", "false", "None", "True", "[]", "{}", "()", self.string(), self.string(),
                         self.string())

    def expr(self, d=3):
        r = self.r.random()
        if d <= 0 or r < 0.12:
            return self.name() if self.r.random() < 0.6 else self.lit()
        e = lambda: self.expr(d - 1)
        return self.r.choice([
            self.lit, self.name, self.name,
            lambda: f"{e()} {self.pick('+', '+', '-', '*', '/', '//', '%', '~', '~')} {e()}",
            lambda: f"({e()} {self.pick('+', '~', '*', '**')} {self.pick('2', '3', e())})",
            lambda: f"{e()} {self.pick('==', '!=', '<', '>', '<=', '>=', 'in', 'not in')} {e()}",
            lambda: f"{e()} {self.pick('==', '<', '<=')} {e()} {self.pick('<', '!=', '>=')} {e()}",
            lambda: f"({e()} {self.pick('and', 'or')} {e()})",
            lambda: f"not {e()}",
            lambda: f"{self.pick('-', '+')}{self.name()}",
            lambda: f"({e()} if {e()} else {e()})",
            lambda: f"({e()} if {e()})",
            lambda: f"{self.atom(d)}.{self.pick('a', 'b', 'role', 'content', 'items', 'name', '0', '1', 'real', 'key')}",
            lambda: f"{self.atom(d)}[{self.pick('0', '1', '-1', '5', self.string(), e())}]",
            # of a name: slices of literals Jinja2 folds when it compiles, with other errors
            lambda: f"{self.name()}[{self.pick('', '1', '-2', '0')}:{self.pick('', '2', '-1', '9')}{self.pick('', '', ':2', ':-1')}]",
            lambda: f"[{', '.join(e() for _ in range(self.r.randrange(4)))}]",
            lambda: f"({e()}, {e()})",
            lambda: "{" + ", ".join(f"{self.pick(self.string(), self.string(), '1', 'n', 's')}: {e()}" for _ in range(self.r.randrange(3))) + "}",
            lambda: self.filter(d), lambda: self.filter(d), lambda: self.filter(d), lambda: self.filter(d),
            lambda: self.test(d), lambda: self.test(d),
            lambda: self.method(d), lambda: self.method(d), lambda: self.method(d),
            lambda: self.function(d),
        ])()

    def atom(self, d):
        return self.pick(self.name(), self.name(), f"({self.expr(d - 1)})", self.string())

    def seq(self, d):
        return self.pick("xs", "words", "nums", "messages", "d", "s", self.name(), f"({self.expr(d - 1)})",
                         "d.items()", "d.values()", "range(n)", "range(4)", "words[::-1]", "messages[1:]",
                         "xs|reverse", "d|dictsort", "nums|sort", "words|select", "nums|map('string')")

    def filter(self, d):
        e = lambda: self.expr(d - 1)
        a = self.pick(self.name(), self.atom(d), self.seq(d))
        st = self.string
        f = self.r.choice([
            "upper", "lower", "title", "capitalize", "trim", "length", "string", "list", "first", "last",
            "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))",
            "tojson(sort_keys=true)", "tojson(indent=n)", "int", "float", "abs", "safe", "escape", "e",
            "forceescape", "items", "items|list", "join", "sort", "sort|list", "unique|list", "reverse|list",
            "sum", "min", "max", "dictsort", "round", "wordcount", "urlencode", "count", "string|length",
            "batch(2)|list", "slice(2)|list", "select|list", "reject|list", "indent", "center", "xmlattr",
            f"default({st()})", f"default({st()}, true)", f"d({e()})", f"join({st()})", f"int({self.pick('7', '0')})",
            "int(0, 16)", f"trim({st()})", f"replace({st()}, {st()})", f"replace({st()}, {st()}, 1)",
            f"indent({self.pick('2', 'n', st())}, {self.pick('true', 'first=true', 'blank=true')})",
            "sort(reverse=true)", "sort(case_sensitive=true)", "sort(attribute='role')",
            "sort(attribute='role,content')", "dictsort(true)", "dictsort(false, 'value')",
            "dictsort(reverse=true)", "map('upper')|list", "map(attribute='role')|list",
            "map(attribute='content', default='z')|list", "map('length')|list", "map('default', 'q')|join",
            "map(attribute='tool_calls.0.function.name')|join(',')", "map('int')|sum", "map('tojson')|join('|')",
            "selectattr('role', 'equalto', 'user')|list", "selectattr('tool_calls', 'defined')|list|length",
            "selectattr('content')|list", "rejectattr('role', 'in', ['user'])|list", "rejectattr('content', 'none')|list",
            "select('string')|list", "select('number')|list", "reject('none')|list", "select('equalto', s)|list",
            "select('>', 1)|list", "reject('odd')|list", "groupby('role')", "groupby('role')|map('first')|list",
            "round(1)", "round(1, 'ceil')", "round(0, 'floor')", "format(n)", f"format({e()})", "truncate(5)",
            "truncate(5, true, '')", "max(attribute='role')", "min(case_sensitive=true)", "filesizeformat",
            "filesizeformat(true)", "first|string", "attr('role')", "attr('upper')|string|length > 0",
            "batch(3, 'x')|list", "slice(3, 'x')|list", "unique(attribute='role')|list", "sum(start=1.5)",
        ])
        return f"{a}|{f}"

    def test(self, d):
        t = self.r.choice(["defined", "undefined", "none", "string", "mapping", "iterable", "sequence",
                           "number", "integer", "float", "boolean", "true", "false", "odd", "even", "lower",
                           "upper", "callable", "escaped", "divisibleby(2)", "eq(1)", "equalto s", "ne 0",
                           "sameas none", "in xs", "in words", "gt 1", "lt(2)", "ge 1", "le 1", "filter", "test",
                           "divisibleby 3", "== n", ">= 1"])
        return f"{self.atom(d)} is {self.pick('', '', 'not ')}{t}"

    def method(self, d):
        st = self.string
        m = self.r.choice([
            "upper()", "lower()", "title()", "capitalize()", "strip()", "lstrip()", "rstrip()", f"strip({st()})",
            f"lstrip({st()})", f"rstrip({st()})", "split()", f"split({st()})", f"split({st()}, 1)", "split(None, 1)",
            "rsplit(None, 1)", f"rsplit({st()}, 1)", "splitlines()", "splitlines(true)", f"startswith({st()})",
            f"endswith({st()})", "startswith(('a', 'B'))", f"startswith({st()}, 1)", f"endswith({st()}, 0, -1)",
            f"replace({st()}, {st()})", f"replace({st()}, {st()}, 1)", f"find({st()})", f"rfind({st()})",
            f"index({st()})", f"count({st()})", f"count({st()}, 1)", f"find({st()}, 1, 4)", f"partition({st()})",
            f"rpartition({st()})", "zfill(6)", "center(9)", "center(8, '*')", "ljust(7)", "rjust(7, '.')",
            "isdigit()", "isalpha()", "isalnum()", "isspace()", "isupper()", "islower()", "istitle()", "isnumeric()",
            "isdecimal()", "isidentifier()", "isascii()", "isprintable()", "swapcase()", "casefold()",
            "expandtabs()", "expandtabs(4)", "join(words)", "join(xs)", "removeprefix('a')", "removesuffix('c')",
            "format(n, s, x=1)", "format(*xs)", "get('a')", "get('zz', 1)", "get(s)", "items()", "keys()",
            "values()", "items()|list", "keys()|list", "values()|list", "items()|length", "copy()", "count(1)",
            "index(1)", "append(1)", "update({})", "setdefault('a', 1)", "is_integer()", "bit_length()",
        ])
        return f"{self.atom(d)}.{m}"

    def function(self, d):
        e = lambda: self.expr(d - 1)
        return self.r.choice([
            lambda: f"range({self.pick('3', 'n', '1, 5', '5, 0, -2', '0')})|list",
            lambda: f"dict(a={e()}, b=1)", lambda: f"dict({e()})", lambda: f"dict(d, zz={e()})",
            lambda: f"namespace(a={e()}).a", lambda: f"strftime_now({self.pick('%Y-%m-%d', '%d %B %Y %H:%M:%S %j', '%b %A %y %p %I')!r})",
            lambda: f"'{self.pick('%s', '%d', '%5s|', '%-5s|', '%05d', '%x', '%.2f', '%r', '%e', '%g', '%+d', '%c', '%%', '%i %s')}' % {self.pick(e(), '(n, s)', 'n', 'f', '(s,)')}",
            lambda: f"'{self.pick('{}', '{0}-{1}', '{:>8}', '{:<6}|', '{:^7}', '{:05d}', '{:.2f}', '{x}', '{!r}', '{0[a]}', '{0.a}', '{:,}', '{:x}', '{:+.1e}', '{:%}', '{{}}', '{:_}', '{:*^9}', '{:g}', '{:10.3}')}'.format({self.pick(e(), 'n', 'f', 's', 'd', 'n, s', 'x=s')})",
            lambda: "raise_exception('no')",
            lambda: f"cycler({e()}, 2).next()", lambda: "joiner('|')()",
        ])()

    def ws(self, open_, close, inner):
        a = self.pick("", "", "", "-", "+") if open_ == "{%" else self.pick("", "", "", "-")
        b = self.pick("", "", "", "-", "+") if close == "%}" else self.pick("", "", "", "-")
        return f"{open_}{a} {inner} {b}{close}"

    def tag(self, inner):
        return self.ws("{%", "%}", inner)

    def text(self):
        return self.pick("x", "\n", "  ", " \n ", "text\n", "\n\n", "  y  ", "{# c #}", "{#- c -#}", "é", "\t",
                         "{% raw %}{{ x }}{% endraw %}", "} {", "  {# c #}\n")

    def new_var(self):
        v = self.pick("x", "y", "z", "w", "s", "n", "content")
        return v

    def body(self, d, loop=False):
        saved = list(self.vars)
        out = "".join(self.stmt(d - 1, loop) for _ in range(self.r.randrange(1, 4)))
        self.vars = saved
        return out

    def stmt(self, d=3, loop=False):
        r = self.r.random()
        out = lambda: self.ws("{{", "}}", self.expr())
        if d <= 0 or r < 0.3:
            return out() if self.r.random() < 0.7 else self.text()
        if r < 0.38:
            return self.text()
        if r < 0.5:
            v, e = self.new_var(), self.expr()
            self.vars.append(v)
            return self.tag(f"set {v} = {e}")
        if r < 0.53:
            e = self.expr(2)
            self.vars += ["x", "y"]
            return self.tag(f"set x, y = {self.pick(e, e + ', ' + self.expr(2))}")
        if r < 0.57:
            v, b = self.new_var(), self.body(d)
            self.vars.append(v)
            return self.tag(f"set {v}{self.pick('', '', '|upper', '|trim|length')}") + b + self.tag("endset")
        if r < 0.68:
            s = self.tag(f"if {self.expr()}") + self.body(d, loop)
            while self.r.random() < 0.3:
                s += self.tag(f"elif {self.expr()}") + self.body(d, loop)
            if self.r.random() < 0.5:
                s += self.tag("else") + self.body(d, loop)
            # what was set inside may be looked at behind
            self.vars.append(self.new_var())
            return s + self.tag("endif")
        if r < 0.83:
            seq = self.seq(2)
            saved = list(self.vars)
            if self.r.random() < 0.2:
                target, seq = "k, w", self.pick("d.items()", "d|items", "d|dictsort", "groups", seq)
                self.vars += ["k", "w"]
            else:
                target = self.pick("x", "m", "y")
                self.vars += [target, target]
            cond = f" if {self.expr(2)}" if self.r.random() < 0.15 else ""
            self.vars += [self.pick("loop.index", "loop.index0", "loop.first", "loop.last", "loop.length",
                                    "loop.revindex", "loop.previtem", "loop.nextitem", "loop.depth",
                                    "loop.cycle('a', 'b')", "loop.changed(x)", "loop.revindex0")]
            inner = self.body(d, True)
            if self.r.random() < 0.15:
                inner += self.tag(f"if {self.expr(1)}") + self.tag(self.pick("break", "continue")) + self.tag("endif") + self.body(d, True)
            self.vars = saved
            els = self.tag("else") + self.body(d, loop) if self.r.random() < 0.15 else ""
            return self.tag(f"for {target} in {seq}{cond}") + inner + els + self.tag("endfor")
        if r < 0.9:
            return self.macro(d)
        if r < 0.94:
            name = self.pick("ns", "ns2")
            self.vars.append(name + ".a")
            s = self.tag(f"set {name} = namespace(a={self.expr(1)}, b=0)")
            body = self.pick(self.tag(f"set {name}.a = {self.expr(2)}"),
                             self.tag(f"for x in {self.seq(1)}") + self.tag(f"set {name}.a = {self.pick('x', name + '.a', 'loop.index', self.expr(1))}") + self.tag("endfor"),
                             self.body(d, loop))
            return s + body
        if r < 0.96:
            return self.tag(f"filter {self.pick('upper', 'trim', 'indent(2)', 'replace(s, t)', 'title')}") + self.body(d) + self.tag("endfilter")
        if r < 0.98:
            e = self.expr(2)
            saved = list(self.vars)
            self.vars += ["x"]
            s = self.tag(f"with x = {e}") + self.body(d, loop) + self.tag("endwith")
            self.vars = saved
            return s
        return self.tag("generation") + self.body(d) + self.tag("endgeneration")

    def macro(self, d):
        saved = list(self.vars)
        params = self.pick("", "p", "p, q=1", "p=s, q=none", "p, q=p")
        self.vars += ["p", "q"][: params.count(",") + bool(params)]
        if self.r.random() < 0.15:
            self.vars += [self.pick("varargs", "kwargs", "varargs|list", "kwargs|length")]
        call = self.r.random() < 0.2
        inner = self.body(d) + ("{{ caller(" + self.pick("", "1") + ") }}" if call else "")
        self.vars = saved
        name = self.pick("mac", "mic")
        s = self.tag(f"macro {name}({params})") + inner + self.tag("endmacro")
        args = self.pick("", "s", self.expr(2), f"{self.expr(1)}, {self.expr(1)}", f"q={self.expr(1)}", "p=1, q=2",
                         "1, 2, 3", "*nums", "**d", "zz=1")
        if call:
            return s + self.tag(f"call{self.pick('', '(u)', '(u=3)')} {name}({args})") + self.body(d) + self.tag("endcall")
        return s + f"{{{{ {name}({args}) }}}}" + (f"{{{{ {name}({self.expr(1)}) }}}}" if self.r.random() < 0.3 else "")

    def template(self):
        self.vars = []
        return "".join(self.stmt() for _ in range(self.r.randrange(1, 5)))


ADDRESS = re.compile(r"0x[0-9a-f]{8,}|<generator|<function|<class|<bound|<list_reverse|<built-in|<dict_|<reversed|<str_it|<jinja2|object at|undefined\.<locals>")
# errors that only Python has, or limits of ours that are meant
BIG = re.compile(r"(?<![\d.])\d{19,}|e\+\d\d\d|integer string conversion|MemoryError|recursion")


def usable(row):
    if "rendered" in row:
        return not ADDRESS.search(row["rendered"]) and not BIG.search(row["rendered"]) and len(row["rendered"]) < 20000
    return True


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    env = environment()
    made = 0
    i = 0
    while made < count:
        maker = Maker(random.Random(seed * 1000003 + i))
        i += 1
        source, context = maker.template(), maker.context()
        row = {"name": f"seed {seed} number {i}", "template": source, "context": context, "now": NOW}
        try:
            row["rendered"] = env.from_string(source).render(**json.loads(json.dumps(context)))
        except RecursionError:
            continue
        except Exception as e:
            row["error"] = f"{type(e).__name__}: {e}"
            # a share of failures is enough: most stop at their first expression
            if maker.r.random() < 0.9:
                continue
        if usable(row):
            print(json.dumps(row))
            made += 1


main()
