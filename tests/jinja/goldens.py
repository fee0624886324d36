#!/usr/bin/python3
"""The golden renders of the delivered templates, as lines for compare: goldens.py FOLDER."""
import calendar, json, lzma, pathlib, sys

folder = pathlib.Path(sys.argv[1])
now = calendar.timegm((2026, 11, 30, 8, 30, 0))
for template in sorted((folder / "templates").glob("*.jinja")):
    source = template.read_text()
    cases = json.loads(lzma.open(folder / "golden-renders" / (template.stem + ".json.xz")).read())
    for i, case in enumerate(cases):
        row = {"name": f"{template.stem} {case['case']}", "template": source if i == 0 else None,
               "context": case["context"], "now": now, "continue": case["continue_final_message"]}
        for key in ("rendered", "error"):
            if key in case:
                row[key] = case[key]
        print(json.dumps(row))
