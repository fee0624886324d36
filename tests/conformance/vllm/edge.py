"""Requests at the edges of what vLLM takes: one {"path", "body"} a line, for render.py.  Standard library only."""
import json

MODEL = "tiny"
USER = {"role": "user", "content": "hi"}
CALL = {"type": "function", "id": "c1"}


def user(content, **more):
    return {"role": "user", "content": content, **more}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def called(function, **more):
    return assistant(None, tool_calls=[{**CALL, "function": function, **more}])


def text(t):
    return {"type": "text", "text": t}


def tool(**more):
    return {"type": "function", "function": {"name": "f", **more}}


CONTENTS = [
    None, 5, "", [], ["a", "b"], [text("a"), "b"], text("x"), [{"type": "input_text", "text": "a"}],
    [{"type": "output_text", "text": "a"}], [{"text": "a"}], [text(None)], [text(5)], [{"type": "text"}],
    [{"type": "foo", "text": "a"}], [{"type": "thinking", "thinking": "t"}], [{"type": "thinking", "thinking": None}],
    [{"type": "refusal", "refusal": None}, "x"], [{"type": "refusal", "refusal": "r"}],
    [{"type": "tool_reference", "name": "n"}],
    [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}], [["a"]], [None],
    "a\0b", "\U0001f682", "\ufeffbom", [{**text("a"), "cache_control": {"type": "ephemeral"}}, text("b")],
]
# Alone they are refused where the role is one of OpenAI's and nothing else says that the message is vLLM's own kind.
PARTS = ["b", {"type": "input_text", "text": "b"}, text(None), {"type": "refusal", "refusal": "r"},
         {"type": "thinking", "thinking": "t"}, {"text": "b"}, {"type": "tool_reference", "name": "n"}, {"type": "foo"}, 5, {}]
ROLES = ["user", "system", "developer", "assistant", "tool", "foo"]
BILLING = "x-anthropic-billing-header: a"
SYSTEMS = [BILLING + "\nb", BILLING, [text(BILLING + "\nb"), text("c")], [BILLING], [text("p"), BILLING + "\nq"], ""]
DEVELOPER = {"role": "developer", "content": "dev"}
DEVELOPERS = [
    [DEVELOPER, USER], [{"role": "system", "content": "s"}, DEVELOPER, USER], [USER, DEVELOPER],
    [DEVELOPER, USER, DEVELOPER], [DEVELOPER, {"role": "system", "content": ""}, USER],
    [{"role": "developer", "content": [text("p"), text("q")]}, DEVELOPER, USER],
    [{**DEVELOPER, "tools": [tool()]}, USER], [USER, {"role": "system", "content": "late"}, USER],
]
ARGUMENTS = [
    {"a": 1}, None, "", "null", "5", '{"a":NaN,"b":Infinity,"c":-Infinity}',
    '{"a":1e400,"b":1e-400,"c":0.1,"d":1E5,"e":100000000000000000000000.0,"f":-0,"g":-0.0,"h":1.0}',
    '{"a":1,"a":2,"b":"\\ud800"}', '{"a":1,"b":0,"a":2}', "{'a':1}", ' {"a" : [ ] , "b":{}}\n', '{"a":"\t"}', "\ufeff{}",
    '{"k":"\u00e9\\u00e9\\/\\u2028\\u007f\\u001f<>&\'"}', "not JSON", "[1]", '{"n":123456789012345678901234567890}',
]
RESULTS = ["a", [text("a"), text("b")], [], [{"type": "tool_reference", "name": "n"}],
           [text("a"), {"type": "tool_reference", "name": "n"}], None]
REASONINGS = [{"reasoning": "r"}, {"reasoning_content": "r"}, {"reasoning": "a", "reasoning_content": "b"},
              {"reasoning": None, "reasoning_content": "b"}, {"reasoning": ""}, {"reasoning": 5}, {"reasoning": ["a"]}]
