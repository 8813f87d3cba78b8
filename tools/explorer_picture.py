"""Pictures of the explorer: docs/explorer.png, and docs/explorer.gif of it at work.

`make explorer-picture`: starts `lookback serve` with the embedded model, opens the page,
asks, points at words, moves a slider, and keeps what the screen shows meanwhile. Nothing is staged
but the order of things; the arrow is drawn where the pointer is.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import io
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageDraw

SIZE = (1180, 800)
WIDTH = 944  # pixels of the moving picture
COLORS = 256
MOST = 1_500_000  # bytes
ARROW = ((0, 0), (0, 17), (4, 13), (7, 20), (10, 19), (7, 12), (12, 12))


class Frame(NamedTuple):
    """What the screen showed, and since when."""

    image: Image.Image
    at: float


@contextlib.contextmanager
def served() -> Iterator[str]:
    """A server of the embedded model; its address."""
    command = [sys.executable, "-m", "lookback.cli", "serve", "--port", "0", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Chromium, with a screen of our size that likes light pages."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "/usr/bin/chromium"
    with tempfile.TemporaryDirectory() as profile:
        flags = ("headless", "no-sandbox", "disable-gpu", "hide-scrollbars")
        for flag in (*flags, "disable-background-networking", f"user-data-dir={profile}"):
            options.add_argument(f"--{flag}")
        driver = webdriver.Chrome(
            options, webdriver.ChromeService(shutil.which("chromedriver") or "")
        )
        try:
            yield driver
        finally:
            driver.quit()


class Screen:
    """The page on its screen, and the frames that were kept of it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.frames: list[Frame] = []
        self.pointer = (SIZE[0] * 0.62, SIZE[1] * 0.6)

    def size(self, scale: float) -> None:
        """Show so many pixels per pixel of the page."""
        width, height = SIZE
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def run(self, script: str) -> Any:
        """Run a script in the page."""
        return self.driver.execute_script(script)

    def wait(self, condition: str) -> None:
        """Until a condition of the page holds."""
        for _ in range(600):
            if self.run(f"return {condition}"):
                return
            time.sleep(0.05)
        raise SystemExit(f"explorer_picture: never {condition}")

    def picture(self) -> Image.Image:
        """What is shown now."""
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
        return Image.open(io.BytesIO(base64.b64decode(shot))).convert("RGB")

    def keep(self, seconds: float) -> None:
        """Keep what is shown for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            at = time.monotonic()
            image = self.picture()
            pen = ImageDraw.Draw(image)
            points = [(self.pointer[0] + x, self.pointer[1] + y) for x, y in ARROW]
            pen.polygon(points, fill="#1c1f24", outline="#ffffff")
            self.frames.append(Frame(image, at))

    def point(self, selector: str, number: int = 0) -> None:
        """Move the pointer to the middle of an element, on a straight line."""
        box = self.run(
            f"const b = document.querySelectorAll({selector!r})[{number}].getBoundingClientRect();"
            "return [b.left + b.width / 2, b.top + b.height / 2];"
        )
        start = self.pointer
        for step in (0.35, 0.75, 1.0):
            self.pointer = tuple(a + step * (b - a) for a, b in zip(start, box, strict=True))
            self.mouse("mouseMoved")
            self.keep(0.01)

    def hover(self, selector: str, number: int) -> None:
        """Point at a word until the picture shows where it looked."""
        self.point(selector, number)
        x, y = self.pointer
        for step in range(100):
            if self.run("return document.getElementById('frame').dataset.word"):
                return
            time.sleep(0.1)
            self.pointer = (x + step % 2, y)  # a hand is never quite still
            self.mouse("mouseMoved")
        raise SystemExit(f"explorer_picture: word {number} looked nowhere")

    def mouse(self, kind: str) -> None:
        """An event of the pointer, where it is."""
        x, y = self.pointer
        button = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
        event = {"type": kind, "x": x, "y": y, "pointerType": "mouse", **button}
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)

    def click(self, selector: str) -> None:
        """Point at an element and click."""
        self.point(selector)
        self.mouse("mousePressed")
        self.mouse("mouseReleased")


def words_that_looked(screen: Screen, count: int) -> list[int]:
    """The places of the best answer's words that looked most, in their order."""
    ordered = screen.run(
        """const words = [...document.querySelectorAll("#candidates > li:first-child .said .word")];
           const strength = (w) => Number(w.firstChild.style.getPropertyValue("--strength"));
           const letters = (w) => w.textContent.replace(/[^a-z]/gi, "").length;
           return words.map((word, i) => [i, strength(word), letters(word)])
             .filter(([, , length]) => length > 3).sort((a, b) => b[1] - a[1]).map(([i]) => i);"""
    )
    return sorted(ordered[:count])


