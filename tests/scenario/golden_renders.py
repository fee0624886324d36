#!/usr/bin/python3
"""Each golden render, errors included, comes out of `pointsctl render --context --jsonl` letter by letter."""
import json
import os
import pathlib
import subprocess
import sys

UNPACKED = os.environ.get("PM_TOKENIZERS_UNPACKED", "")
PLACE = pathlib.Path(UNPACKED)
NOW = "2026-11-30T08:30:00"


def contexts(cases):
    for case in cases:
        more = {"continue_final_message": True} if case["continue_final_message"] else {}
        yield json.dumps(case["context"] | more) + "\n"


def wrong(name, cases):
    """What of one template's cases differs."""
    ran = subprocess.run(
        [os.environ["PM_BIN"] + "/pointsctl", "render", "--template", PLACE / "templates" / (name + ".jinja"),
         "--context", "--jsonl", "--now", NOW], input="".join(contexts(cases)), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(lines) == len(cases), (name, len(lines), len(cases))
    for case, line in zip(cases, lines):
        if "error" in case and "error" not in line or "rendered" in case and line.get("rendered") != case["rendered"]:
            yield case["case"]


def main():
    if not UNPACKED or not list(PLACE.glob("golden-renders/*.json")):
        print("skipped: no tokenizers beside the tree (tests/README.md)")
        sys.exit(77)
    total, bad = 0, []
    for file in sorted(PLACE.glob("golden-renders/*.json")):
        cases = json.loads(file.read_text())
        total += len(cases)
        bad += [f"{file.stem}: {case}" for case in wrong(file.stem, cases)]
    print(total, "renders,", len(bad), "wrong", *bad, sep="\n" if bad else " ")
    sys.exit(bool(bad))


main()
