#!/usr/bin/env python3
"""record.py CASES OUT MODEL: what the vLLM installed here makes of each request of CASES.

CASES: JSON lines {"name", "route", "template", "options", "body" or "raw"}; templates/NAME.jinja is
the server's --chat-template.  OUT: JSON lines {"name", "route", "template", "options", "body" (the
text of the body), "text" and "add_special", or "refused": true}.  MODEL: a folder with tokenizer.

No engine runs: vLLM's own request models, message parsing and template call do, on one processor,
so what comes out is what its server would tokenize.
"""
import copy
import json
import pathlib
import sys
from types import SimpleNamespace

import transformers
import vllm
from transformers import AutoTokenizer
from vllm.entrypoints.anthropic.protocol import AnthropicCountTokensRequest, AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.openai.responses.utils import construct_input_messages, construct_tool_dicts
from vllm.entrypoints.serve.tokenize.protocol import TokenizeChatRequest
from vllm.renderers import merge_kwargs
from vllm.renderers.chat_utils import parse_chat_messages
from vllm.renderers.hf import resolve_chat_template_content_format, safe_apply_chat_template

HERE = pathlib.Path(__file__).resolve().parent
MAX_MODEL_LEN = 4096


class Config(SimpleNamespace):
    """What the preparation asks of an engine's configuration: what is not set is None."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class Refused(Exception):
    pass


class Recorder:
    def __init__(self, folder):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.config = Config(enable_prompt_embeds=False, trust_remote_code=False, tokenizer=folder, model=folder,
                             hf_config=SimpleNamespace(model_type="qwen3"), max_model_len=MAX_MODEL_LEN)

    def prepare(self, request, messages, tools, template, options, defaults=None):
        defaults = options.get("default_kwargs") if defaults is None else defaults
        kwargs = getattr(request, "chat_template_kwargs", None)
        own = getattr(request, "chat_template", None) is not None or (kwargs or {}).get("chat_template") is not None
        if own and not options.get("trust"):
            raise Refused("its template is not trusted")
        params = request.build_chat_params(template, "auto").with_defaults(
            merge_kwargs(defaults, {"tools": tools, "tokenize": False}))
        special = request.build_tok_params(self.config).add_special_tokens
        content = resolve_chat_template_content_format(
            chat_template=params.chat_template, tools=params.chat_template_kwargs.get("tools"),
            given_format=params.chat_template_content_format, tokenizer=self.tokenizer, model_config=self.config)
        conversation, _, _ = parse_chat_messages(messages, self.config, content_format=content)
        text = safe_apply_chat_template(self.config, self.tokenizer, conversation,
                                        **params.get_apply_chat_template_kwargs())
        if not isinstance(text, str):
            raise Refused("tokenized by the template call")
        text.encode()                   # half a surrogate pair: no tokenizer takes it
        return {"text": text, "add_special": special}

    def chat(self, request, template, options):
        tools = None
        if request.tools is not None and not (request.tool_choice == "none" and options.get("exclude_tools")):
            tools = [tool.model_dump() for tool in request.tools]
        return self.prepare(request, request.messages, tools, template, options)

    def tokenize(self, request, template, options):
        tools = None if request.tools is None else [tool.model_dump() for tool in request.tools]
        return self.prepare(request, request.messages, tools, template, options)

    def responses(self, request, template, options):
        tools = construct_tool_dicts(request.tools, request.tool_choice,
                                     exclude_tools_when_tool_choice_none=bool(options.get("exclude_tools")))
        messages = construct_input_messages(request_instructions=request.instructions, request_input=request.input)
        defaults = request.build_chat_params(template, "auto").with_defaults(
            options.get("default_kwargs") or {}).chat_template_kwargs
        return self.prepare(request, messages, tools, template, options, defaults)

    def effort_of_disabled(self, template, options):
        """What the Messages route finds out of its renderer when the first such request comes."""
        def probe(effort):
            try:
                return self.chat(ChatCompletionRequest(messages=[{"role": "user", "content": "Hi"}],
                                                       reasoning_effort=effort), template, options)["text"]
            except Exception:
                return None
        none = probe("none")
        ignored = none is None or any(probe(e) == none for e in ("low", "medium", "high", "xhigh", "max"))
        return "low" if ignored else "none"

    def messages(self, request, template, options):
        return self.chat(AnthropicServingMessages.to_chat_completion_request(
            request, merge_inline_system=AnthropicServingMessages._detect_merge_inline_system(template),
            disabled_thinking_effort=self.effort_of_disabled(template, options)), template, options)

    def one(self, case):
        template = (HERE / "templates" / (case["template"] + ".jinja")).read_text()
        kind, make = {
            "chat": (ChatCompletionRequest, self.chat), "tokenize": (TokenizeChatRequest, self.tokenize),
            "responses": (ResponsesRequest, self.responses), "messages": (AnthropicMessagesRequest, self.messages),
            "count-tokens": (AnthropicCountTokensRequest, self.messages)}[case["route"]]
        body = json.loads(case["raw"]) if "raw" in case else copy.deepcopy(case["body"])
        return make(kind.model_validate(body), template, case["options"])


def main(cases, out, folder):
    recorder = Recorder(folder)
    with open(cases) as lines, open(out, "w") as to:
        for line in lines:
            case = json.loads(line)
            try:
                made = recorder.one(case)
            except Exception as e:
                print(case["name"], type(e).__name__, file=sys.stderr)
                made = {"refused": True}
            case["body"] = case.pop("raw", None) or json.dumps(case["body"])
            to.write(json.dumps(case | made) + "\n")
    print("vllm", vllm.__version__, "transformers", transformers.__version__)


main(*sys.argv[1:4])
