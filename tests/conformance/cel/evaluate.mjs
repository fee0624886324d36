// What @bufbuild/cel says to the lines of lines.c; "error: ..." where CEL has one.
import { celEnv, parse, plan } from "@bufbuild/cel";
import { createInterface } from "node:readline";

const env = celEnv();

function value(v) {
  if (Array.isArray(v)) return v.map(value);
  if (v === null || typeof v !== "object") return v;
  if ("int" in v && Object.keys(v).length === 1 && typeof v.int === "string") return BigInt(v.int);
  if ("double" in v && Object.keys(v).length === 1 && typeof v.double === "string") return Number(v.double);
  return new Map(Object.entries(v).map(([k, x]) => [k, value(x)]));
}

function said(v) {
  if (typeof v === "boolean" || typeof v === "bigint") return String(v);
  if (typeof v === "number") return Object.is(v, -0) ? "-0" : String(v);
  if (v && v._CelUint !== undefined) return String(v.value);
  if (v && typeof v.value === "bigint") return String(v.value);
  return "error: " + (v && v.message ? v.message : String(v)).split("\n")[0];
}

for await (const line of createInterface({ input: process.stdin })) {
  const { text, facts } = JSON.parse(line);
  let parsed;
  try {
    parsed = parse(text);
  } catch (e) {
    console.log("refused: " + e.message.split("\n")[0]);
    continue;
  }
  try {
    const context = Object.fromEntries(Object.entries(facts).map(([k, x]) => [k, value(x)]));
    console.log(said(plan(env, parsed)(context)));
  } catch (e) {
    console.log("error: " + e.message.split("\n")[0]);
  }
}
