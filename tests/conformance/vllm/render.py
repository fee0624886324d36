"""What vLLM itself makes of requests, without an engine: its own preparation, run over a model's folder.

    render.py FOLDER [--template FILE] < REQUESTS > ANSWERS        with vLLM's Python

REQUESTS has one {"path": ..., "body": {...}} a line, ANSWERS one {"prompts": [{"text", "ids"}...]} or {"error": ...} a
line.  A prompt that came as ids has no text.
"""
import argparse, asyncio, json, logging, os, sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from vllm import AsyncEngineArgs
from vllm.config import VllmConfig
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.renderers import renderer_from_config
from vllm.renderers.online_renderer import OnlineRenderer


class Refused(Exception):
    pass


def renderer_of(folder, template):
    config = AsyncEngineArgs(model=folder, max_model_len=4096, dtype="bfloat16").create_model_config()
    whole = VllmConfig(model_config=config)
    return OnlineRenderer(model_config=config, renderer=renderer_from_config(whole), request_logger=None,
                          chat_template=template, chat_template_content_format="auto", enable_auto_tools=True,
                          tool_parser="hermes")


async def inputs(online, merge_system, path, body):
    if path == "/v1/chat/completions":
        return await online.render_chat(ChatCompletionRequest.model_validate(body))
    if path == "/v1/completions":
        return None, await online.render_completion(CompletionRequest.model_validate(body))
    if path == "/v1/responses":
        r = await online.render_responses(ResponsesRequest.model_validate(body))
        return r if isinstance(r, ErrorResponse) else (None, [r.engine_input])
    if path == "/v1/messages":
        request = AnthropicMessagesRequest.model_validate(body)
        return await online.render_chat(
            AnthropicServingMessages.to_chat_completion_request(request, merge_inline_system=merge_system))
    raise Refused(f"no such path: {path}")


async def answer(online, merge_system, line):
    try:
        ask = json.loads(line)
        got = await inputs(online, merge_system, ask["path"], ask["body"])
        got = got if isinstance(got, ErrorResponse) else got[1]
        if isinstance(got, ErrorResponse):
            raise Refused(got.error.message)
        return {"prompts": [{"text": one.get("prompt"), "ids": list(one["prompt_token_ids"])} for one in got]}
    except Exception as e:
        return {"error": f"{type(e).__name__}: {str(e)[:300]}"}


async def main():
    options = argparse.ArgumentParser()
    options.add_argument("folder")
    options.add_argument("--template")
    options = options.parse_args()
    template = open(options.template, newline="").read() if options.template else None
    online = renderer_of(options.folder, template)
    merge_system = AnthropicServingMessages._should_merge_inline_system(online)
    for line in sys.stdin:
        print(json.dumps(await answer(online, merge_system, line), ensure_ascii=False), flush=True)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    asyncio.run(main())
