"""The explorer's arithmetic in a real browser beside Python's: scorers, votes, events, links."""

import json

import numpy as np
import pytest
from chromium import needs_chromium
from server.exploring import ABOUT, open_page

from lookback.scores.base import best_first
from lookback.scores.formula import A_FLOOR
from lookback.scores.texts import normalised
from lookback.server.explorer import SCORERS
from lookback.signals import Candidate, Candidates, Signals

pytestmark = needs_chromium

TEXTS = [
    *(
        "The cup.",
        "a cup",
        "cup",
        "CUP!",
        "Two cups",
        "3.5",
        "3,5",
        "3.",
        "-3",
        "a",
        "The",
        "",
        "  ",
    ),
    *(
        "An apple, the apple",
        "Straße",
        "STRASSE",
        "ﬁsh",
        "o'clock",
        "a-b",
        "they",
        "x_y",
        "?!",
        "...",
    ),
    *("Die Äpfel", "١٢", "一个 杯子。", "naïve", "İstanbul", "the\nend", "½ cup", "a\u00a0cup"),
]


@pytest.fixture(scope="module")
def opened(browser, client):
    open_page(browser, client)
    return browser


def made(seed, n=25):
    """Candidates with signals of no model: some alike, one empty, some pruned, A of 0 in places."""
    rng = np.random.default_rng(seed)
    words = [" A", " red", " cup", " ball", ".", " the", " sun"]
    items = []
    for index in range(n):
        length = 0 if index == 3 else int(rng.integers(1, 9))
        tokens = [words[i] for i in rng.integers(0, len(words), length)]
        if index in (8, 12, 20):
            tokens = [" A", " red", " cup"]
        looked = rng.beta(2, 3, len(tokens))
        looked[rng.random(len(tokens)) < 0.1] = 0
        items.append(
            Candidate(
                index=index,
                text="".join(tokens).strip(),
                signals=Signals(
                    np.arange(len(tokens)),
                    tuple(tokens),
                    log_prob=np.log(rng.beta(3, 1, len(tokens))),
                    visual_lookback=looked,
                    self_certainty=rng.gamma(3, 2, len(tokens)),
                    entropy=rng.gamma(1, 1, len(tokens)),
                ),
                finish="pruned" if index in (5, 17) else "end",
            )
        )
    return Candidates(tuple(items), "What?", np.arange(3))


def as_json(c):
    signals = ("log_prob", "visual_lookback", "self_certainty", "entropy")
    return {"index": c.index, "finish": c.finish, "tokens": list(c.tokens), "token_ids": []} | {
        name: getattr(c, name).tolist() for name in signals
    }


@pytest.mark.parametrize("name", SCORERS)
@pytest.mark.parametrize(("alpha", "lam"), [(0.5, 2.0), (0.0, 0.0), (3.35, 0.7)])
def test_the_page_scores_and_ranks_as_python_does(opened, name, alpha, lam):
    candidates = made(seed=round(100 * alpha))
    setting = {"alpha": alpha, "lam": lam}
    true = candidates.scores(name, **(setting if name in ("lookback", "majority") else {}))
    got, order = opened.execute_script(
        """const [told, name, setting, floor] = arguments;
           const cs = told.map((c) => opened(c, Infinity, floor));
           const scores = RANKERS[name](cs, setting);
           return [scores.map((s) => (Number.isNaN(s) ? null : s)), rank(scores)];""",
        [as_json(c) for c in candidates],
        name,
        setting,
        A_FLOOR,
    )
    np.testing.assert_allclose(np.array(got, float), true, rtol=1e-9, atol=1e-12)
    assert order == best_first(true).tolist()


def test_the_first_tokens_alone_are_scored_as_if_there_were_no_others(opened):
    c = made(1)[0]
    cut = as_json(c) | {"tokens": list(c.tokens)[:2]}
    cut |= {n: cut[n][:2] for n in ("log_prob", "visual_lookback", "self_certainty", "entropy")}
    both = opened.execute_script(
        """return [opened(arguments[0], 2, 1e-12), opened(arguments[1], Infinity, 1e-12)]
             .map((c) => METHODS.lookback(c, { alpha: 0.5, lam: 2 }))""",
        as_json(c),
        cut,
    )
    assert both[0] == both[1]


