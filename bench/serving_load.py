"""200 clients at `lookback serve` for two minutes: good, slow, huge, broken and abandoned requests.

Every good request must be answered (one that is refused because the line is full is sent again, as
OpenAI's clients do), every other must be refused in words, memory must stay flat, and no client may
starve. Prints a table, and ends with status 1 if one of these does not hold.
"""

import argparse
import asyncio
import base64
import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

import httpx
import numpy as np
from PIL import Image

from lookback.scenes.render import render
from lookback.scenes.scene import sample_scene

QUESTIONS = ("What is in the picture?", "Describe the picture.", "Is there a cup?")
SHARES = {"good": 0.5, "streaming": 0.1, "slow": 0.1, "huge": 0.1, "broken": 0.1, "abandoned": 0.1}
"""Of the clients."""
GOOD = ("good", "streaming", "slow")
"""Those whose requests must be answered."""
GROWTH = 1.05
"""The memory of the last quarter may be so many times that of the second."""


@dataclass
class Tally:
    """What came of the requests of one kind of client.

    Attributes:
        answers: statuses and how often each came.
        seconds: from the first attempt to the answer.
        wrong: what should not have come.
        by_client: answers of each client.
    """

    answers: dict = field(default_factory=dict)
    seconds: list = field(default_factory=list)
    wrong: list = field(default_factory=list)
    by_client: dict = field(default_factory=dict)

    def took(self, status):
        self.answers[status] = self.answers.get(status, 0) + 1


def uri(image):
    held = io.BytesIO()
    image.save(held, "PNG")
    return f"data:image/png;base64,{base64.b64encode(held.getvalue()).decode()}"


def body(rng, images, **more):
    content = [
        {"type": "image_url", "image_url": {"url": rng.choice(images)}},
        {"type": "text", "text": rng.choice(QUESTIONS)},
    ]
    settings = {"best_of": rng.choice([1, 3, 5]), "prune": rng.choice([None, [[8, 2]]])}
    return {
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 24,
        "seed": rng.randrange(1000),
        "lookback": settings,
    } | more


class Client:
    """One client, which asks again and again.

    Args:
        kind: how it behaves.
        number: its own.
        address: the server's.
        images: what it asks about.
        tally: of its kind.
        pause: seconds from an answer to the next request, on average.
    """

    def __init__(self, kind, number, address, images, tally, pause):
        self.kind, self.number, self.images, self.tally = kind, number, images, tally
        self.rng, self.pause, self.address = random.Random(number), pause, address
        self.http = httpx.AsyncClient(base_url=address, timeout=180)

    async def live(self, until):
        """Ask until it is time; what was begun is ended."""
        await asyncio.sleep(self.rng.random() * self.pause)
        while time.monotonic() < until:
            start = time.monotonic()
            try:
                status = await getattr(self, self.kind)()
            except Exception as error:
                status = type(error).__name__
                self.tally.wrong.append(f"{self.kind}: {status}: {error}"[:200])
            self.tally.took(status)
            if self.kind in GOOD:
                self.tally.seconds.append(time.monotonic() - start)
                count = self.tally.by_client.get(self.number, 0)
                self.tally.by_client[self.number] = count + (status == 200)
                if status != 200:
                    self.tally.wrong.append(f"{self.kind}: {status}")
            await asyncio.sleep(self.rng.expovariate(1 / self.pause))
        await self.http.aclose()

    async def good(self, content=None, **more):
        """Ask, and come again when the line is full."""
        asked = body(self.rng, self.images, **more)
        for _ in range(50):
            sent = {"json": asked} if content is None else content(asked)
            answer = await self.http.post("/v1/chat/completions", **sent)
            if answer.status_code != 429:
                break
            self.tally.took(429)
            wait = float(answer.headers["retry-after"])
            await asyncio.sleep(wait * (0.5 + self.rng.random()))
        if answer.status_code == 200 and "choices" not in answer.text:
            self.tally.wrong.append(f"no choices: {answer.text[:100]}")
        return answer.status_code

    async def streaming(self):
        return await self.good(stream=True)

    async def slow(self):
        """Send the request in drops."""

        def drops(asked):
            data = json.dumps(asked).encode()

            async def trickle():
                step = len(data) // 8 + 1
                for start in range(0, len(data), step):
                    yield data[start : start + step]
                    await asyncio.sleep(0.3)

            return {"content": trickle(), "headers": {"content-type": "application/json"}}

        return await self.good(drops)

    async def huge(self):
        """More bytes, or more pixels, than are allowed."""
        if self.rng.random() < 0.5:
            picture = uri(Image.new("1", (9000, 9000)))
            asked = body(self.rng, [picture])
            answer = await self.http.post("/v1/chat/completions", json=asked)
        else:

            async def flood():
                for _ in range(1024):
                    yield b" " * 65536

            head = {"content-type": "application/json"}
            try:
                answer = await self.http.post("/v1/chat/completions", content=flood(), headers=head)
            except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
                return "cut off"  # the refusal came before all of it was sent
        self._refused(answer, {413, 429})
        return answer.status_code

    async def broken(self):
        """What is no request."""
        head = {"content-type": "application/json"}
        content = self.rng.choice(
            [
                b"{",
                b"[" * 100_000,
                b'{"messages": 5}',
                json.dumps(body(self.rng, ["data:image/png;base64,AAAA"])).encode(),
                json.dumps(body(self.rng, self.images, n=10**6)).encode(),
                json.dumps(body(self.rng, self.images, tools=[{"type": "function"}])).encode(),
                json.dumps(body(self.rng, ["http://169.254.169.254/"])).encode(),
            ]
        )
        answer = await self.http.post("/v1/chat/completions", content=content, headers=head)
        self._refused(answer, {400, 429})
        return answer.status_code

    async def abandoned(self):
        """Go away in the middle."""
        asked = body(self.rng, self.images, max_tokens=200, stream=self.rng.random() < 0.5)
        asked["lookback"]["best_of"] = 25
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.02 + self.rng.random() * 0.5):
                async with httpx.AsyncClient(base_url=self.address, timeout=180) as own:
                    await own.post("/v1/chat/completions", json=asked)
        return "gone"

    def _refused(self, answer, statuses):
        if answer.status_code not in statuses or "error" not in answer.json():
            self.tally.wrong.append(f"{self.kind}: {answer.status_code} {answer.text[:100]}")


