"""Some hundred mixed requests, always the same for one seed: each an Ask of a family.

Conversations grow by what was answered, prompts share beginnings of several blocks, some name a salt, some stream.
What is asked must be something that the engine serves: what it refuses proves nothing here.  Standard library only.
"""
import dataclasses, json, random

WORDS = ("the signal of track seven is green and the points are set for the branch line until noon when "
         "another train arrives with coal from the harbour so that nobody has to wait at the crossing").split()
ODD = ["naïve café", "日本語の文章です。", "한국어 문장", "emoji 🚂🛤️👩‍🔧", "a\u0301 decomposed", "\u2028line\u2029par",
       "tabs\tand\r\nreturns\n\n\n", "   spaces   ", "x = {'a': [1, 2.50, None]}\n\tdef f():\n\t\treturn x",
       "1234567890 ² Ⅳ ①", "don't we'll I'VE '\u017f", "literal <|im_end|> and <|im_start|>system\nno",
       "<think>not mine</think>", "<tool_call>{}</tool_call>", "ﬁ ligature Å Å", "العربية مرحبا", "हिन्दी पाठ"]

TOOLS = [
    {"type": "function", "function": {"name": "departures", "description": "What leaves when — 発車",
                                      "parameters": {"type": "object", "required": ["station"], "properties": {
                                          "station": {"type": "string", "description": "its name"},
                                          "limit": {"type": "integer", "minimum": 1, "default": 10}}}}},
    {"type": "function", "function": {"name": "set_points", "strict": True, "parameters": {
        "type": "object", "properties": {"to": {"enum": ["left", "right", None]}, "at": {"type": "number"}}}}},
    {"function": {"parameters": {}, "name": "now", "x-unknown": 1}, "type": "function", "unknown": {"a": 1}},
    {"type": "function", "function": {"name": "later", "defer_loading": True}},
]


@dataclasses.dataclass
class Ask:
    family: str
    path: str
    body: dict
    follow: object = None       # takes the answer's text, gives the next Ask or None

    def tokens_known(self):
        """The engine can be asked for the ids of this very request: it returns them with the answer."""
        return self.path in ("/v1/chat/completions", "/v1/completions")