def test_answers_are_alike_where_python_says_so(opened):
    got = opened.execute_script("return arguments[0].map(normalised)", TEXTS)
    assert dict(zip(TEXTS, got, strict=True)) == {text: normalised(text) for text in TEXTS}


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_are_read_wherever_the_network_cuts_them(opened, size):
    stream = (
        ': lookback {"event": "queued", "ahead": 2}\n\n'
        ": ping\r\n\r\n"
        'data: {"choices": [{"text": "data: [DONE]\\n: lookback"}]}\n\n'
        'data: {"a": "\U0001f600"}\r\n\r\n'
        "data: [DONE]\n\n"
    )
    parts = [stream[i : i + size] for i in range(0, len(stream), size)]
    got = opened.execute_script(
        """const heard = [];
           const read = eventReader((kind, value) => heard.push([kind, value]));
           arguments[0].forEach(read);
           return heard;""",
        parts,
    )
    assert got == [
        ["comment", {"event": "queued", "ahead": 2}],
        ["data", {"choices": [{"text": "data: [DONE]\n: lookback"}]}],
        ["data", {"a": "\U0001f600"}],
        ["done", None],
    ]


def test_tokens_that_are_told_again_replace_those_before(opened):
    got = opened.execute_script(
        """const cs = [0, 1].map(emptyCandidate);
           const tell = (start, tokens, finish) => updateCandidate(cs, { index: 1, start, tokens,
             token_ids: tokens.map(() => start), log_prob: tokens.map(() => -start), finish });
           tell(0, ["a", "b"], null);
           tell(1, ["c", "d"], null);
           tell(3, [], "pruned");
           updateCandidate(cs, { index: 7, start: 0, tokens: ["x"] });
           return cs;"""
    )
    assert got[1]["tokens"] == ["a", "c", "d"]
    assert got[1]["log_prob"] == [0, -1, -1]
    assert [c["finish"] for c in got] == [None, "pruned"]


def link(**state):
    usual = {
        "question": "Wo?  ä=&#+%\u202e",
        "n": 7,
        "temperature": 0.85,
        "max_tokens": 33,
        "seed": 5,
        "prune": False,
        "scorer": "entropy",
        "alpha": 1.25,
        "lam": 0,
        "among": 4,
        "candidate": 2,
        "signal": "q",
        "map": "raw",
    }
    return usual | state


def read(browser, hash):
    return browser.execute_script(
        "return readLink(arguments[0], JSON.parse(arguments[1]))",
        hash,
        json.dumps(ABOUT | {"scorers": dict.fromkeys(SCORERS, 1)}),
    )


def test_a_link_gives_the_state_back(opened):
    state = link()
    thing = {"category": "sun", "color": "red", "size": "small", "cell": 3, "look": 12345678901}
    hash = opened.execute_script(
        """const [state, things] = arguments;
           const picture = { kind: "scene", edited: true, scene: { seed: 99, things } };
           return linkOf(state, picture, null, true);""",
        state,
        [thing, thing | {"cell": 4}],
    )
    got = read(opened, hash)
    assert got["problems"] == []
    assert got["state"] == state
    assert (got["scene"], got["asked"], got["smaller"]) == (99, True, False)
    assert got["things"] == [thing, thing | {"cell": 4}]


@pytest.mark.parametrize(
    ("hash", "words"),
    [
        ("#n=0", "n “0”: it must be a whole number from 1 to 64"),
        ("#n=65", "from 1 to 64"),
        ("#n=", "n “”"),
        ("#temperature=hot", "temperature “hot”: it must be a number from 0 to 2"),
        ("#by=usc", "by “usc”: it must be one of lookback, "),
        ("#shade=x", "shade “x”"),
        ("#scene=-1", "scene “-1”"),
        ("#things=sun", "things “sun”: it does not name things"),
        ("#picture=http://a.b/c.png", "it is no picture"),
        ("#n=3&answer=4", "answer “4”: it must be a whole number from 1 to 3"),
    ],
)
def test_what_a_link_cannot_say_is_said(opened, hash, words):
    got = read(opened, hash)
    assert len(got["problems"]) == 1
    assert words in got["problems"][0]


def test_a_thing_moves_within_the_grid_and_changes_places(opened):
    got = opened.execute_script(
        """const things = [{ cell: 0 }, { cell: 1 }, { cell: 8 }];
           return [movedTo(things, 0, 1), movedTo(things, 0, 4),
             ["ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown"]
               .map((key) => [0, 8, 4].map((cell) => cellBeside(cell, key)))];"""
    )
    cells = [[thing["cell"] for thing in things] for things in got[:2]]
    assert cells == [[1, 0, 8], [4, 1, 8]]
    assert got[2] == [[None, 7, 3], [None, 5, 1], [1, None, 5], [3, None, 7]]


def test_words_are_tokens_without_a_blank_between_them(opened):
    tokens = ["Um", "br", "ella", ",", " red", " ", "cup", "\u2019", "s", ".\n", "No"]
    got = opened.execute_script(
        """const [tokens] = arguments;
           return wordSpans(tokens)
             .map(({ first, stop }) => tokens.slice(first, stop).join(""));""",
        tokens,
    )
    assert "".join(got) == "".join(tokens)
    assert got[:3] == ["Umbrella", ",", " red"]
    assert got[-1] == "No"
