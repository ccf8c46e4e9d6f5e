// Runs checks and tells of each whether it held.

export const URL = process.env.CHECK_URL ?? "http://127.0.0.1:8080";
export const MODEL = process.env.CHECK_MODEL ?? "";
export const KEY = process.env.CHECK_KEY ?? "none";
export const QUESTION = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";

export function holds(condition, found) {
  if (!condition) throw new Error(typeof found === "string" ? found : JSON.stringify(found));
}

export function equal(found, expected, what = "value") {
  const [one, other] = [JSON.stringify(found), JSON.stringify(expected)];
  if (one !== other) throw new Error(`${what} is ${one}, expected ${other}`);
}

export async function raises(work) {
  try {
    await work();
  } catch (error) {
    return error;
  }
  throw new Error("no error");
}

export async function run(checks) {
  let failures = 0;
  for (const [name, check] of Object.entries(checks)) {
    const began = performance.now();
    let told = "";
    try {
      await check();
    } catch (error) {
      failures += 1;
      told = `: ${error.name}: ${String(error.message).replaceAll(/\s+/g, " ").slice(0, 600)}`;
    }
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    console.log(`${told ? "FAILED" : "passed"} ${name} (${seconds} s)${told}`);
  }
  process.exit(failures ? 1 : 0);
}
