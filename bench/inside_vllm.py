"""What the tap costs inside vLLM, and what vLLM gains: ratios of tokens per second in one run.

    make bench-vllm

The tap is taken out and put in again in the same engine, in turns. "Off" are requests of vLLM's own
sampler: without log-probabilities, and with one for each token, which is the least that a scorer
needs.
"""

import argparse
import asyncio
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from uuid import uuid4

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
from PIL import Image

import lookback
from lookback.conversations import Conversation
from lookback.engines.common.stream import Listener
from lookback.engines.vllm.client import scoring
from lookback.engines.vllm.tap_request import TapRequest

QUESTION = "Describe the picture."
SIDE = 192
"""Pixels of the larger model's pictures: 24 x 24 patches."""


def picture(seed, size=80):
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def tap_ratio(engine, questions, n, tokens, rounds):
    """Tokens per second with the tap, over those without; the best round of each."""
    client = engine.client
    prompts = [
        client.run(engine.prompts.of(Conversation.of(picture(i), QUESTION), None))
        for i in range(questions)
    ]

    async def plain(prompt, logprobs):
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            n=n,
            temperature=1.2,
            top_p=0.9,
            max_tokens=tokens,
            ignore_eos=True,
            detokenize=False,
            logprobs=logprobs,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        async for out in client.llm.generate(prompt.rendered, params, uuid4().hex):
            final = out
        return sum(len(one.token_ids) for one in final.outputs)

    async def tapped(prompt):
        tap_request = TapRequest("", prompt.source, tokens, 1, 1.2, 0.9)
        settings = {"max_tokens": tokens, "ignore_eos": True, "detokenize": False}
        found = await client.ask(prompt.rendered, tap_request, n, **settings)
        return sum(len(one.token_ids) for one in found)

    async def all_of(work):
        return sum(await asyncio.gather(*work))

    ways = {
        "off": lambda: all_of(plain(one, None) for one in prompts),
        "off, log p": lambda: all_of(plain(one, 0) for one in prompts),
        "on": lambda: all_of(tapped(one) for one in prompts),
    }
    best = dict.fromkeys(ways, 0.0)
    for number in range(rounds + 1):
        for name, way in ways.items():
            on = name == "on"
            if not on:
                client.run(client.llm.collective_rpc("lookback_switch", args=(False,)))
            client.run(client.llm.reset_prefix_cache())
            began = time.perf_counter()
            count = client.run(way())
            took = time.perf_counter() - began
            assert count == questions * n * tokens
            if number:  # the first round warms up
                best[name] = max(best[name], count / took)
            if not on:
                client.run(client.llm.collective_rpc("lookback_switch", args=(True,)))
    print(f"  {questions} questions x {n} candidates x {tokens} tokens")
    for name, rate in best.items():
        print(f"    {name:12} {rate:8.0f} tokens/s   on/{name}: {best['on'] / rate:.2f}")


