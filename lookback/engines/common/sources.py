"""Which tokens of a prompt the source is made of: the one place that decides it.

Vision tokens are known by their ids. To tell one image of several, or a marked text, the prompt is
taken apart: the chat template is rendered with marks in place of the texts, and the processor is
shown what the template writes for an image with a border before each (`_Layout`). What comes of it
is checked token by token against the prompt that the model is given; what does not fit is an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lookback.conversations import Conversation, Part, SourceError, Turn
from lookback.engines.common.prompts import Prompter
from lookback.errors import UnsupportedModelError

if TYPE_CHECKING:
    from lookback.conversations import SourceLike

_WORD = "LOOKBACK"
_MARK = "LOOKBACK{}TEXT"
_MARKS = re.compile(r"LOOKBACK(\d+)TEXT")
_KINDS = ("image", "video")

Span = tuple[int, int]


def source_mask(
    prompter: Prompter, conversation: Conversation, ids: Sequence[int], source: SourceLike = None
) -> Tensor:
    """Return a mask over the prompt's tokens, (P,): True where a token belongs to the source.

    Exact at the borders of parts. A token that reaches over the border of a text belongs to the
    source if most of its characters do. `source` is as `Conversation.source` takes it.

    Raises:
        SourceError: there is no such source, or it cannot be found in the prompt.
        UnsupportedModelError: an image left no token in the prompt.
    """
    chosen = conversation.source(source)
    tokens = torch.tensor(list(ids))
    mask = torch.zeros(len(tokens), dtype=torch.bool)
    layout: _Layout | None = None
    for kind, numbers in zip(_KINDS, (chosen.images, chosen.videos), strict=True):
        if not conversation.parts(kind):
            continue
        placed = torch.eq(tokens, prompter.media_tokens[kind])
        if not placed.any():
            raise UnsupportedModelError(
                f"no {kind} token (id {prompter.media_tokens[kind]}) in the prompt, though it has "
                f"one: LookBack needs the vision tokens among the decoder's input ids"
            )
        if not numbers:
            continue
        if len(numbers) < len(conversation.parts(kind)):
            layout = layout or _Layout.of(prompter, conversation, ids)
            placed &= layout.media(kind, numbers)
        mask |= placed
    if chosen.texts:
        layout = layout or _Layout.of(prompter, conversation, ids)
        mask |= layout.texts(conversation, chosen.texts)
    return mask


def media_places(
    prompter: Prompter, conversation: Conversation, ids: Sequence[int], kind: str
) -> list[Tensor]:
    """Return where the vision tokens of each image (or of each video) stand in a prompt.

    Raises:
        SourceError: they cannot be told apart.
    """
    if len(conversation.parts(kind)) > 1:
        return _Layout.of(prompter, conversation, ids).split(kind)
    return [torch.eq(torch.tensor(list(ids)), prompter.media_tokens[kind]).nonzero()[:, 0]]


@dataclass(frozen=True)
class _Layout:
    """Where everything is in a prompt.

    Attributes:
        prompter: renders it.
        ids: its tokens, (P,).
        text: as the chat template wrote it.
        places: of each image and video, in the order of the text: its kind, where the template's
            words for it begin and end, and the tokens that the processor makes of them.
    """

    prompter: Prompter
    ids: Tensor
    text: str
    places: list[tuple[str, Span, list[int]]]

    @classmethod
    def of(cls, prompter: Prompter, conversation: Conversation, ids: Sequence[int]) -> _Layout:
        text = prompter.text(conversation)
        places: list[tuple[str, Span]] = []
        for kind in _KINDS:
            count = len(conversation.parts(kind))
            if not count:
                continue
            words = _media_words(prompter, kind)
            starts = [match.start() for match in re.finditer(re.escape(words), text)]
            if not words or len(starts) != count:
                raise SourceError(
                    f"cannot tell where each {kind} is: the template writes {words!r} for one, "
                    f"which stands {len(starts)} times in a prompt with {count}"
                )
            places += [(kind, (start, start + len(words))) for start in starts]
        places.sort(key=lambda place: place[1])
        order = [kind for kind, _ in places]
        tokens = _media_expansions(prompter, order, conversation)
        return cls(
            prompter,
            torch.tensor(list(ids)),
            text,
            [(kind, span, ids) for (kind, span), ids in zip(places, tokens, strict=True)],
        )

    def media(self, kind: str, numbers: frozenset[int]) -> Tensor:
        """Return the mask of the vision tokens of some of the images, or of the videos."""
        mask = torch.zeros(len(self.ids), dtype=torch.bool)
        for number, part in enumerate(self.split(kind)):
            mask[part] = number in numbers
        return mask

    def split(self, kind: str) -> list[Tensor]:
        token = self.prompter.media_tokens[kind]
        sizes = [ids.count(token) for media, _, ids in self.places if media == kind]
        here = torch.eq(self.ids, token).nonzero()[:, 0]
        if sum(sizes) != len(here):
            raise SourceError(
                f"cannot tell the {kind}s apart: by itself each has {sizes} vision tokens, "
                f"together {len(here)}"
            )
        return list(here.split(sizes))

    def texts(self, conversation: Conversation, numbers: frozenset[int]) -> Tensor:
        """Return the mask of the tokens of some of the texts."""
        spans = text_spans(self.prompter, conversation, self.text)
        missing = sorted(numbers - spans.keys())
        if missing:
            raise SourceError(
                f"text part {missing[0]} is marked as the source, but this model's chat template "
                "does not write it into the prompt as it is"
            )
        whole, moved = self._expanded([spans[number] for number in sorted(numbers)])
        ids, offsets = _offsets(self.prompter, whole)
        if ids != self.ids.tolist():
            raise SourceError(
                "cannot find the marked text among the prompt's tokens: the processor of this "
                "model changes the prompt in a way that cannot be followed"
            )
        return torch.tensor([_belongs(token, moved) for token in offsets])

    def _expanded(self, spans: list[Span]) -> tuple[str, list[Span]]:
        """Return the text that the processor tokenizes, and where the spans are in it."""
        pieces, done, shifts = [], 0, []
        for _, (start, end), ids in self.places:
            written = self.prompter.decode_all(ids)
            pieces += [self.text[done:start], written]
            shifts.append((end, len(written) - (end - start)))
            done = end
        moved = []
        for start, end in spans:
            by = sum(shift for behind, shift in shifts if behind <= start)
            moved.append((start + by, end + by))
        return "".join([*pieces, self.text[done:]]), moved


def text_spans(prompter: Prompter, conversation: Conversation, text: str) -> dict[int, Span]:
    """Return where each text of a conversation begins and ends in its rendered prompt.

    Found by rendering the same conversation with marks in place of its texts. Those that the
    template leaves out are not there; blanks at their ends may be gone.
    """
    said = [part.text for part in conversation.parts("text")]
    marked = prompter.text(_marked(conversation))
    pieces = _MARKS.split(marked)  # fixed, number, fixed, number, ..., fixed
    fixed, order = pieces[::2], [int(number) for number in pieces[1::2]]
    if not text.startswith(fixed[0]):
        return {}
    spans, position = {}, len(fixed[0])
    for number, behind in zip(order, fixed[1:], strict=True):
        for words in (said[number], said[number].strip()):
            if text.startswith(words + behind, position):
                break
        else:
            return {}
        spans[number] = (position, position + len(words))
        position += len(words) + len(behind)
    return spans if position == len(text) and len(set(order)) == len(order) else {}


def _marked(conversation: Conversation) -> Conversation:
    numbers = iter(range(10**9))

    def turn(one: Turn) -> Turn:
        parts = [
            replace(part, text=_MARK.format(next(numbers))) if part.kind == "text" else part
            for part in one.parts
        ]
        return replace(one, parts=tuple(parts))

    return Conversation(tuple(turn(one) for one in conversation.turns))


def _belongs(token: Span, spans: list[Span]) -> bool:
    """Whether most of a token's characters are in the spans."""
    start, end = token
    inside = sum(max(0, min(end, b) - max(start, a)) for a, b in spans)
    return 2 * inside > end - start