def resident(pid):
    """MiB of memory."""
    with open(f"/proc/{pid}/status") as file:
        line = next(line for line in file if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


async def watch(pid, address, until, found):
    """The server's memory, line and health, every second."""
    async with httpx.AsyncClient(base_url=address, timeout=60) as http:
        while time.monotonic() < until:
            start = time.monotonic()
            health = await http.get("/health")
            found["health"].append(time.monotonic() - start if health.status_code == 200 else 1e9)
            found["memory"].append(resident(pid))
            await asyncio.sleep(1)


async def attack(pid, address, options):
    rng = random.Random(options.seed)
    images = [uri(render(sample_scene(seed))) for seed in range(20)]
    kinds = [kind for kind, share in SHARES.items() for _ in range(round(share * options.clients))]
    rng.shuffle(kinds)
    tallies = {kind: Tally() for kind in SHARES}
    clients = [
        Client(kind, i, address, images, tallies[kind], options.pause)
        for i, kind in enumerate(kinds)
    ]
    found = {"memory": [], "health": []}
    until = time.monotonic() + options.seconds
    work = [client.live(until) for client in clients]
    await asyncio.gather(watch(pid, address, until, found), *work)
    async with httpx.AsyncClient(base_url=address) as http:
        for _ in range(100):  # the last who went away are noticed
            metrics = (await http.get("/metrics")).text
            if "lookback_in_flight 0.0" in metrics and "lookback_queue 0.0" in metrics:
                break
            await asyncio.sleep(0.1)
    return tallies, found, metrics


def judge(tallies, found, metrics):
    """What does not hold."""
    wrong = [line for tally in tallies.values() for line in tally.wrong]
    starved = [
        number for kind in GOOD for number, count in tallies[kind].by_client.items() if count == 0
    ]
    wrong += [f"client {number} was never answered" for number in starved]
    memory = np.array(found["memory"])
    quarter = max(1, len(memory) // 4)
    early, late = np.median(memory[quarter : 2 * quarter]), np.median(memory[-quarter:])
    if late > GROWTH * early:
        wrong.append(f"memory grew from {early:.0f} to {late:.0f} MiB")
    for name in ("lookback_in_flight", "lookback_queue"):
        if f"{name} 0.0" not in metrics:
            wrong.append(f"{name} is not 0 in the end")
    return wrong, early, late


def report(tallies, found, metrics, options):
    wrong, early, late = judge(tallies, found, metrics)
    print(f"{options.clients} clients, {options.seconds:g} s; {options.model or 'embedded model'}")
    print(f"{'kind':10} {'answers':34} {'median':>7} {'p95':>7} {'longest':>8}  s")
    for kind, tally in tallies.items():
        said = ", ".join(f"{count} x {status}" for status, count in tally.answers.items())
        times = np.array(tally.seconds or [np.nan])
        numbers = [np.median(times), np.quantile(times, 0.95), times.max()]
        shown = " ".join("       -" if np.isnan(x) else f"{x:8.2f}" for x in numbers)
        print(f"{kind:10} {said:34} {shown}")
    each = [count for kind in GOOD for count in tallies[kind].by_client.values()]
    print(f"answers per good client: {min(each)} at least, {np.median(each):g} median")
    print(f"memory: {early:.0f} MiB in the second quarter, {late:.0f} MiB in the last")
    print(f"/health: {max(found['health']):.2f} s at most")
    gone = [line for line in metrics.splitlines() if line.startswith("lookback_clients_gone_total")]
    print(f"clients that went away, as the server counts: {float(gone[0].split()[1]):.0f}")
    for line in wrong[:20]:
        print(f"WRONG: {line}")
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--pause", type=float, default=40, help="seconds between two requests")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model")
    parser.add_argument("options", nargs="*", help="further options of lookback serve, behind --")
    options = parser.parse_args()
    command = [sys.executable, "-m", "lookback.cli", "serve", "--port", "0", "--quiet"]
    command += ["--model", options.model] if options.model else []
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(
        [*command, *options.options], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        address = server.stdout.readline().strip()
        right = report(*asyncio.run(attack(server.pid, address, options)), options)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    sys.exit(not right)


if __name__ == "__main__":
    main()
