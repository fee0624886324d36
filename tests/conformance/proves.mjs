// Sentences that are to be true.
let failed = false;

export async function proves(sentence, f) {
  try {
    await f();
    console.log(`ok   ${sentence}`);
  } catch (e) {
    failed = true;
    console.log(`FAIL ${sentence}: ${e?.stack ?? e}`);
  }
}

export function must(what, truth) {
  if (!truth) throw new Error(what);
}

export function done() {
  process.exit(failed ? 1 : 0);
}
