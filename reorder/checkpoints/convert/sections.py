"""Check the keys of a `quantization_config`: no output keeps what conversions do not read.

Keys that change what a model computes are refused. `DECLARATIONS` (in `declarations`) has those
that conversions read, and `_HARMLESS`, by method, those that do not affect the numbers. A warning
names all others, if the method of the section is in `_HARMLESS`.

Sources: compressed-tensors 0.20 (`QuantizationConfig`), GPTQModel 7.7 (`quantization/config.py`),
AutoAWQ 0.2, ModelOpt 0.47, transformers 5.24 (`utils/quantization_config.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from memdesc import MemdescError
from memdesc.errors import first_of, short_repr
from reorder.checkpoints.declarations import inside, known_keys
from reorder.checkpoints.quantization import CONFIG, OLD_CONFIGS, Configs

# keys that make the stored weights mean other numbers, unless their values are empty or as listed
_CHANGES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "transform_config": ("rotates weights or activations", ()),
    "sparsity_config": ("stores sparse weights", ("dense",)),
    "adapter": ("adds a low-rank adapter to the weights", ()),
    "rotation": ("rotates weights or activations", ()),
    "pre_quant_scale": ("scales inputs before the weights", ()),
    "expert_dtype": ("stores experts in another type than other layers", ("fp8", "fp4")),
}
_GPTQ = (
    "damp_percent damp_auto_increment true_sequential static_groups model_name_or_path "
    "model_file_base_name tokenizer dataset backend use_exllama "
    "disable_exllama exllama_config max_input_length use_cuda_fp16 cache_block_outputs "
    "batch_size pad_token_id model_seqlen block_name_to_quantize "
    "module_name_preceding_first_block modules_in_block_to_quantize act_group_aware mse gptaq "
    "hyb_act v2 v2_alpha foem hessian"
)
# by method, keys that only say how codes were chosen or which kernels to use
_HARMLESS = {
    # transformers 5 has the keys of GPTQ in both
    "awq": f"{_GPTQ} is_marlin_format fuse_max_seq_len do_fuse modules_to_fuse w_bit q_group_size",
    "gptq": _GPTQ,
    "compressed-tensors": "global_compression_ratio run_compressed version",
    "modelopt": (
        "producer config_groups kv_cache_scheme kv_cache_quant_algo quantization quantized_layers "
        "quant_library has_zero_point"
    ),
    "fp8": "kv_cache_scheme dequantize modules_to_convert",
}
# keys of groups of layers in compressed-tensors and ModelOpt, and keys of weights, inputs and
# outputs in these groups
_ARGUED = ("weights", "input_activations", "output_activations")
_GROUP_KEYS = ("targets", "format", *_ARGUED)
_ARGS = (
    "num_bits type symmetric group_size strategy block_structure dynamic actorder scale_dtype "
    "zp_dtype observer observer_kwargs"
)
_COMMON = (
    "quant_method bits group_size modules_to_not_convert lm_head dynamic desc_act sym format "
    "checkpoint_format pack_dtype meta method"
)


def sections_in(configs: Configs) -> list[tuple[str, dict[str, Any]]]:
    """Return what the config files of a model declare, each with the name of its file.

    Fails if a file is not a JSON object.
    """
    found = [(CONFIG, section) for section in configs.sections(CONFIG)]
    for file, method in OLD_CONFIGS.items():
        sections = configs.sections(file)
        found += [(file, {"quant_method": method, **inside(method, each)}) for each in sections]
    return found


def refuse_unknown(sections: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Refuse a model whose files declare quantised weights, but whose tensors do not show any."""
    for file, section in sections:
        if section:
            what = short_repr(section.get("quant_method", section))
            msg = (
                f"{file} declares quantised weights, by {what}, but no tensors have the names of a "
                "known format; convert the model with the program that made it, or correct "
                f"{file} if its weights are plain floats"
            )
            raise MemdescError(msg)


def section_warnings(sections: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Return a warning for each file with keys that are not known to be harmless.

    Fails if a key says that the stored weights mean other numbers; the message has its value.
    """
    unknown: dict[str, list[str]] = {}
    for file, section in sections:
        method = str(section.get("quant_method")).lower()
        for key, value in section.items():
            what, plain = _CHANGES.get(key, ("", ()))
            if what and _is_set(value, plain):
                msg = (
                    f"{file} says {key} {value!r}, which {what}; no conversion keeps that, so "
                    "the output would compute something else: convert it with the program that "
                    f"made it, or remove {key} if it is wrong"
                )
                raise MemdescError(msg)
        if method in _HARMLESS:
            harmless = {*_COMMON.split(), *_HARMLESS[method].split()}
            known = harmless | known_keys(method) | _CHANGES.keys()
            unknown.setdefault(file, []).extend(_unknown(section, known))
            unknown[file] += _unknown_parts(section)
    for file, keys in unknown.items():
        if keys:
            yield (
                f"{file} says {first_of(dict.fromkeys(keys), 4)}, which no conversion knows, and "
                "which the output does not say: make sure that the weights mean the same without it"
            )


def _unknown_parts(section: dict[str, Any]) -> Iterator[str]:
    """Return the unknown keys of groups of layers, and of their weights, inputs and outputs."""
    groups = section.get("config_groups")
    for name, group in groups.items() if isinstance(groups, dict) else ():
        parts: dict[str, tuple[Any, Collection[str]]] = {
            f"config_groups.{name}": (group, _GROUP_KEYS)
        }
        for key in _ARGUED if isinstance(group, dict) else ():
            parts[f"config_groups.{name}.{key}"] = group.get(key), _ARGS.split()
        for path, (part, known) in parts.items():
            yield from (f"{path}.{key}" for key in _unknown(part, known))


def _unknown(part: Any, known: Collection[str]) -> list[str]:
    """Return the keys of an object that are not known and whose values say something."""
    held = part if isinstance(part, dict) else {}
    return [key for key, value in held.items() if key not in known and _is_set(value, ())]


def _is_set(value: Any, plain: tuple[Any, ...]) -> bool:
    """Whether a value says something: not null, false, empty, or one that changes nothing."""
    if isinstance(value, dict):
        rest = {key: each for key, each in value.items() if _is_set(each, ())}
        return bool(rest) and rest.get("format") not in plain
    return bool(value) and value not in plain


def says_symmetric(section: Mapping[str, Any]) -> bool:
    """Whether a section of GPTQ or AWQ says that all zero points are the middle code.

    Both store them nevertheless. For AWQ, transformers 5 writes `sym` too, whatever the zero points
    are.
    """
    has_zeros = section.get("zero_point")
    return has_zeros is False or (has_zeros is None and section.get("sym") is True)
