"""Logs of oneDNN's verbose mode.

The files in `tests/data/verbose` are what real programs wrote; `primitives.txt` has dims, tensors
and attributes of each form.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from memdesc import RUNTIME, memory_desc
from memdesc.verbose import to_verbose
from reorder.logs import VerboseAttributes, VerbosePrimitive, read_verbose
from reorder.logs.primitive import PostOp, QuantizationParameter
from tests.refused import sections

_LOGS = Path(__file__).parents[3] / "data" / "verbose"
_DIMS, _UNDERSTOOD, _KEPT, _TENSORS, _UNREAD = (
    [line.partition("  #")[::2] for line in lines]
    for lines in sections(Path(__file__).with_name("primitives.txt")).values()
)
_REORDER = (
    "exec,cpu,reorder,jit:uni,undef,src_f32::blocked:abcd:f0 dst_f32:p:blocked:aBcd16b:f0,,,"
    "2x17x8x8,0.25"
)


def _primitive(
    kind: str, problem: str, descriptors: str = "", attributes: str = "", aux: str = ""
) -> VerbosePrimitive:
    return VerbosePrimitive("cpu", kind, "jit:uni", "undef", descriptors, attributes, aux, problem)


# version, entries, and kinds of primitives
_REAL = {
    "onednn-2.4": ("2.4.0", 37, 19),
    "onednn-2.6": ("2.6.0", 37, 19),
    "onednn-3.2": ("3.2.0", 41, 19),
    "onednn-3.13": ("3.13.2", 43, 20),
    "torch-2.13": ("3.12.0", 16, 2),
    "openvino-2026.4": ("3.13.0", 24, 4),
}


@pytest.mark.parametrize("name", _REAL)
def test_every_tensor_of_real_logs_is_read_and_printed_again(name: str) -> None:
    log = read_verbose(_LOGS / f"{name}.log")
    version, entries, kinds = _REAL[name]
    assert (log.versions, len(log.entries)) == ((version,), entries)
    assert (log.skipped, log.other_lines) == ({}, 0)
    assert len({entry.primitive.kind for entry in log.entries}) == kinds
    for entry in log.entries:
        primitive = entry.primitive
        assert len(primitive.tensors) == len(primitive.descriptors.split())
        assert entry.milliseconds >= 0
        for tensor in primitive.tensors.values():
            assert tensor.is_absent or tensor.desc is not None, (primitive.kind, tensor)
            if tensor.desc is not None and not tensor.why and version[0] == "3":
                # flag a is the wish of a user, and not of the descriptor
                assert to_verbose(tensor.desc) == re.sub(r"^(\w+):a", r"\1:", tensor.text)


# Lines.


def test_lines_of_all_versions_start_in_their_way() -> None:
    desc, at = memory_desc((2, 17, 8, 8), "f32", "nChw16c"), 1795321398365.38
    for prefix, stamp in (
        ("dnnl_verbose,", None),
        ("onednn_verbose,", None),
        (f"onednn_verbose,{at},", at),
        ("onednn_verbose,primitive,", None),
        ("onednn_verbose,v1,primitive,", None),
        (f"onednn_verbose,v1,{at},primitive,", at),
        ("[rank0]: onednn_verbose,v1,primitive,", None),
    ):
        (entry,) = read_verbose([prefix + _REORDER]).entries
        assert (entry.event, entry.milliseconds, entry.timestamp) == ("exec", 0.25, stamp)
        assert entry.primitive.tensors["dst"].desc == desc
        assert entry.is_execution


def test_lines_that_are_not_entries_are_counted() -> None:
    lines: list[Any] = [
        "epoch 1",
        "onednn_verbose,v1,info,oneDNN v3.12.0 (commit 80afa71)",
        "onednn_verbose,v1,graph,exec,cpu,100002,sdp,matmul,,in0,1.5",
        "onednn_verbose,v1,ukernel,create,brgemm,1",
        "onednn_verbose,v1,primitive,create:dispatch,reorder",
        "onednn_verbose,v1,primitive,error,cpu,primitive,memory",
        f"onednn_verbose,v1,primitive,create:cache_hit,{_REORDER.partition(',')[2]}\r\n",
        *(None, 3, b"onednn_verbose"),
        *["onednn_verbose,exec,"] * 100,
    ]
    log = read_verbose(lines)
    assert (log.versions, log.info) == (("3.12.0",), ("oneDNN v3.12.0 (commit 80afa71)",))
    others = {"graph": 1, "ukernel": 1, "create:dispatch": 1, "error": 1}
    assert log.skipped == {**others, "unread": 100}
    # only the first are kept
    assert [each.line for each in log.unread] == [*range(11, 31)]
    assert (log.other_lines, [entry.line for entry in log.entries]) == (4, [7])
    assert log.executions == ()


def test_lines_that_are_not_read_say_why() -> None:
    for line, why in _UNREAD:
        log = read_verbose([line])
        assert (log.entries, log.skipped) == ((), {"unread": 1})
        assert why.strip() in log.unread[0].why, line


def test_a_log_is_lines_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    lines = f"onednn_verbose,{_REORDER}\r\nnothing\r\n"
    log = read_verbose(lines.splitlines())
    for encoding in ("utf-8", "utf-8-sig"):
        path.write_bytes(lines.encode(encoding))
        assert read_verbose(path) == read_verbose(str(path)) == log
    path.write_bytes(b"\xff\xfe\n" + lines.encode())
    assert len(read_verbose(path).executions) == 1


# Primitives.


def test_the_dims_of_tensors_follow_from_the_problem() -> None:
    for line, said in _DIMS:
        kind, problem, *more = line.split()
        wanted = dict(each.split("=") for each in said.split())
        tensors = " ".join(f"{name}:f32::blocked:a::f0" for name in wanted)
        primitive = _primitive(kind, problem, tensors, aux=" ".join(more))
        found = {
            name: "x".join("*" if n == RUNTIME else str(n) for n in tensor.dims or ()) or "-"
            for name, tensor in primitive.tensors.items()
        }
        assert found == wanted, line


def test_tensors_are_described_or_say_why_not() -> None:
    for line, said in _TENSORS:
        kind, problem, *tensors = line.split()
        primitive = _primitive(kind, problem.removeprefix("-"), " ".join(tensors))
        found = [f"{name} {each.desc!r} {each.why}" for name, each in primitive.tensors.items()]
        assert any(said.strip() in each for each in found), (line, found)
        assert all("None" in each or "_desc(" in each for each in found)


def test_reference_implementations_are_known_by_name() -> None:
    names = ("ref:any", "gemm:ref", "ref+matmul", "ocl:ref:any", "jit:uni", "simple:any", "brg_x:y")
    made = (VerbosePrimitive("cpu", "sum", name, "", "", "", "", "") for name in names)
    assert [each.is_reference for each in made] == [True] * 4 + [False] * 3


def _read(attributes: str) -> VerboseAttributes:
    return _primitive("matmul", "", attributes=attributes).attributes


def _attributes(text: str) -> VerboseAttributes:
    def parameter(argument: str, mask: int, **more: Any) -> QuantizationParameter:
        return QuantizationParameter(argument, mask)._replace(**more)

    names = {"A": VerboseAttributes, "P": parameter, "PostOp": PostOp}
    found: VerboseAttributes = eval(f"A({text})", names)
    return found


def test_attributes_are_read_as_all_versions_print_them() -> None:
    for line, wanted in _UNDERSTOOD:
        assert _read(line) == _attributes(wanted), line
        assert not _read(line).not_understood, line


def test_what_is_not_understood_is_kept_and_said_in_order() -> None:
    for line, kept in _KEPT:
        assert not kept or _read(line) == _attributes(kept), line
        assert _read(line).not_understood, line
        assert _read(f"attr-fpmath:bf16:true {line}").not_understood, line
    known = [(line, _attributes(kept)) for line, kept in _KEPT if line.startswith("attr-")]
    found = _read(" ".join(line for line, _ in known)).others
    assert found == tuple(other for _, each in known for other in each.others)
