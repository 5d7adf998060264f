"""Keys of a `quantization_config` that change what a model computes, and that no output keeps.

A key that decides nothing of the numbers is in a table of harmless ones; one that is in neither
table is named in a warning. Sources: compressed-tensors 0.20 (`QuantizationConfig`), GPTQModel 7.7
(`quantization/config.py`), AutoAWQ 0.2, ModelOpt 0.47, transformers 5.23
(`utils/quantization_config.py`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from memdesc import MemdescError
from memdesc.disk import read_if_exists
from memdesc.errors import first_of
from reorder.storage.quantization import CONFIG, MAX_CONFIG, holders, sections_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["section_warnings", "sections_in"]

# keys whose values, unless they are empty or as listed, make the stored weights mean other numbers
_CHANGES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "transform_config": ("rotates weights or activations", ()),
    "sparsity_config": ("stores sparse weights", ("dense",)),
    "adapter": ("adds a low-rank adapter to the weights", ()),
    "rotation": ("rotates weights or activations", ()),
    "pre_quant_scale": ("scales inputs before the weights", ()),
}
# what is read, and what says only how weights were found or which kernels to use
_HARMLESS = {
    "awq": "fuse_max_seq_len do_fuse modules_to_fuse exllama_config backend zero_point version",
    "gptq": (
        "damp_percent damp_auto_increment true_sequential static_groups model_name_or_path "
        "model_file_base_name is_marlin_format tokenizer dataset backend use_exllama "
        "disable_exllama exllama_config max_input_length use_cuda_fp16 cache_block_outputs "
        "batch_size pad_token_id model_seqlen block_name_to_quantize "
        "module_name_preceding_first_block modules_in_block_to_quantize act_group_aware mse gptaq "
        "hyb_act v2 v2_alpha foem hessian"
    ),
    "compressed-tensors": (
        "config_groups kv_cache_scheme quantization_status global_compression_ratio ignore "
        "run_compressed version"
    ),
    "modelopt": (
        "quant_algo producer config_groups ignore kv_cache_scheme kv_cache_quant_algo "
        "exclude_modules quantization quantized_layers quant_library has_zero_point"
    ),
    "fp8": (
        "activation_scheme weight_block_size fmt scale_fmt ignored_layers kv_cache_scheme "
        "dequantize"
    ),
}
_COMMON = (
    "quant_method bits group_size modules_to_not_convert lm_head dynamic desc_act sym format "
    "checkpoint_format pack_dtype meta method"
)


def sections_in(source: Path) -> list[dict[str, Any]]:
    """Return the sections of config.json that declare quantised weights.

    Raises
    ------
    MemdescError
        If the file is not JSON.
    """
    folder = source if source.is_dir() else source.parent
    text = read_if_exists(folder / CONFIG, MAX_CONFIG) or b"{}"
    try:
        sections = [
            each for part in holders(json.loads(text)) for each in sections_of(part).values()
        ]
    except (ValueError, RecursionError) as error:
        msg = f"{CONFIG} is not JSON: {error}"
        raise MemdescError(msg) from None
    return [each for each in sections if isinstance(each, dict)]


def section_warnings(sections: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Return a warning about keys that are not known to be harmless.

    Raises
    ------
    MemdescError
        If a key says that the stored weights mean other numbers; with its value.
    """
    unknown: dict[str, None] = {}
    for section in sections:
        method = section.get("quant_method")
        for key, value in section.items():
            what, plain = _CHANGES.get(key, ("", ()))
            if what and _is_set(value, plain):
                msg = (
                    f"config.json says {key} {value!r}, which {what}; no conversion keeps that, so "
                    "the output would compute something else: convert it with the program that "
                    f"made it, or remove {key} if it is wrong"
                )
                raise MemdescError(msg)
        if method in _HARMLESS:
            known = {*_COMMON.split(), *_HARMLESS[method].split(), *_CHANGES}
            unknown |= dict.fromkeys(key for key in section if key not in known)
    if unknown:
        yield (
            f"config.json says {first_of(unknown, 4)}, which no conversion knows, and which the "
            "output does not say: make sure that the weights mean the same without it"
        )


def _is_set(value: Any, plain: tuple[Any, ...]) -> bool:
    """Whether a value says anything: not null, false, empty, or of a form that changes nothing."""
    if isinstance(value, dict):
        rest = {key: each for key, each in value.items() if _is_set(each, ())}
        return bool(rest) and rest.get("format") not in plain
    return bool(value) and value not in plain
