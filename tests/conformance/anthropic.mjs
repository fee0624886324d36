// The official Anthropic Node SDK through the real processes.  BASE_URL (without /v1) and MODEL name the road.
// Each line of output is a sentence that was proven; exit 1 when one is not true.
import Anthropic from "@anthropic-ai/sdk";
import { must, proves, done } from "./proves.mjs";

const client = new Anthropic({ baseURL: process.env.BASE_URL, apiKey: "sk-ant-none", maxRetries: 0, timeout: 20000 });
const model = process.env.MODEL;
const messages = [{ role: "user", content: "say something" }];
const system = "be brief";

await proves("a message comes back whole", async () => {
  const r = await client.messages.create({ model, system, messages, max_tokens: 8 });
  must("content", r.type === "message" && r.role === "assistant" && r.content[0].type === "text" && r.content[0].text);
  must(`stop ${r.stop_reason}`, r.stop_reason === "max_tokens");
  must("usage", r.usage.output_tokens === 8 && r.usage.input_tokens > 0);
});

await proves("content in blocks reaches the worker", async () => {
  const r = await client.messages.create({ model, max_tokens: 2, system: [{ type: "text", text: system }],
    messages: [{ role: "user", content: [{ type: "text", text: "größe ☃" }] }, { role: "assistant", content: "and" }] });
  must("content", r.content.length === 1);
});

await proves("a streamed message is accumulated by the SDK to what create gives", async () => {
  const events = [];
  const stream = client.messages.stream({ model, system, messages, max_tokens: 8 });
  stream.on("streamEvent", (e) => events.push(e.type));
  const r = await stream.finalMessage();
  must(events.join(), events[0] === "message_start" && events.at(-1) === "message_stop" && events.length >= 6);
  must("text", r.content[0].text.length > 8 && r.stop_reason === "max_tokens" && r.usage.output_tokens === 8);
});

await proves("a raw stream has its events in order", async () => {
  let text = "", last;
  for await (const e of await client.messages.create({ model, messages, max_tokens: 4, stream: true })) {
    if (e.type === "content_block_delta") text += e.delta.text;
    last = e.type;
  }
  must(`${last} ${text}`, last === "message_stop" && text.length > 0);
});

await proves("tokens are counted", async () => {
  const few = await client.messages.countTokens({ model, messages });
  const many = await client.messages.countTokens({ model, messages: [{ role: "user", content: "x".repeat(4000) }] });
  must(`${few.input_tokens} ${many.input_tokens}`, few.input_tokens > 0 && many.input_tokens >= 1000);
});

await proves("an alias is answered", async () => {
  const r = await client.messages.create({ model: "small", messages, max_tokens: 2 });
  must("content", r.content.length === 1);
});

await proves("an unknown model is NotFoundError in Anthropic's shape", async () => {
  try {
    await client.messages.create({ model: "no-such", messages, max_tokens: 2 });
  } catch (e) {
    must(`${e.constructor.name} ${e.status}`, e instanceof Anthropic.NotFoundError);
    must(JSON.stringify(e.error), e.error.type === "error" && e.error.error.type === "not_found_error");
    must("message names it", e.error.error.message.includes("no-such"));
    return;
  }
  throw new Error("no error");
});

await proves("a request the worker refuses keeps the worker's status", async () => {
  try {
    await client.messages.create({ model, messages, max_tokens: 10_000_000, stream: true });
  } catch (e) {
    must(`${e.constructor.name} ${e.status}`, e instanceof Anthropic.BadRequestError);
    return;
  }
  throw new Error("no error");
});

await proves("an aborted stream ends at once and the next request is served", async () => {
  const stream = await client.messages.create({ model, messages, max_tokens: 2000, stream: true });
  let n = 0;
  for await (const _ of stream) {
    if (++n === 4) {
      stream.controller.abort();
      break;
    }
  }
  must("four events", n === 4);
  const r = await client.messages.create({ model, messages, max_tokens: 2 });
  must("content", r.content.length === 1);
});

await proves("fifty requests at once are all answered", async () => {
  const all = await Promise.all(Array.from({ length: 50 }, (_, i) =>
    client.messages.create({ model, messages: [{ role: "user", content: `number ${i}` }], max_tokens: 3 })));
  must("all", all.every((r) => r.usage.output_tokens === 3));
});

done();
