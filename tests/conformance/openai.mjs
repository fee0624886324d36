// The official OpenAI Node SDK through the real processes.  BASE_URL and MODEL name the road.
// Each line of output is a sentence that was proven; exit 1 at the first that is not true.
import OpenAI, { toFile } from "openai";
import { must, proves, done } from "./proves.mjs";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "sk-none", maxRetries: 0, timeout: 20000 });
const model = process.env.MODEL;
const messages = [{ role: "system", content: "be brief" }, { role: "user", content: "say something" }];

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

await proves("one model is retrieved, also by its alias", async () => {
  must("id", (await client.models.retrieve(model)).id === model);
  must("alias", (await client.models.retrieve("small")).id === "small");
});

await proves("embeddings come back, one for each input", async () => {
  const r = await client.embeddings.create({ model: "small", input: ["a", "b"], encoding_format: "float" });
  must("two", r.data.length === 2 && r.data[1].embedding.length > 0 && r.usage.prompt_tokens > 0);
});

let kept;
await proves("a response comes back whole", async () => {
  kept = await client.responses.create({ model, instructions: "be brief", input: "say something", max_output_tokens: 8 });
  must("output", kept.status === "completed" && kept.output_text.length > 0 && kept.id.startsWith("resp_"));
  must("usage", kept.usage.output_tokens === 8 && kept.usage.input_tokens > 0);
});

await proves("a stored response is found again at its worker, every time", async () => {
  for (let i = 0; i < 20; i++) must("same", (await client.responses.retrieve(kept.id)).output_text === kept.output_text);
});

await proves("a conversation goes on from a stored response, through several turns", async () => {
  let last = kept.id;
  for (let i = 0; i < 10; i++) {
    const r = await client.responses.create({ model, input: `turn ${i}`, previous_response_id: last, max_output_tokens: 2 });
    must("previous", r.previous_response_id === last);
    last = r.id;
  }
});

await proves("a streamed response ends with response.completed and is kept too", async () => {
  let id, text = "", last;
  const stream = await client.responses.create({ model, input: "go on", max_output_tokens: 8, stream: true });
  for await (const e of stream) {
    if (e.type === "response.created") {
      id = e.response.id;
    } else if (e.type === "response.output_text.delta") {
      text += e.delta;
    }
    last = e;
  }
  must(last.type, last.type === "response.completed" && last.response.output_text !== null);
  must("text", text.length > 0 && (await client.responses.retrieve(id)).output_text === text);
});

await proves("many clients find each their own among two workers", async () => {
  const all = await Promise.all(Array.from({ length: 40 }, (_, i) =>
    client.responses.create({ model, input: `number ${i}`, max_output_tokens: 2 })));
  const again = await Promise.all(all.map((r) => client.responses.retrieve(r.id)));
  must("all", again.every((r, i) => r.id === all[i].id && r.output_text === all[i].output_text));
});

await proves("a deleted response is gone, and one never made is NotFoundError that names it", async () => {
  await client.responses.delete(kept.id);
  for (const id of [kept.id, "resp_never"]) {
    for (const f of [() => client.responses.retrieve(id), () => client.responses.cancel(id),
                     () => client.responses.create({ model, input: "x", previous_response_id: id })]) {
      try {
        await f();
      } catch (e) {
        must(`${e.constructor.name} ${e.message}`, e instanceof OpenAI.NotFoundError && e.message.includes(id));
        continue;
      }
      throw new Error("no error");
    }
  }
});

await proves("audio is transcribed and translated by its form's model", async () => {
  const file = await toFile(Buffer.from(Array.from({ length: 100000 }, (_, i) => (i * 7919) % 256)), "a.wav");
  const a = await client.audio.transcriptions.create({ file, model: "small", language: "en" });
  must(a.text, a.text.includes(`bytes for ${model}`));
  const b = await client.audio.translations.create({ file, model });
  must(b.text, b.text.includes(`bytes for ${model}`));
  try {
    await client.audio.transcriptions.create({ file, model: "no-such" });
  } catch (e) {
    must(`${e.constructor.name}`, e instanceof OpenAI.NotFoundError && e.message.includes("no-such"));
    return;
  }
  throw new Error("no error");
});

done();
