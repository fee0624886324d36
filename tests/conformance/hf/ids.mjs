// node ids.mjs TOKENIZER_JSON [--special]: JSON strings on stdin, one a line -> JSON lists of token ids.
import { createInterface } from "node:readline";
import hf from "@anush008/tokenizers";

const [file, flag] = process.argv.slice(2);
const tokenizer = hf.Tokenizer.fromFile(file);
for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const encoding = await tokenizer.encode(JSON.parse(line), null, { addSpecialTokens: flag === "--special" });
  console.log(JSON.stringify(Array.from(encoding.getIds())));
}
