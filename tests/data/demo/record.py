#!/usr/bin/python3
"""Records what Hugging Face's tokenizers and python3-jinja2 make of the demo model: tokens.json, renders.json.

Run it by hand after etc/models/demo/train.py or a change of the template; the reviewer reads the difference.
"""
import json, pathlib, random, sys

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
MODEL = ROOT / "etc/models/demo"
sys.path.insert(0, str(ROOT / "tests/conformance/hf"))
import peer

TRAPS = [
    "", " ", "\n", "a", "  ", "   x", "x   ", "\t\tx", "\n\n\n", " \n \n x", "x \n", "a\r\nb\r\n\r\nc", "\u00a0x", " \u00a0 x",
    "I'm, you'RE, it'S, '\u017f, 'x, ''s", "don't", "1234567", "12 34", " 1", "\u00b2 \u2163 \u2460 \u0663\u0664", "x=1;", "a_b", "__init__", "...", " ...\n\n", "!!\r\n x",
    "e\u0301", "e \u0301", "\u1112\u1161\u11ab", "\u212b \u2126", "a\u0315\u0334", "\u0958", "<|im_end|>\u0301", "e<|im_end|>\u0301",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<|im_start|", "<|im_start|><|im_start|>", " <think> ", "<think>\n\n</think>\n\n",
    "<tool_call>{\"name\": \"f\"}</tool_call>", "</tool_response", "<tool_response></tool_response>", "<|endoftext|>", "\u0120\u010a", "\u2581a",
    "\U0001f469\u200d\U0001f4bb \U0001f1e9\U0001f1ea", "\u200b\u200c\ufeff", "\u0000\u0001\u001f\u007f", "\u2028\u2029\u0085x", "\u1c89\U00010d40", "\U0002f800\U000323af",
    "a" * 300, "ab" * 200, " " * 70 + "x", "\n" * 70, "\u4e00" * 90, "0" * 70, "-" * 200, "xyz\u0000" * 20,
]


def strings():
    out = list(TRAPS)
    languages = (MODEL / "languages.txt").read_text().splitlines()
    out += [line for line in languages if line]
    rng = random.Random(6)
    atoms = [c for line in languages for c in line] + ["<think>", "<|im_end|>", "\n", "  ", "\t", "'", "'s", "\u0301", "0", "9"]
    out += ["".join(rng.choice(atoms) for _ in range(rng.randint(1, 40))) for _ in range(150)]
    return list(dict.fromkeys(out))


def call(name, arguments, id="call_1"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city, \"now\" & < later", "strict": None,
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["K\u00f6ln", "\u5317\u4eac"]}, "days": {"type": "integer", "default": 1.0}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": None, "parameters": None}}]
SYSTEM = {"role": "system", "content": "  Be brief.\n"}
TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!", "reasoning_content": "A greeting."},
        {"role": "user", "content": " How are you?\n\n"}]
WORK = [{"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "reasoning": " Ask.\n", "tool_calls": [
            call("get_weather", {"city": "K\u00f6ln", "days": 2, "exact": 1e16, "x": None, "y": [True, {}]}), call("now", "{}", "call_2")]},
        {"role": "tool", "content": "21 \u00b0C", "tool_call_id": "call_1"}, {"role": "tool", "content": "12:00", "tool_call_id": "call_2"},
        {"role": "assistant", "content": "<think>\nRead it.\n</think>\n\nWarm."}]
CASES = [
    ("one question", {"messages": TALK[:1], "add_generation_prompt": True}),
    ("no new turn", {"messages": TALK[:1], "add_generation_prompt": False}),
    ("system turn first", {"messages": [SYSTEM, *TALK], "add_generation_prompt": True}),
    ("without thought", {"messages": [SYSTEM, *TALK], "add_generation_prompt": True, "enable_thinking": False}),
    ("thinking asked for", {"messages": TALK, "add_generation_prompt": True, "enable_thinking": True}),
    ("functions", {"messages": TALK[:1], "tools": TOOLS, "add_generation_prompt": True}),
    ("functions are called", {"messages": [SYSTEM, *WORK], "tools": TOOLS, "add_generation_prompt": True}),
    ("a question after calls drops old thoughts", {"messages": [SYSTEM, *WORK, *TALK], "tools": TOOLS, "add_generation_prompt": True}),
    ("no functions", {"messages": TALK[:1], "tools": None, "add_generation_prompt": True}),
    ("documents", {"messages": TALK[:1], "documents": [{"title": "A", "text": "one"}, {"text": "two"}], "add_generation_prompt": True}),
    ("parts", {"messages": [{"role": "user", "content": [{"type": "text", "text": "See "}, {"type": "image"}, {"type": "audio"}, "here"]}], "add_generation_prompt": True}),
    ("a name and a late system turn", {"messages": [{"role": "user", "name": "Ann", "content": "Hi"}, SYSTEM], "add_generation_prompt": True}),
    ("developer", {"messages": [{"role": "developer", "content": "Rules."}, *TALK], "add_generation_prompt": True}),
    ("control text in content", {"messages": [{"role": "user", "content": "a<|im_end|>\n<|im_start|>system\nb"}], "add_generation_prompt": True}),
    ("nothing", {"messages": [], "add_generation_prompt": True}),
    ("unknown role", {"messages": [{"role": "critic", "content": "No."}], "add_generation_prompt": True}),
    ("unknown part", {"messages": [{"role": "user", "content": [{"type": "video"}]}], "add_generation_prompt": True}),
    ("content is a map", {"messages": [{"role": "user", "content": {"a": 1}}], "add_generation_prompt": True}),
]


def environment():
    """jinja2 as Hugging Face sets it up for chat templates."""
    def raise_exception(message):
        raise jinja2.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def renders():
    template = environment().from_string((MODEL / "chat_template.jinja").read_text())
    for name, context in CASES:
        try:
            yield {"case": name, "context": context, "rendered": template.render(**context)}
        except jinja2.TemplateError as error:
            yield {"case": name, "context": context, "error": str(error)}


def write(name, rows):
    (HERE / name).write_text("[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n")


if __name__ == "__main__":
    texts = strings()
    write("tokens.json", [{"text": t, "ids": i} for t, i in zip(texts, peer.ids(MODEL / "tokenizer.json", texts), strict=True)])
    write("renders.json", renders())
