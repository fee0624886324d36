// The official OpenAI Node SDK through the real processes.  BASE_URL and MODEL name the road.
// Each line of output is a sentence that was proven; exit 1 at the first that is not true.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "sk-none", maxRetries: 0, timeout: 20000 });
const model = process.env.MODEL;
const messages = [{ role: "system", content: "be brief" }, { role: "user", content: "say something" }];
let failed = false;

async function proves(sentence, f) {
  try {
    await f();
    console.log(`ok   ${sentence}`);
  } catch (e) {
    failed = true;
    console.log(`FAIL ${sentence}: ${e?.stack ?? e}`);
  }
}
function must(what, truth) {
  if (!truth) throw new Error(what);
}

await proves("a chat completion comes back whole", async () => {
  const r = await client.chat.completions.create({ model, messages, max_tokens: 8 });
  must("choice", r.choices.length === 1 && r.choices[0].finish_reason === "length");
  must("usage", r.usage.completion_tokens === 8 && r.usage.prompt_tokens > 0);
});

await proves("a streamed chat completion has a role, deltas, an end and its usage", async () => {
  const stream = await client.chat.completions.create({
    model, messages, max_tokens: 8, stream: true, stream_options: { include_usage: true },
  });
  let text = "", role, finish, usage, chunks = 0;
  for await (const chunk of stream) {
    chunks++;
    role ??= chunk.choices[0]?.delta?.role;
    text += chunk.choices[0]?.delta?.content ?? "";
    finish ??= chunk.choices[0]?.finish_reason;
    usage ??= chunk.usage;
  }
  must(`role ${role}`, role === "assistant");
  must("text", text.length > 0 && chunks > 3);
  must(`finish ${finish}`, finish === "length");
  must("usage", usage.completion_tokens === 8);
});

await proves("a streamed answer needs no usage asked for", async () => {
  const stream = await client.chat.completions.create({ model, messages, max_tokens: 4, stream: true });
  for await (const chunk of stream) must("no usage chunk is added", !chunk.usage);
});

await proves("tools and their arguments reach the worker unchanged", async () => {
  const tools = [{ type: "function", function: { name: "weather", description: "of a place",
    parameters: { type: "object", properties: { place: { type: "string", description: "größe ☃ \u2028" } }, required: ["place"] } } }];
  const r = await client.chat.completions.create({ model, messages: [...messages,
    { role: "assistant", content: null, tool_calls: [{ id: "c1", type: "function",
      function: { name: "weather", arguments: "{\"place\": \"Ulm\"}" } }] },
    { role: "tool", tool_call_id: "c1", content: "sunny" }], tools, tool_choice: "auto", max_tokens: 4 });
  must("choice", r.choices.length === 1);
});

await proves("a text completion and a token-id completion come back", async () => {
  const a = await client.completions.create({ model, prompt: "once upon a time", max_tokens: 4 });
  must("text", a.choices[0].text.length > 0);
  const b = await client.completions.create({ model, prompt: [1, 2, 3, 4, 5, 6, 7, 8], max_tokens: 4 });
  must("prompt_tokens", b.usage.prompt_tokens === 8);
});

await proves("an alias is answered", async () => {
  const r = await client.chat.completions.create({ model: "small", messages, max_tokens: 2 });
  must("choice", r.choices.length === 1);
});

await proves("the models are listed", async () => {
  const ids = [];
  for await (const m of client.models.list()) ids.push(m.id);
  must(ids.join(), ids.includes(model) && ids.includes("small"));
});

await proves("an unknown model is NotFoundError with OpenAI's code", async () => {
  try {
    await client.chat.completions.create({ model: "no-such", messages });
  } catch (e) {
    must(`${e.constructor.name} ${e.status} ${e.code}`, e instanceof OpenAI.NotFoundError && e.code === "model_not_found");
    must("message names it", e.message.includes("no-such"));
    return;
  }
  throw new Error("no error");
});

await proves("a request the worker refuses keeps the worker's status and words", async () => {
  try {
    await client.chat.completions.create({ model, messages, max_tokens: 10_000_000 });
  } catch (e) {
    must(`${e.constructor.name} ${e.status}`, e instanceof OpenAI.BadRequestError && e.message.length > 10);
    return;
  }
  throw new Error("no error");
});

await proves("an aborted stream ends at once and the next request is served", async () => {
  const stream = await client.chat.completions.create({ model, messages, max_tokens: 2000, stream: true });
  let n = 0;
  for await (const chunk of stream) {
    if (++n === 3) {
      stream.controller.abort();
      break;
    }
  }
  must("three chunks", n === 3);
  const r = await client.chat.completions.create({ model, messages, max_tokens: 2 });
  must("choice", r.choices.length === 1);
});

await proves("fifty requests at once are all answered", async () => {
  const all = await Promise.all(Array.from({ length: 50 }, (_, i) =>
    client.chat.completions.create({ model, messages: [{ role: "user", content: `number ${i}` }], max_tokens: 3 })));
  must("all", all.every((r) => r.usage.completion_tokens === 3));
});

process.exit(failed ? 1 : 0);
