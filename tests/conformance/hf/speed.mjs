// node speed.mjs TOKENIZER_JSON TEXT [CHUNK]: encodes the text once, in documents of about CHUNK characters cut at
// line ends, and prints {"seconds", "tokens", "load_ms"}.
import { readFileSync } from "node:fs";
import hf from "@anush008/tokenizers";

const [file, path, chunk = "8000"] = process.argv.slice(2);
const begun = performance.now();
const tokenizer = hf.Tokenizer.fromFile(file);
const load_ms = performance.now() - begun;
const text = readFileSync(path, "utf8");
const documents = [];
for (let at = 0; at < text.length; ) {
  const end = text.indexOf("\n", at + Number(chunk)) + 1 || text.length;
  documents.push(text.slice(at, end));
  at = end;
}
let tokens = 0;
const start = process.cpuUsage();
const wall = performance.now();
for (const document of documents) {
  tokens += (await tokenizer.encode(document, null, { addSpecialTokens: false })).getLength();
}
const seconds = (performance.now() - wall) / 1000;
const used = process.cpuUsage(start);
console.log(JSON.stringify({ seconds: Math.min(seconds, (used.user + used.system) / 1e6), tokens, load_ms }));