class Asks:
    def __init__(self, model, seed=6):
        self.model, self.random = model, random.Random(seed)
        self.heads = [self.text(120 + 60 * i) for i in range(4)]       # shared beginnings

    def text(self, words, odd=True):
        said = [self.random.choice(WORDS) for _ in range(words)]
        if odd:
            said[self.random.randrange(words)] = self.random.choice(ODD)
        return " ".join(said)

    def head(self):
        return self.random.choice(self.heads)

    def chat(self, family, messages, **more):
        body = {"model": self.model, "messages": messages, "max_tokens": 4, "temperature": 0, **more}
        if self.random.random() < 0.35:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return Ask(family, "/v1/chat/completions", body)

    def conversation(self):
        """Four turns on one head; what the model said comes back as its message."""
        messages = [{"role": "system", "content": self.head()}, {"role": "user", "content": self.text(30)}]
        more = {} if self.random.random() < 0.5 else {"chat_template_kwargs": {"enable_thinking": False}}

        def turn(n):
            ask = self.chat("multi-turn", list(messages), **more)

            def follow(text):
                if n == 4:
                    return None
                messages.append({"role": "assistant", "content": text})
                messages.append({"role": "user", "content": self.text(20)})
                return turn(n + 1)
            ask.follow = follow
            return ask
        return turn(1)

    def tools(self):
        tools = self.random.sample(TOOLS, self.random.randint(1, len(TOOLS)))
        more = {"tool_choice": "none"} if self.random.random() < 0.3 else {}
        return self.chat("tools", [{"role": "system", "content": self.head()},
                                   {"role": "user", "content": self.text(15)}], tools=tools, **more)

    def tool_history(self):
        arguments = self.random.choice(
            ['{"station": "Zürich HB", "limit": 3}', '{"at": 1.0, "deep": {"b": [1e5, 1E400, -0.0], "a": null}}',
             '{"big": 123456789012345678901234567890, "u": "\\u00e9\\ud83d\\ude82"}', "{}", "", "not JSON", "[1]",
             ' {"b": 1,\n "a": 2, "b": 3} '])
        call = {"type": "function", "id": "call-1", "index": 0,
                "function": {"name": "departures", "arguments": arguments}}
        result = self.random.choice([self.text(8), [{"type": "text", "text": self.text(5)},
                                                    {"type": "text", "text": self.text(5)}], ""])
        return self.chat("tool history", [
            {"role": "user", "content": self.head()},
            {"role": "assistant", "content": self.random.choice([None, "", self.text(5)]), "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call-1", "content": result},
            {"role": "tool", "tool_call_id": "call-1", "content": "second"},
            {"role": "user", "content": self.text(10)}], tools=TOOLS[:2])

    def reasoning(self):
        key = self.random.choice(["reasoning", "reasoning_content"])
        more = self.random.choice([{}, {"reasoning_effort": "none"}, {"reasoning_effort": "high"},
                                   {"chat_template_kwargs": {"enable_thinking": False, "unknown": 1}},
                                   {"chat_template_kwargs": {"enable_thinking": None}}])
        return self.chat("reasoning", [
            {"role": "user", "content": self.head()},
            {"role": "assistant", key: self.text(12), "content": self.text(6)},
            {"role": "user", "content": self.text(6)},
            {"role": "assistant", "content": "<think>\n" + self.text(5) + "\n</think>\n\n" + self.text(5),
             "tool_calls": []},
            {"role": "tool", "tool_call_id": "c", "content": self.text(4)}], **more)

    def parts(self):
        part = {"type": "text", "text": self.text(8), "cache_control": {"type": "ephemeral"}}
        return self.chat("parts", [
            {"role": "system", "content": [{"type": "text", "text": self.head()}]},
            {"role": "user", "name": "Zoë", "content": [part, self.text(5), {"type": "text", "text": ""}]},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"},
                                              {"type": "text", "text": self.text(4)}]},
            {"role": "user", "content": [{"type": "text", "text": self.text(4)}]}])

    def developer(self):
        return self.chat("developer", [
            {"role": "system", "content": self.head()}, {"role": "developer", "content": self.text(9)},
            {"role": "user", "content": self.text(9)},
            *([{"role": "system", "content": self.text(3)}, {"role": "user", "content": "go on"}]
              if self.random.random() < 0.5 else [])])

    def continued(self):
        end = self.random.choice(["The answer is", "Trailing space ", "line\n"])
        return self.chat("continued", [{"role": "user", "content": self.head()},
                                       {"role": "assistant", "content": end}],
                         add_generation_prompt=False, continue_final_message=True)

    def prompt_end(self):
        return self.chat("no generation prompt", [{"role": "user", "content": self.head()},
                                                  {"role": "assistant", "content": self.text(5)}],
                         add_generation_prompt=False, add_special_tokens=self.random.random() < 0.5)

    def salted(self):
        return self.chat("salt", [{"role": "system", "content": self.heads[0]},
                                  {"role": "user", "content": self.text(4)}],
                         cache_salt=self.random.choice(["tenant-a", "tenant-b", "sälz"]))

    def cut(self):
        more = {"truncate_prompt_tokens": self.random.choice([40, 100, -1])}
        if self.random.random() < 0.5:
            more["truncation_side"] = self.random.choice(["left", "right"])
        return self.chat("truncated", [{"role": "user", "content": self.head()}], **more)

    def completion(self, family, prompt, **more):
        body = {"model": self.model, "prompt": prompt, "max_tokens": 4, "temperature": 0, **more}
        if not (isinstance(prompt, list) and not isinstance(prompt[0], int)) and self.random.random() < 0.35:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return Ask(family, "/v1/completions", body)

    def text_prompt(self):
        more = self.random.choice([{}, {}, {"cache_salt": "tenant-a"}, {"add_special_tokens": False}])
        return self.completion("completion", self.head() + "\n" + self.text(10), **more)

    def id_prompt(self):
        ids = [(i * 7919) % 150000 for i in range(200)] + [self.random.randrange(150000) for _ in range(30)]
        return self.completion("token ids", ids)

    def several(self):
        one = self.head()
        prompts = [one + " a", one + " b", self.text(12)]
        if self.random.random() < 0.5:
            prompts = [[self.random.randrange(150000) for _ in range(n)] for n in (33, 70)]
        return self.completion("several prompts", prompts)

    def response(self):
        tools = [{"type": "function", "name": "departures", "parameters": {"type": "object", "properties": {}}}]
        body = {"model": self.model, "max_output_tokens": 4, "temperature": 0, "store": False, "input": self.random.choice([
            self.head(),
            [{"role": "user", "content": self.head()}, {"role": "assistant", "content": "yes"},
             {"role": "user", "content": [{"type": "input_text", "text": self.text(8)}]}],
            [{"role": "user", "content": self.head()},
             {"type": "function_call", "call_id": "c1", "name": "departures", "arguments": "{\"a\": 1}"},
             {"type": "function_call_output", "call_id": "c1", "output": self.text(6)}],
        ])}
        if self.random.random() < 0.5:
            body["instructions"] = self.text(10)
        if self.random.random() < 0.4:
            body |= {"tools": tools, "tool_choice": "auto"}
        return Ask("responses", "/v1/responses", body)

    def message(self):
        body = {"model": self.model, "max_tokens": 4, "temperature": 0, "system": self.random.choice([
            self.head(), [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
                          {"type": "text", "text": self.head()}, {"type": "text", "text": self.text(4)}]]),
            "messages": self.random.choice([
                [{"role": "user", "content": self.text(12)}],
                [{"role": "user", "content": [{"type": "text", "text": self.text(5)},
                                              {"type": "text", "text": self.text(5)}]},
                 {"role": "assistant", "content": [
                     {"type": "thinking", "thinking": self.text(4), "signature": "s"},
                     {"type": "text", "text": self.text(4)},
                     {"type": "tool_use", "id": "t1", "name": "now", "input": {"é": [1, 2.0]}}]},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [
                     {"type": "text", "text": "noon"}, {"type": "text", "text": "or so"}]},
                     {"type": "text", "text": self.text(3)}]}]])}
        if self.random.random() < 0.4:
            body["tools"] = [{"name": "now", "input_schema": {"properties": {}}}]
        if self.random.random() < 0.3:
            body["thinking"] = {"type": "disabled"}
        return Ask("messages", "/v1/messages", body)

    def families(self):
        return [self.conversation, self.conversation, self.tools, self.tool_history, self.reasoning, self.parts,
                self.developer, self.continued, self.prompt_end, self.salted, self.cut, self.text_prompt,
                self.id_prompt, self.several, self.response, self.message]


def mixed(model, n, seed=6):
    """n Asks; send what the caller was told the last one said."""
    asks = Asks(model, seed)
    waiting, made, ask = [], 0, None
    while made < n:
        if waiting and asks.random.random() < 0.6:
            ask = waiting.pop(asks.random.randrange(len(waiting)))
        else:
            ask = asks.random.choice(asks.families())()
        said = yield ask
        made += 1
        if ask.follow and (more := ask.follow(said or "")):
            waiting.append(more)


if __name__ == "__main__":
    for a in mixed("tiny", 20):
        print(a.family, a.path, json.dumps(a.body, ensure_ascii=False)[:160])
