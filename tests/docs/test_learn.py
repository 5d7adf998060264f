"""The script of the chapter "Learn": the same tags and offsets as the package, and its forms."""

import itertools
import json
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memdesc
from memdesc import MemdescError
from memdesc.names.images import IMAGES
from tests.strategies import dims, tags

pytestmark = pytest.mark.docs

_SCRIPT = Path(__file__).parents[2] / "docs" / "_static" / "layout.js"
_ASK = """
const {layoutOf, elements} = require(process.argv[1]).memdescLayout;
const lines = require("fs").readFileSync(0, "utf8").trim().split("\\n");
for (const [text, dims] of lines.map(JSON.parse)) {
    let answer;
    try {
        const layout = layoutOf(text, dims);
        answer = {
            padded: layout.axes.map((axis) => axis.padded),
            blocks: layout.blocks.map((b) => [b.axis, b.step, b.extent, b.stride]),
            letters: layout.letters,
            image: layout.image,
            at: elements(layout).filter((e) => e.inside).map((e) => [...e.place, e.offset]),
            holes: elements(layout).filter((e) => !e.inside).map((e) => e.offset),
        };
    } catch (error) {
        answer = {error: error.message};
    }
    console.log(JSON.stringify(answer));
}
"""


def ask(questions: Sequence[tuple[str, tuple[int, ...]]]) -> list[dict[str, Any]]:
    """Return what the script makes of tags and dims."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed (Debian: nodejs)")
    ran = subprocess.run(
        [node, "-e", _ASK, str(_SCRIPT)],
        input="\n".join(map(json.dumps, questions)),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(answers) == len(questions)
    return answers


def check(desc: memdesc.MemoryDesc, answer: dict[str, Any]) -> None:
    """Compare an answer with the descriptor of the same tag and dims."""
    assert answer.get("error") is None, (desc, answer)
    assert answer["padded"] == [axis.padded for axis in desc.axes], desc
    assert sorted(answer["blocks"]) == sorted(list(block) for block in desc.blocks), desc
    elements = desc.layout.offsets()
    assert [at[-1] for at in sorted(answer["at"])] == elements.reshape(-1).tolist(), desc
    everything = sorted(answer["holes"] + [at[-1] for at in answer["at"]])
    assert everything == list(range(desc.padded_nelems)), desc


@st.composite
def questions(draw: st.DrawFn) -> tuple[str, tuple[int, ...]]:
    """Draw a tag with blocks, swizzles, fused dims and alignments, and small dims for it."""
    sizes = draw(dims(1, 6, 64, zero=False))
    return str(draw(tags(len(sizes), 16, any_digits=draw(st.booleans())))), sizes


_MANY = st.lists(questions(), min_size=30, max_size=30)


@given(_MANY)
def test_the_script_computes_every_offset(asked: list[tuple[str, tuple[int, ...]]]) -> None:
    descs = [memdesc.memory_desc(sizes, "f32", tag) for tag, sizes in asked]
    for desc, answer in zip(descs, ask(asked), strict=True):
        check(desc, answer)


def test_the_script_reads_the_names_of_onednn_with_their_letters() -> None:
    known = [name.text for name in memdesc.known_names() if name.vocabulary == "onednn"]
    descs = {}
    for name in known:
        for ndims in range(1, 7):
            try:
                desc = memdesc.memory_desc((2,) * ndims, "f32", name)
            except MemdescError:
                continue
            if desc.padded_nelems <= 600:
                descs[name] = desc
    asked = {
        name: desc
        for name, desc in descs.items()
        # the chapter has no tensors of RNNs
        if not set(name.lower()) & set("tlx") or name.isupper()
    }
    assert len(asked) > 500
    answers = ask([(name, desc.dims) for name, desc in asked.items()])
    for (name, desc), answer in zip(asked.items(), answers, strict=True):
        check(desc, answer)
        if name == "nChw16c":
            assert answer["letters"] == "nchw"


@given(_MANY, st.randoms(use_true_random=False))
def test_the_script_refuses_the_tags_that_the_package_refuses(
    asked: list[tuple[str, tuple[int, ...]]], pick: random.Random
) -> None:
    changed, refused = [], []
    for tag, sizes in asked:
        text = list(tag)
        for _ in range(pick.choice([1, 1, 2])):
            at = pick.randrange(len(text) + 1)
            text[at : at + pick.choice([0, 1])] = pick.choice(["", *"abcABC01248()/._z"])
        word = "".join(text)
        try:
            padded = memdesc.memory_desc(sizes, "f32", memdesc.tags.parse_tag(word)).padded_nelems
        except MemdescError:
            padded = 0
        if padded <= 300:
            changed.append((word, sizes))
            refused.append(not padded)
    for (word, _), answer, is_refused in zip(changed, ask(changed), refused, strict=True):
        assert ("error" in answer) == is_refused, (word, answer)


def test_the_script_reads_images() -> None:
    asked: list[tuple[str, tuple[int, ...]]] = [
        (name, sizes)
        for name in ("in_out_channel", "in_out_height", "in_out_width", "conv2d_filter")
        for sizes in itertools.product((1, 2, 5), (3, 6), (1, 4), (2, 9))
    ]
    written = [(IMAGES[name].parts, sizes) for name, sizes in asked]
    for (name, sizes), answer in zip(asked + written, ask(asked + written), strict=True):
        image = memdesc.image_desc(sizes, "f16", name)
        assert answer["image"] == {"lanes": image.channels, "width": image.width}
        check(image.desc, answer)


def test_the_script_reads_strides() -> None:
    answer, gaps, wrong = ask(
        [("strides 8 1", (3, 4)), ("strides 0 1", (2, 3)), ("strides 8", (3, 4))]
    )
    desc = memdesc.memory_desc((3, 4), "f32", strides=(8, 1))
    assert [at[-1] for at in answer["at"]] == desc.layout.offsets().reshape(-1).tolist()
    assert [at[-1] for at in gaps["at"]] == [0, 1, 2, 0, 1, 2]
    assert "one stride for each" in wrong["error"]
