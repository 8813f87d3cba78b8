// OpenAI's own client for Node: what tests/server/test_clients.py asks of it, as JSON on stdout.
import { pathToFileURL } from "node:url";
const [folder, address, image] = process.argv.slice(2);
const { default: OpenAI } = await import(pathToFileURL(`${folder}/node_modules/openai/index.mjs`));
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: "unused" });
const content = [{ type: "image_url", image_url: { url: image } }, { type: "text", text: "What is in the picture?" }];
const asked = {
  model: "embedded", messages: [{ role: "user", content }], seed: 7, temperature: 1, top_p: 0.9,
  max_tokens: 60, lookback: { best_of: 4 },
};
const whole = await client.chat.completions.create({ ...asked, n: 2, logprobs: true });
let streamed = "";
let last = null;
for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  last = chunk.choices[0] ?? last;
}
let refused = null;
try {
  await client.chat.completions.create({ ...asked, tools: [{ type: "function", function: { name: "f" } }] });
} catch (error) {
  refused = { status: error.status, param: error.param, kind: error.constructor.name };
}
const models = (await client.models.list()).data.map((one) => one.id);
console.log(JSON.stringify({ whole, streamed, last, refused, models }));