def shared_blocks(prompts, n, vision, own, heads=8, size=64, block=32):
    """The second call of one layer: each candidate by itself, and what is shared asked once.

    Prompts of `vision` tokens in whole blocks, of which the first is asked about twice.
    """
    import torch
    from vllm import _custom_ops as ops
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    isa = _get_attn_isa(torch.float32, block, size, "auto")

    def seconds(requests, rows, length, causal):
        blocks = -(-length // block)
        cache = torch.randn(requests * blocks + 1, heads, 2 * block, size)
        keys, values = cache.chunk(2, dim=2)
        starts = torch.arange(0, (requests + 1) * rows, rows, dtype=torch.int32)
        lengths = torch.full((requests,), length, dtype=torch.int32)
        table = torch.arange(1, len(cache), dtype=torch.int32).view(requests, blocks)
        query = torch.randn(requests * rows, heads, size)
        shape = (requests, heads, heads, size, lengths, torch.float32, starts, causal, -1, isa)
        plan = ops.cpu_attn_get_scheduler_metadata(*shape, True)
        before = (query, keys, values, torch.empty_like(query), starts, lengths, size**-0.5)
        behind = (causal, None, -1, table, 0.0, plan, None)
        best = float("inf")
        for _ in range(10):
            began = time.perf_counter()
            ops.cpu_attention_with_kv_cache(*before, *behind)
            best = min(best, time.perf_counter() - began)
        return best

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    alone = seconds(prompts * n, 1, vision + own, True)
    together = seconds(prompts * n, 1, block + own, True) + seconds(prompts, n, vision, False)
    torch.set_num_threads(threads)
    print(f"  second call of a layer, {prompts} prompts of {vision} tokens x {n} candidates:")
    print(f"    alone {1e3 * alone:.1f} ms, shared blocks once {1e3 * together:.1f} ms")


def score_ways(engine, n, tokens, rounds):
    """Responses that are given: behind the prompt, as here, against the other two ways."""
    client = engine.client
    conversation = Conversation.of(picture(1), QUESTION)
    prompt = client.run(engine.prompts.of(conversation, None))
    tap_request = TapRequest("", prompt.source, tokens, 1, 1.2, 0.9)
    plain = {"ignore_eos": True, "detokenize": False}
    drawn = client.run(client.ask(prompt.rendered, tap_request, n, max_tokens=tokens, **plain))
    responses = [one.token_ids for one in drawn]

    async def read():
        await asyncio.gather(*(scoring.read(engine, prompt, ids, False) for ids in responses))

    async def decode():
        # A decode that is forced to given tokens has the steps of one that draws them.
        await client.ask(prompt.rendered, tap_request, n, max_tokens=tokens, **plain)

    async def prompt_logprobs():
        settings = plain | {"max_tokens": 1, "prompt_logprobs": 0}
        none = TapRequest("", prompt.source, 1)
        await asyncio.gather(
            *(client.ask(prompt.followed_by(ids), none, **settings) for ids in responses)
        )

    best = dict.fromkeys((read, decode, prompt_logprobs), float("inf"))
    for number in range(rounds + 1):
        for way in best:
            client.run(client.llm.reset_prefix_cache())
            began = time.perf_counter()
            client.run(way())
            if number:
                best[way] = min(best[way], time.perf_counter() - began)
    print(f"  {n} given responses of {tokens} tokens, time over that of reading them")
    for way, took in best.items():
        print(f"    {way.__name__:16} {took / best[read]:.2f}")


def listening(engine, threads, n, tokens, rounds):
    """Tokens per second of threads that listen or keep likeliest tokens, over quiet ones'."""
    ways = {
        "quiet": {},
        "heard every 0.5 s": {"every": 0.5},
        "heard every 0.1 s": {"every": 0.1},
        "heard at every step": {"every": 0.0},
        "5 likeliest tokens": {"top_log_probs": 5},
    }

    def ask(i, every=None, **settings):
        calls = []
        if every is not None:
            settings["listen"] = Listener(calls.append, every)
        settings |= {"seed": i, "max_new_tokens": tokens, "temperature": 3.0, "top_p": 1.0}
        found = engine.sample(picture(i), QUESTION, n, **settings)
        return sum(len(one.tokens) for one in found), len(calls)

    best = dict.fromkeys(ways, (0.0, 0))
    with ThreadPoolExecutor(threads) as pool:
        for number in range(rounds + 1):
            for name, settings in ways.items():
                began = time.perf_counter()
                done = list(pool.map(partial(ask, **settings), range(threads)))
                count, calls = (sum(some) for some in zip(*done, strict=True))
                if number:
                    rate = count / (time.perf_counter() - began)
                    best[name] = max(best[name], (rate, calls))
    print(f"  {threads} threads x {n} candidates of at most {tokens} tokens, over quiet ones")
    for name, (rate, calls) in best.items():
        print(f"    {name:20} {rate / best['quiet'][0]:.2f}   {calls} calls")


def against_transformers(inside, plain, flights, n, tokens):
    """Questions per second of both engines on the same work."""
    print(f"  against the transformers engine, {n} candidates of at most {tokens} tokens")
    for flight in flights:
        asked = [{"image": picture(i), "question": QUESTION, "seed": i} for i in range(flight)]
        rates = []
        for engine in (inside, plain):
            settings = {"n": n, "max_new_tokens": tokens}
            engine.sample_many(asked[:1], **settings)
            began = time.perf_counter()
            engine.sample_many(asked, **settings)
            rates.append(flight / (time.perf_counter() - began))
        print(f"    {flight:3} in flight: vllm / transformers = {rates[0] / rates[1]:.2f}")


def mid_size(folder):
    """A random LLaVA of 12 layers and 512 numbers per token, 576 of them for an image, on disk."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    from lookback.embedded import LVLM

    config = AutoConfig.from_pretrained(LVLM)
    text = config.text_config
    text.hidden_size, text.intermediate_size, text.num_hidden_layers = 512, 1408, 12
    text.num_attention_heads = text.num_key_value_heads = 8
    text.head_dim, text.max_position_embeddings = 64, 2048
    config.vision_config.image_size = SIDE
    config.image_seq_length = (SIDE // config.vision_config.patch_size) ** 2
    config.dtype = "float32"
    torch.manual_seed(0)
    AutoModelForImageTextToText.from_config(config).save_pretrained(folder)
    for file in Path(LVLM).iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            text = file.read_bytes()
            if file.name == "processor_config.json":
                text = text.replace(b": 80", f": {SIDE}".encode())
            (folder / file.name).write_bytes(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["embedded", "mid", "listening"])
    parser.add_argument("--block-size", type=int, help="the embedded model's, e.g. vLLM's own 128")
    options = parser.parse_args()
    if options.only in (None, "embedded"):
        print("embedded model, 6 layers")
        settings = {"block_size": options.block_size} if options.block_size else {}
        engine = lookback.load(engine="vllm", max_num_seqs=128, quiet=True, **settings)
        tap_ratio(engine, 4, 25, 60, options.rounds)
        score_ways(engine, 25, 60, options.rounds)
        against_transformers(engine, lookback.load(quiet=True), (1, 8, 32), 25, 60)
        engine.close()
    if options.only in (None, "listening"):
        print("embedded model, heard while it is written")
        engine = lookback.load(engine="vllm", max_num_seqs=128, quiet=True)
        for threads, n in ((1, 1), (4, 25), (32, 4)):
            listening(engine, threads, n, 60, options.rounds)
        engine.close()
    if options.only in (None, "mid"):
        with tempfile.TemporaryDirectory() as folder:
            mid_size(Path(folder))
            print("random LLaVA, 12 layers, 512 wide, 576 vision tokens")
            engine = lookback.load(folder, engine="vllm", max_num_seqs=128, quiet=True)
            tap_ratio(engine, 4, 25, 60, max(1, options.rounds // 2))
            shared_blocks(4, 25, 576, 84)
            engine.close()


if __name__ == "__main__":
    main()
