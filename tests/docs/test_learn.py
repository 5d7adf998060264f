"""The script of the chapter "Learn": the same tags and offsets as the package, and its forms."""

import itertools
import json
import random
import shutil
import subprocess
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import pytest

import memdesc
from memdesc import MemdescError
from memdesc.names.images import IMAGES
from memdesc.tags import Digit, FormatTag

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


def random_tag(pick: random.Random) -> tuple[FormatTag, tuple[int, ...]]:
    """Make a tag with blocks, swizzles, fused dims and alignments, and small dims for it."""
    ndims = pick.choice([1, 2, 3, 4, 5, 6])
    dims = tuple(pick.choice([1, 1, 2, 3, 4, 5, 7, 9]) for _ in range(ndims))
    loose = list(range(ndims))
    axes: list[tuple[int, ...]] = [(dim,) for dim in loose]
    if ndims > 1 and pick.random() < 0.2:
        fused = tuple(pick.sample(loose, pick.randint(2, min(3, ndims))))
        axes = sorted([fused, *((dim,) for dim in loose if dim not in fused)])
    steps = [1] * len(axes)
    inner: list[Digit] = []
    for _ in range(pick.randint(0, 4)):
        axis, extent = pick.randrange(len(axes)), pick.choice([2, 2, 3, 4, 8])
        inner.insert(0, Digit(axis, steps[axis], extent))
        steps[axis] *= extent
        if prod(dims) * prod(digit.extent for digit in inner) > 600:
            break
    outer = [Digit(axis, step, 0) for axis, step in enumerate(steps)]
    pick.shuffle(outer)
    digits = [*outer, *inner]
    if pick.random() < 0.2:
        pick.shuffle(digits)
    align = tuple(pick.choice([1, 1, 1, 1, 2, 3, 8]) for _ in axes)
    return FormatTag(tuple(axes), tuple(digits), align), dims


def test_the_script_computes_every_offset_of_ten_thousand_random_tags() -> None:
    pick = random.Random(0)
    descs: list[tuple[str, memdesc.MemoryDesc]] = []
    while len(descs) < 10_000:
        tag, dims = random_tag(pick)
        desc = memdesc.memory_desc(dims, "f32", tag)
        if desc.padded_nelems <= 300:
            descs.append((str(tag), desc))
    assert len({text for text, _ in descs}) > 3_000
    answers = ask([(text, desc.dims) for text, desc in descs])
    for (_, desc), answer in zip(descs, answers, strict=True):
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


def test_the_script_refuses_the_tags_that_the_package_refuses() -> None:
    pick = random.Random(0)
    asked: list[tuple[str, tuple[int, ...]]] = []
    refused = []
    for _ in range(3_000):
        tag, dims = random_tag(pick)
        text = list(str(tag))
        for _ in range(pick.choice([1, 1, 2])):
            at = pick.randrange(len(text) + 1)
            text[at : at + pick.choice([0, 1])] = pick.choice(["", *"abcABC01248()/._z"])
        word = "".join(text)
        try:
            padded = memdesc.memory_desc(dims, "f32", memdesc.tags.parse_tag(word)).padded_nelems
        except MemdescError:
            refused.append(True)
        else:
            if padded > 300:
                continue
            refused.append(False)
        asked.append((word, dims))
    assert min(sum(refused), len(refused) - sum(refused)) > 80
    for (word, _), answer, is_refused in zip(asked, ask(asked), refused, strict=True):
        assert ("error" in answer) == is_refused, (word, answer)


def test_the_script_reads_images() -> None:
    asked: list[tuple[str, tuple[int, ...]]] = [
        (name, dims)
        for name in ("in_out_channel", "in_out_height", "in_out_width", "conv2d_filter")
        for dims in itertools.product((1, 2, 5), (3, 6), (1, 4), (2, 9))
    ]
    written = [(IMAGES[name].parts, dims) for name, dims in asked]
    for (name, dims), answer in zip(asked + written, ask(asked + written), strict=True):
        image = memdesc.image_desc(dims, "f16", name)
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
