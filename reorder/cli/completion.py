"""`memdesc completion`: scripts for shells, and the words that they request."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from memdesc import DATA_TYPES, known_names
from memdesc.exchange import SYSTEMS
from memdesc.names import images
from memdesc.source import LANGUAGES
from reorder.cli.command import SEVERAL, Command, Facts, flags_of, value
from reorder.cli.main import NAMES, command_parser

# Each script asks `memdesc completion SHELL --words ...` what may replace the last of the words
# typed so far; if the answer is empty, the shell completes file names.
_SCRIPTS = {
    "bash": """\
_memdesc() {
    local IFS=$'\\n'
    COMPREPLY=($(memdesc completion bash --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _memdesc memdesc
""",
    "zsh": """\
#compdef memdesc
_memdesc() {
    local -a found
    found=("${(@f)$(memdesc completion zsh --words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then compadd -a found; else _files; fi
}
compdef _memdesc memdesc
""",
    "fish": """\
function __memdesc
    set -l words (commandline -opc) (commandline -ct)
    memdesc completion fish --words $words[2..] 2>/dev/null
end
complete -c memdesc -a '(__memdesc)'
""",
}


def _layouts() -> list[str]:
    return [*(name.text for name in known_names()), *images.IMAGES, "plain"]


# The values of an argument, by its name in the help; A and B are layouts or files, so they are
# identified by their destination.
_VALUES: dict[str, Callable[[], list[str]]] = {
    **dict.fromkeys(("LAYOUT", "TEXT", "layout"), _layouts),
    "DTYPE": lambda: [*DATA_TYPES],
    "LANG": lambda: [*LANGUAGES],
    "SYSTEM": lambda: [*SYSTEMS],
}


def _complete(words: Sequence[str]) -> list[str]:
    """Return what may replace the last word typed after `memdesc`; nothing where a file may."""
    *before, last = words or [""]
    # bash splits words at =
    before = [word for word in before if word != "="]
    last = "" if last == "=" else last
    if not before:
        candidates = [*NAMES, "--help", "--version"]
    elif before[0] in NAMES:
        candidates = _of_command(command_parser(before[0]), before[1:], last)
    else:
        candidates = []
    return sorted(word for word in dict.fromkeys(candidates) if word.startswith(last))


def _of_command(parser: argparse.ArgumentParser, before: Sequence[str], last: str) -> list[str]:
    """Return candidates for a flag, the value of one, or an argument."""
    flags = flags_of(parser)
    flag, equals, _ = last.partition("=")
    if equals and flag in flags:
        return [f"{flag}={value}" for value in _values_of(flags[flag])]
    if before and _takes_value(flags.get(before[-1])):
        return _values_of(flags[before[-1]])
    if last.startswith("-"):
        return [*flags]
    taken = [
        word
        for word, previous in zip(before, ["", *before], strict=False)
        if not word.startswith("--") and not _takes_value(flags.get(previous))
    ]
    arguments = [action for action in parser._actions if not action.option_strings]  # noqa: SLF001 - argparse has no public list
    return _values_of(arguments[len(taken)]) if len(taken) < len(arguments) else []


def _takes_value(action: argparse.Action | None) -> bool:
    return action is not None and action.nargs != 0


def _values_of(action: argparse.Action) -> list[str]:
    if action.choices is not None:
        return [*action.choices]
    metavar = str(action.metavar).removesuffix(SEVERAL)
    values = _VALUES.get(metavar) or _VALUES.get(action.dest)
    return [] if values is None else values()


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    if options.words is None:
        return {"script": _SCRIPTS[options.shell]}, 0
    return {"words": _complete(options.words)}, 0


def _lay_out(facts: Facts) -> list[str]:
    return [*facts["words"]] if "words" in facts else [*facts["script"].splitlines()]


COMMAND = Command(
    "completion",
    "Print a script that completes commands, options and layouts in a shell.",
    'completion bash    # in ~/.bashrc: eval "$(memdesc completion bash)"',
    (
        value("shell SHELL", ", ".join(_SCRIPTS), choices=[*_SCRIPTS]),
        value(
            "--words WORD",
            "print what may replace the last of these words",
            nargs=argparse.REMAINDER,
        ),
    ),
    _answer,
    _lay_out,
)
