#!/usr/bin/python3
"""Writes py_class_tables.c (argument `classes`) or py_case_tables.c (`cases`) as this Python has them."""
import sys, unicodedata

LAST = 0x110000
chars = [chr(c) for c in range(LAST)]


def cased(c):
    return c.islower() or c.isupper() or c.istitle()


def ignorable(c):
    # As CPython decides what a final sigma looks across: Mn, Me, Cf, Lm, Sk and some points.
    return unicodedata.category(c) in ("Mn", "Me", "Cf", "Lm", "Sk") or c in "'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a"


def bits(c):
    return (c.isalpha() | c.isdecimal() << 1 | c.isdigit() << 2 | c.isnumeric() << 3 |
            c.isspace() << 4 | c.islower() << 5 | c.isupper() << 6 | c.isprintable() << 7 |
            cased(c) << 8 | ignorable(c) << 9 | (c.istitle() and not c.isupper()) << 10 |
            c.isidentifier() << 11 | ("a" + c).isidentifier() << 12)


def classes():
    rows, last = [], None
    for cp, c in enumerate(chars):
        b = bits(c)
        if b != last:
            rows.append((cp, b))
            last = b
    return rows


def shifts(fn):
    plain, special = [], []
    for cp, c in enumerate(chars):
        to = fn(c)
        if len(to) == 1:
            if to != c:
                plain.append((cp, ord(to) - cp))
        else:
            special.append((cp, [ord(x) for x in to]))
    rows = []
    for cp, delta in plain:
        if rows:
            first, last, step, d = rows[-1]
            if d == delta and (step == 0 and cp - last in (1, 2) or cp - last == step):
                rows[-1] = (first, cp, cp - last, d)
                continue
        rows.append((cp, cp, 0, delta))
    return [(f, l, s or 1, d) for f, l, s, d in rows], special


out = ["/* Made by make_py_unicode.py (Unicode %s): do not edit. */" % unicodedata.unidata_version,
       '#include "actors/common/prompt/py_unicode.h"', ""]


def table(kind, name, rows, fmt, count):
    out.append(f"const struct {kind} {name}[] = {{")
    line = "\t"
    for row in rows:
        item = fmt(row) + ","
        if len(line.expandtabs(8)) + len(item) > 98:
            out.append(line.rstrip())
            line = "\t"
        line += item + " "
    out.append(line.rstrip())
    out.append("};")
    out.append(f"const uint32_t {count} = {len(rows)};")
    out.append("")


if sys.argv[1] == "classes":
    table("py_class", "py_class_table", classes(), lambda r: "{%d, %d}" % r, "py_class_rows")
for name, fn in (("upper", str.upper), ("lower", str.lower), ("title", str.title), ("fold", str.casefold)):
    if sys.argv[1] != "cases":
        break
    rows, special = shifts(fn)
    table("py_shift", f"py_{name}_table", rows, lambda r: "{%d, %d, %d, %d}" % r, f"py_{name}_rows")
    table("py_special", f"py_{name}_special", special or [(0, [0])],
          lambda r: "{%d, {%s}}" % (r[0], ", ".join(map(str, r[1]))), f"py_{name}_specials")
sys.stdout.write("\n".join(out).rstrip() + "\n")