TOOLS = [
    [], None, [tool()], [tool(description=None, parameters=None)],
    [tool(parameters={"type": "object", "$defs": {"a": 1.0}, "z": [1e5, True, None]})], [tool(parameters=[])],
    [tool(parameters="x")], [tool(strict=True)], [tool(strict="true")], [tool(strict=None)], [{"function": {"name": "f"}}],
    [{"type": "custom", "custom": {"name": "f"}}], [{"type": "function", "name": "f"}],
    [{**tool(), "defer_loading": True}], [tool(defer_loading=False)], [tool(description="\u00e9\u2028\u0001")], ["x"],
    {"a": 1}, [tool(), tool()], [{"x": 1, **tool(y=2, parameters={}, description="d")}],
]
FLAGS = [
    {"add_generation_prompt": False}, {"add_generation_prompt": None}, {"add_generation_prompt": "no"},
    {"add_generation_prompt": 0}, {"chat_template_kwargs": {"add_generation_prompt": False}},
    {"continue_final_message": True}, {"add_special_tokens": True}, {"chat_template": "x"},
    {"chat_template_kwargs": {"chat_template": "x"}}, {"chat_template_kwargs": {"chat_template": None}},
    {"chat_template_kwargs": {"tools": [tool()]}}, {"chat_template_kwargs": {"messages": [user("evil")]}},
    {"chat_template_kwargs": {"enable_thinking": False}}, {"chat_template_kwargs": {"enable_thinking": None}},
    {"chat_template_kwargs": {"enable_thinking": "auto"}}, {"chat_template_kwargs": {"enable_thinking": 0}},
    {"reasoning_effort": "none"}, {"reasoning_effort": "low"}, {"reasoning_effort": "bad"},
    {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
    {"documents": [{"title": "a", "text": "b"}]}, {"documents": "x"}, {"documents": []}, {"chat_template_kwargs": []},
    {"chat_template_kwargs": {"bos_token": "B"}}, {"truncate_prompt_tokens": 3},
    {"truncate_prompt_tokens": 3, "truncation_side": "right"}, {"truncate_prompt_tokens": 3, "truncation_side": "left"},
    {"truncate_prompt_tokens": -1}, {"truncate_prompt_tokens": 4097}, {"truncate_prompt_tokens": "3"},
    {"truncate_prompt_tokens": 3.0}, {"truncate_prompt_tokens": 3.5}, {"truncation_side": "left"},
    {"max_tokens": 5000}, {"max_tokens": 4096}, {"max_completion_tokens": 5000}, {"n": 2}, {"echo": True},
    {"cache_salt": ""}, {"cache_salt": "x"}, {"cache_salt": 5}, {"cache_salt": "y" * 129}, {"cache_salt": "a/b"},
    {"kv_transfer_params": {"prompt_token_ids": [1, 2, 3]}}, {"kv_transfer_params": {"prompt_token_ids": []}},
    {"kv_transfer_params": {"prompt_token_ids": None}}, {"stream": "x"}, {"unknown": 1},
    {"cache_salt": "\u00e9" * 128}, {"cache_salt": "\u00e9" * 129}, {"chat_template_kwargs": {"self": 1}},
    {"chat_template_kwargs": {"self": None}}, {"chat_template_kwargs": {"tools": 1}},
    {"chat_template_kwargs": {"documents": 1}}, {"kv_transfer_params": []},
    *({"kv_transfer_params": {"prompt_token_ids": i}} for i in ("x", [1, "a"], [-1], [True], [1.0], {}, 0)),
    {"kv_transfer_params": {"prompt_token_ids": []}, "echo": True},
    {"kv_transfer_params": {"prompt_token_ids": [1, 2]}, "echo": True},
]
ENDS = ["end", " end ", "", "   ", "line\n", [text("p")], [text("p ")], None, []]
PROMPTS = [
    {"prompt": "a b"}, {"prompt": ["a", "b c"]}, {"prompt": [1, 2, 3]}, {"prompt": [[1, 2], [3]]}, {"prompt": []},
    {"prompt": ""}, {"prompt": None}, {"prompt": [1, "a"]}, {"prompt": [True, False]}, {"prompt": [1.0, 2.0]},
    {"prompt": [-1]}, {"prompt": 5}, {"prompt": {"a": 1}}, {}, {"prompt": "<|im_start|>user\nhi<|im_end|>"},
    {"prompt": "a b", "add_special_tokens": False}, {"prompt": "a b c d e f", "truncate_prompt_tokens": 3},
    {"prompt": [1, 2, 3, 4], "truncate_prompt_tokens": 2},
    {"prompt": [1, 2, 3, 4], "truncate_prompt_tokens": 2, "truncation_side": "right"}, {"prompt": "a b", "echo": True},
    {"prompt": "a", "suffix": "b"}, {"prompt": "a", "max_tokens": 0}, {"prompt": "a", "cache_salt": "s"},
    {"prompt": "a", "max_tokens": None}, {"prompt": "x", "chat_template_kwargs": {}},
]
OUTPUT = {"type": "output_text", "text": "o1"}
INPUTS = [
    "hi", "", [], [USER], [{"type": "message", **user("x")}],
    [{"type": "message", **user([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}])}],
    [USER, assistant("yes"), user("x")], [USER, assistant([OUTPUT, {**OUTPUT, "text": "o2"}]), user("x")],
    [USER, {"type": "message", "id": "m1", "status": "completed",
            **assistant([{**OUTPUT, "annotations": []}, {**OUTPUT, "text": "o2", "annotations": []}])}, user("x")],
    [USER, {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "sum"}]},
     {"type": "message", **assistant([OUTPUT])},
     {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}'},
     {"type": "function_call_output", "call_id": "c", "output": "out"}, user("x")],
    [USER, {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "why"}]},
     {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
     {"type": "function_call", "call_id": "d", "name": "g", "arguments": ""},
     {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "o"}]},
     {"type": "function_call_output", "call_id": "d", "output": "z"}],
    [USER, {"type": "reasoning", "summary": [], "encrypted_content": "e"}],
    [USER, {"type": "reasoning", "summary": []}, user("x")],
    [USER, {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "in \u00e9"},
     {"type": "custom_tool_call_output", "call_id": "c", "output": "o"}],
    [USER, {"type": "message", "id": "m", "status": "in_progress", **assistant([{**OUTPUT, "annotations": []}])}],
    [USER, assistant("part", status="incomplete")], [DEVELOPER, USER], [{"role": "system", "content": "s"}, USER],
    *([USER, {**kind, **assistant([c])}, user("x")] for kind in ({}, {"type": "message"})
      for c in (OUTPUT, text("o1"), "o1", {"type": "input_text", "text": "o1"}, {"type": "refusal", "refusal": "o"})),
    [{"type": "item_reference", "id": "x"}], [{"type": "web_search_call", "id": "w"}],
]
FUNCTION = {"type": "function", "name": "f"}
RESPONSES = [
    {"instructions": "ins"}, {"instructions": ""}, {"reasoning": {"effort": "none"}}, {"reasoning": {"effort": "high"}},
    {"truncation": "auto"}, {"tools": [{**FUNCTION, "parameters": {"type": "object"}, "strict": True, "description": "d",
                                        "unknown": 1}]},
    {"tools": [FUNCTION]}, {"tools": [{**FUNCTION, "parameters": {}}], "tool_choice": "none"}, {"tools": []},
    {"tools": [{"type": "web_search"}]}, {"chat_template_kwargs": {"enable_thinking": False}},
    {"max_output_tokens": 5000}, {"max_output_tokens": 4096}, {"max_output_tokens": "x"}, {"max_output_tokens": -1},
    {"cache_salt": "x"}, {"cache_salt": ""}, {"cache_salt": "a/b"},
]
THOUGHT = {"type": "thinking", "thinking": "t1", "signature": "s"}
USE = {"type": "tool_use", "id": "i", "name": "n", "input": {}}
GIVEN = {"type": "tool_result", "tool_use_id": "i"}
MESSAGES = [
    [user([text("a")])], [user([text("a"), text("b")])], [user([])], [user("")], [user([text("")])],
    [USER, {"role": "system", "content": "inline"}, user("x")],
    [USER, {"role": "system", "content": [text("i1"), text("i2")]}],
    [USER, assistant([THOUGHT, {"type": "thinking", "thinking": "t2"}, {"type": "redacted_thinking", "data": "d"},
                      text("a"), {**USE, "input": {"a": 1.0, "\u00e9": []}}]),
     user([{**GIVEN, "content": "res"}, text("after")])],
    [USER, assistant([USE]), user([text("before"), {**GIVEN, "content": [text("r1"), text("r2")]}])],
    [USER, assistant([USE]), user([{**GIVEN, "is_error": True}])], [USER, assistant([]), user("x")],
    [USER, assistant("prefill")], [USER, assistant([text("a"), text("b")]), user("x")],
    [USER, assistant([{**GIVEN, "content": "z"}]), user("x")], [{"role": "tool", "content": "x"}], [],
]
NAMED = {"name": "f", "input_schema": {"type": "object", "properties": {}}}
ANTHROPIC = [
    {"system": ""}, {"system": "sys"}, {"system": [text("a"), text("b")]},
    {"system": [text(BILLING), text("b")]}, {"system": [text("")]}, {"tools": []}, {"tools": [NAMED]},
    {"tools": [{**NAMED, "description": "d", "strict": True}]},
    {"tools": [{"name": "f", "input_schema": {"properties": {}}}]}, {"tools": [NAMED], "tool_choice": {"type": "none"}},
    {"tools": [NAMED], "tool_choice": {"type": "any"}}, {"tools": [NAMED], "tool_choice": {"type": "tool", "name": "f"}},
    {"thinking": {"type": "disabled"}}, {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048},
    {"output_config": {"effort": "low"}}, {"chat_template_kwargs": {"enable_thinking": False}}, {"cache_salt": "s"},
    {"cache_salt": "a/b"}, {"cache_salt": 5}, {"max_tokens": 5000},
    {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
]


def conversations():
    """Messages, and what the request says beside them."""
    for c in CONTENTS:
        yield [user(c)], {}
    for p in PARTS:
        yield [user([text("a"), p])], {}
        yield [user([p, text("a")])], {}
        for role in ROLES:
            yield [{"role": role, "tool_call_id": "c1", "content": [p]}, USER], {}
            yield [{"role": role, "content": [p]}, USER], {}
    for more in ({"name": "x"}, {"reasoning": "r"}, {"reasoning": None}, {"reasoning": 5}, {"task": "t"}, {"tools": None},
                 {"tools": [tool()]}, {"tools": []}, {"tool_calls": []}, {"tool_call_id": None}, {"unknown": 1}):
        yield [user(["a"], **more)], {}
        yield [assistant(["a"], **more), USER], {}
    yield [assistant(["a"], tool_calls=[{**CALL, "function": {"name": "f", "arguments": "{}"}}]), USER], {}
    for m in ({"role": "user"}, {"role": "assistant"}, {"role": "system"}, {"role": "tool"}, {"role": "foo"}, {"role": ""},
              {"content": "x"}, {"role": "function", "name": "f", "content": "a"}):
        yield [m], {}
    yield [], {}
    for c in SYSTEMS:
        yield [{"role": "system", "content": c}, USER], {}
    for m in DEVELOPERS:
        yield m, {}
    for a in ARGUMENTS:
        yield [USER, called({"name": "f", "arguments": a}), user("go")], {}
    yield [USER, called({"name": "f"}), user("go")], {}
    yield [USER, called({"name": 5, "arguments": "{}"}), user("go")], {}
    yield [USER, {"role": "assistant", "tool_calls": []}, user("x")], {}
    for calls in (None, {"a": 1}, [{"function": {"name": "f", "arguments": "{}"}}],
                  [{"type": "custom", "id": "x", "custom": {"name": "f", "input": "i"}}],
                  [{**CALL, "function": {"name": "f", "arguments": "{}", "z": 1}, "index": 0},
                   {**CALL, "function": {"arguments": '{"q":[1,2]}', "name": "g"}}]):
        yield [USER, assistant("a", tool_calls=calls), user("x")], {}
    yield [user("x", tool_calls=[{**CALL, "function": {"name": "f", "arguments": "{}"}}])], {}
    for c in RESULTS:
        yield [USER, {"role": "tool", "tool_call_id": "c1", "content": c}, user("x")], {}
    for i in (5, None):
        yield [USER, {"role": "tool", "tool_call_id": i, "content": "x"}], {}
    for role in ROLES:
        yield [{"role": role, "name": None, "content": "x"}, USER], {}
    for r in REASONINGS:
        yield [USER, assistant("c", **r), {"role": "tool", "content": "t", "tool_call_id": "x"}], {}
        yield [USER, assistant(None, **r), user("x")], {}
    for more in ({"reasoning": "r"}, {"name": "bob"}, {"name": 5}, {"task": "t"}, {"task": 5}, {"tool_call_id": 5}):
        yield [user("x", **more)], {}
    for t in TOOLS:
        yield [USER], {"tools": t}
    for c in ("none", "auto", "required", None, "foo", {"type": "function", "function": {"name": "f"}},
              {"type": "function", "function": {"name": "g"}}):
        yield [USER], {"tools": [tool()], "tool_choice": c}
    for c in ("none", "auto", None):
        yield [USER], {"tool_choice": c}
    for flags in FLAGS:
        yield [USER], flags
    end = {"continue_final_message": True, "add_generation_prompt": False}
    for c in ENDS:
        yield [USER, assistant(c)], end
    yield [USER, assistant("x", reasoning="because")], end
    yield [USER, assistant("x", tool_calls=[{**CALL, "function": {"name": "f", "arguments": "{}"}}])], end
    yield [USER], end


def requests():
    for messages, more in conversations():
        yield "/v1/chat/completions", {"messages": messages, **more}
    for body in PROMPTS:
        yield "/v1/completions", body
    for i in INPUTS:
        yield "/v1/responses", {"input": i}
    for more in RESPONSES:
        yield "/v1/responses", {"input": "hi", **more}
    for messages in MESSAGES:
        yield "/v1/messages", {"max_tokens": 8, "messages": messages}
    for more in ANTHROPIC:
        yield "/v1/messages", {"max_tokens": 8, "messages": [USER], **more}


if __name__ == "__main__":
    for path, body in requests():
        print(json.dumps({"path": path, "body": {"model": MODEL, **body}}))
