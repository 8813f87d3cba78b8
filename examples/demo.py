"""The main job from end to end: draw 25 answers about a picture, rank them, compare scorers.

The model is a tiny LLaVA with random weights, so its answers mean nothing; the path they take is
that of any LLaVA. Give a model of your own to see it work: `python examples/demo.py MODEL IMAGE`.
"""

import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw

from lookback.cli import app

QUESTION = "What is in the picture?"


def picture() -> Image.Image:
    """A red sun over a green field."""
    image = Image.new("RGB", (96, 96), (170, 205, 240))
    pen = ImageDraw.Draw(image)
    pen.rectangle((0, 60, 96, 96), fill=(80, 160, 70))
    pen.ellipse((50, 10, 82, 42), fill=(220, 60, 40))
    return image


def random_llava(folder: Path) -> None:
    """A LLaVA of the test-suite, saved as any model is."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from zoo import build

    zoo = build("llava")
    zoo.model.save_pretrained(folder)
    zoo.processor.save_pretrained(folder)


def main() -> None:
    """Run `lookback ask`, once for each of two scorers."""
    with tempfile.TemporaryDirectory() as name:
        model, image = [*sys.argv[1:3], "", ""][:2]
        if not model:
            model = name
            random_llava(Path(name))
            print("This model is a tiny LLaVA with RANDOM weights: its answers mean nothing.")
            print("What you see is the way from picture and question to ranked answers.\n")
        if not image:
            image = str(Path(name) / "picture.png")
            picture().save(image)
        for scorer in ("lookback", "self_certainty"):
            arguments = ["ask", image, QUESTION, "--model", model, "--max-new-tokens", "12"]
            print(f"$ lookback ask picture.png {QUESTION!r} -n 25 --scorer {scorer}")
            app([*arguments, "-n", "25", "--scorer", scorer], standalone_mode=False)
            print()


if __name__ == "__main__":
    main()