def _media_words(prompter: Prompter, kind: str) -> str:
    """Return what the template writes for an image or video, first to last special token."""
    if prompter.format is not None:
        return prompter.placeholder
    plain = prompter.render([Turn("user", (Part("text", _WORD),))], add_generation_prompt=False)
    part: Part = Part("image") if kind == "image" else Part("video")
    shown = Turn("user", (part, Part("text", _WORD)))
    more = prompter.render([shown], add_generation_prompt=False)
    added = prompter.tokenizer.get_added_vocab()
    tokens = [token for token in added if token in more and token not in plain]
    if not tokens:
        return ""
    first = min(more.index(token) for token in tokens)
    last = max(more.rindex(token) + len(token) for token in tokens)
    return more[first:last]


def _media_expansions(
    prompter: Prompter, order: Sequence[str], conversation: Conversation
) -> list[list[int]]:
    """Return the tokens that the processor makes of each image and video.

    They are shown to it once more, in the prompt's `order` of kinds, each behind a special token
    that stands nowhere else.

    Raises:
        SourceError: the processor does not keep them apart.
    """
    words = {kind: _media_words(prompter, kind) for kind in set(order)}
    special = prompter.special_tokens
    border = next((t for t in special if not any(t in w for w in words.values())), None)
    if border is None:
        raise SourceError("the tokenizer has no special token to tell the images apart by")
    text = "".join(border + words[kind] for kind in order) + border
    inputs = prompter.process([conversation], [text])
    ids = inputs["input_ids"][0].tolist()
    number = prompter.tokenizer.convert_tokens_to_ids(border)
    edges = [i for i, token in enumerate(ids) if token == number][-len(order) - 1 :]
    if len(edges) != len(order) + 1:
        raise SourceError("the processor of this model does not keep its images apart")
    return [ids[a + 1 : b] for a, b in pairwise(edges)]


def _offsets(prompter: Prompter, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the tokens of a whole prompt, and which of its characters each stands for.

    Raises:
        SourceError: the tokenizer cannot tell.
    """
    if not prompter.tokenizer.is_fast:
        raise SourceError(
            f"a text as the source needs to know which characters each token stands for, and "
            f"{type(prompter.tokenizer).__name__} cannot tell"
        )
    encoded = prompter.tokenizer(
        text, add_special_tokens=prompter.adds_special(text), return_offsets_mapping=True
    )
    return list(encoded["input_ids"]), [(int(a), int(b)) for a, b in encoded["offset_mapping"]]
