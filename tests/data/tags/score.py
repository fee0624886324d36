#!/usr/bin/python3
"""Judges predictions against set.jsonl: score.py PREDICTIONS [--misses] [--precision P] [--recall R] [--set FILE]

PREDICTIONS ("-": standard input) has one JSON object a line, {"id": ..., "tags": [...]}, one for every case, in any
order.  Printed are precision and recall per tag over all cases and over those written by hand, and how many hard
negatives got no tag.  --misses names each wrong case.  Ends with 1 where a tag, or all together, is below P or R;
with 2 where the predictions are not for this set."""
import argparse, json, pathlib, sys

TAGS = ("email", "phone", "iban", "card", "ssn", "secret")


def fail(text):
    print(f"score.py: {text}", file=sys.stderr)
    sys.exit(2)


def lines_of(file, name):
    for n, line in enumerate(file, 1):
        if line.strip():
            try:
                o = json.loads(line)
                yield o["id"], o
            except (ValueError, KeyError, TypeError):
                fail(f"{name}:{n}: not an object with an id")


def read_predictions(name, cases):
    said = {}
    with sys.stdin if name == "-" else open(name, encoding="utf-8") as file:
        for ident, o in lines_of(file, name):
            tags = o.get("tags")
            if ident not in cases:
                fail(f"{name}: {ident} is no case of the set")
            if ident in said:
                fail(f"{name}: {ident} is there twice")
            if not isinstance(tags, list) or not set(tags) <= set(TAGS):
                fail(f"{name}: {ident}: tags must be a list of {', '.join(TAGS)}")
            said[ident] = set(tags)
    missing = [i for i in cases if i not in said]
    if missing:
        fail(f"{name}: nothing is said of {len(missing)} cases, first {missing[0]}")
    return said


def share(part, whole):
    return part / whole if whole else 1.0


def table(title, cases, said):
    """Prints one table; returns the least precision and the least recall in it."""
    print(f"{title}: {len(cases)} cases")
    print(f"{'tag':8} {'there':>6} {'right':>6} {'wrong':>6} {'missed':>6} {'precision':>10} {'recall':>8}")
    sums, least_p, least_r = [0, 0, 0], 1.0, 1.0
    for tag in (*TAGS, "all"):
        if tag == "all":
            right, wrong, missed = sums
        else:
            right = sum(tag in c["tags"] and tag in said[i] for i, c in cases.items())
            wrong = sum(tag not in c["tags"] and tag in said[i] for i, c in cases.items())
            missed = sum(tag in c["tags"] and tag not in said[i] for i, c in cases.items())
            sums = [a + b for a, b in zip(sums, (right, wrong, missed))]
        p, r = share(right, right + wrong), share(right, right + missed)
        least_p, least_r = min(least_p, p), min(least_r, r)
        print(f"{tag:8} {right + missed:6} {right:6} {wrong:6} {missed:6} {p:10.4f} {r:8.4f}")
    return least_p, least_r


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("predictions")
    a.add_argument("--set", default=pathlib.Path(__file__).parent / "set.jsonl")
    a.add_argument("--misses", action="store_true")
    a.add_argument("--precision", type=float, default=0.0)
    a.add_argument("--recall", type=float, default=0.0)
    a = a.parse_args()
    with open(a.set, encoding="utf-8") as file:
        cases = dict(lines_of(file, a.set))
    said = read_predictions(a.predictions, cases)
    if a.misses:
        for i, c in cases.items():
            for tag in TAGS:
                if (tag in c["tags"]) != (tag in said[i]):
                    shown = json.dumps(c.get("text", c.get("body")), ensure_ascii=False)
                    print(f"{i}: {tag} {'missed' if tag in c['tags'] else 'wrong'}: {c['why']}: {shown[:120]}")
    least = table("all", cases, said)
    print()
    table("written by hand", {i: c for i, c in cases.items() if not i.startswith("made-")}, said)
    hard = [i for i, c in cases.items() if c.get("hard")]
    clean = sum(not said[i] for i in hard)
    print(f"\nhard negatives: {len(hard)} ({share(len(hard), len(cases)):.1%} of all), without any tag {clean} ({share(clean, len(hard)):.2%})")
    for tag in TAGS:
        print(f"  taken for {tag}: {sum(tag in said[i] for i in hard)}")
    sys.exit(least[0] < a.precision or least[1] < a.recall)


main()
