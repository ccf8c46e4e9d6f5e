// Questions that the demos can answer: word problems of the kind that they were made for.

export const EXAMPLES = [
  "Tara has 2 bags of 4 pears. Tara gives 4 to Uma. How many pears are there in the end?",
  "Cara has 28 cookies. Cara finds 4 cookies. How many cookies are there in the end?",
  "Eva has 19 cups. Eva finds 6 cups. Mia gives Eva 9 more. Eva buys 2 more. How many cups are there in the end?",
];

/** Says whether a model of `/v1/models` is one of the demos, which know word problems and nothing else. */
export function isDemo(model) {
  return /^demo-(?:llada|dream|sdar|qwen)$/.test(model?.root ?? "");
}
