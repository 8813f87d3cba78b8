/* Blocks: see lookback/pages/blocks.py. */

const CAN_DECODE = typeof DecompressionStream === "function";

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const raw = atob(base64);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Float32, little-endian as every machine that a browser runs on, from bytes in shuffled order. */
function unshuffle(bytes, count) {
  const plain = new Uint8Array(4 * count);
  for (let byte = 0, at = 0; byte < 4; byte++) {
    for (let i = 0; i < count; i++) plain[4 * i + byte] = bytes[at++];
  }
  return new Float32Array(plain.buffer);
}

/** A block's items, and a function that cuts the next numbers from those of a name. */
async function unpack(base64) {
  const bytes = await inflate(bytesOf(base64));
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const { items, numbers } = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const values = {};
  let at = 4 + length;
  for (const [name, count] of numbers) {
    values[name] = { all: unshuffle(bytes.subarray(at, at + 4 * count), count), next: 0 };
    at += 4 * count;
  }
  const cut = (name, count) => {
    const own = values[name];
    return own.all.subarray(own.next, (own.next += count));
  };
  return { items, cut };
}