def play(screen: Screen) -> None:
    """Ask, point at words, move a slider, compare."""
    word = "#candidates > li:first-child .said .word"
    screen.keep(0.9)
    screen.click("#ask")
    screen.keep(2.6)
    screen.wait("document.getElementById('explorer').ariaBusy === 'false'")
    screen.keep(0.8)
    for place in words_that_looked(screen, 3):
        screen.hover(word, place)
        screen.keep(1.0)
    screen.point("#alpha")
    for step in (12, 25, 40, 60):
        screen.run(
            f"""const field = document.getElementById("alpha");
                field.value = {step / 20};
                field.dispatchEvent(new Event("input"));"""
        )
        screen.keep(0.45)
    screen.keep(0.5)
    screen.click("#reset")
    screen.keep(0.6)
    screen.click(".compare-it")
    screen.wait("document.querySelector('.columns')")
    screen.pointer = (SIZE[0] * 0.9, SIZE[1] * 0.97)
    screen.mouse("mouseMoved")
    screen.keep(2.2)


def shared_palette(images: list[Image.Image]) -> Image.Image:
    """The colours of some frames; the picture in them, which has most, counts several times."""
    width, height = images[0].size
    sheet = Image.new("RGB", (width, 3 * height * len(images)))
    for place, image in enumerate(images):
        left = image.crop((0, 0, width // 3, height)).resize((width, 2 * height))
        sheet.paste(image, (0, 3 * place * height))
        sheet.paste(left, (0, (3 * place + 1) * height))
    return sheet.quantize(COLORS, kmeans=2)


def save_moving(frames: list[Frame], path: Path) -> None:
    """The frames as a GIF that goes round, each for as long as it was on the screen."""
    height = round(WIDTH * SIZE[1] / SIZE[0])
    small = [f.image.resize((WIDTH, height), Image.Resampling.LANCZOS) for f in frames]
    palette = shared_palette([small[n] for n in (0, len(small) // 2, -1, -1)])
    plain = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in small]
    times = [frame.at for frame in frames]
    lasting = [b - a for a, b in pairwise(times)] + [1.5]
    durations = [max(40, min(1000, round(1000 * seconds))) for seconds in lasting]
    plain[0].save(
        path, save_all=True, append_images=plain[1:], duration=durations, loop=0, optimize=True
    )
    if path.stat().st_size > MOST:
        raise SystemExit(f"explorer_picture: {path} has {path.stat().st_size} bytes: too many")


def save_still(screen: Screen, path: Path) -> None:
    """The page while a word is pointed at."""
    screen.size(1.5)
    time.sleep(1)  # rows have come to their places
    place = words_that_looked(screen, 1)[0]
    screen.run("scrollTo({ top: 0, behavior: 'instant' })")
    screen.pointer = (5, 5)
    screen.hover("#candidates > li:first-child .said .word", place)
    time.sleep(0.5)
    screen.picture().save(path, optimize=True)


def main() -> None:
    """Record both."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("docs"), help="where to")
    given = parser.parse_args()
    with served() as address, browser() as driver:
        screen = Screen(driver)
        screen.size(1)
        driver.get(address)
        screen.run("localStorage.setItem('lookback-toured', 'yes')")
        driver.get(address)
        screen.wait("document.body.dataset.ready")
        play(screen)
        save_moving(screen.frames, given.out / "explorer.gif")
        driver.refresh()  # the address has it all: it asks again
        screen.wait("document.body.dataset.ready")
        screen.wait("document.getElementById('explorer').ariaBusy === 'false'")
        save_still(screen, given.out / "explorer.png")
    print(f"{len(screen.frames)} frames")


if __name__ == "__main__":
    main()
