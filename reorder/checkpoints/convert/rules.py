"""Rules: which tensors become what, as lines of text.

Of the rules whose pattern matches the name of a tensor, the last one applies.

A line is ``PATTERN: [SRC ->] DST[, DTYPE][, KEY=VALUE ...]``; the pattern ends at the first colon
that is followed by a space. SRC and DST are names of layouts or of records; options of a record are
in parentheses, as in ``gptq(zeros=v2)``. DST may be left out if the layout stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite
from os import PathLike, fspath
from typing import Any, NoReturn, TypeGuard

from memdesc import MemdescError, data_type
from memdesc.errors import about, short_repr
from memdesc.names.similar import did_you_mean
from memdesc.record import known_records
from reorder.disk import as_path, read_small

_ARROW = "->"
_SYNTAX = "PATTERN: [SRC ->] DST[, DTYPE][, KEY=VALUE ...]"
_OPTIONS = re.compile(r"([^()]+)\(([^()=]*=[^()]*)\)")
_COUNT, _INTEGER = "[0-9]{1,18}", "-?[0-9]{1,18}"
# the most characters in a rule
_MAX_TEXT = 4096
# the most bytes in a file of rules
_MAX_FILE = 1 << 20
# names and patterns are compared only up to this many characters, because more takes long
_MAX_COMPARED = 200
# the value of scales= for one scale that all elements share, chosen from the data
WHOLE = "all"


@dataclass(frozen=True, slots=True)
class FormatName:
    """The name of a layout or of a record, and the options of a record."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value}" for key, value in self.options)
        return f"{self.name}({options})" if options else self.name


# row-major
PLAIN = FormatName("plain")


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern of names, and what the tensors or records that it matches become."""

    # as it was given, for messages
    text: str
    # pattern of names: ``*`` matches any letters, and dots too
    pattern: str
    # what the tensors hold and what they become
    src: FormatName | None = None
    dst: FormatName | None = None
    # the data type that they become
    dtype: str | None = None
    # the new name; each ``*`` in it stands for what the one in the pattern matched
    rename: str | None = None
    # the type of the elements in the container's words, if the name does not say it
    holds: str | None = None
    # the logical sizes, if the shape does not say them
    dims: tuple[int, ...] | None = None
    # what it gives `reorder.Attr`, by its names
    attr: tuple[tuple[str, float], ...] = ()
    # letters of the dims along which scales, chosen from the data, differ; or ``all``
    scales: str | None = None
    # how many adjacent elements along each of the last two dims share a scale
    groups: tuple[int, ...] | None = None

    def has_only(self, *keys: str) -> bool:
        """Whether it has no keys but these."""
        said = {key: getattr(self, key) for key in keys}
        return self == Rule(self.text, self.pattern, **said)

    def matching(self, names: Collection[str]) -> list[str]:
        """Return the names that its pattern matches."""
        if "*" not in self.pattern:  # for example, if each of thousands of layers has a rule
            return [self.pattern] if self.pattern in names else []
        expression = _expression(self.pattern)
        return [name for name in names if expression.match(name[::-1])]

    def renamed(self, name: str) -> str:
        """Return the new name of a tensor, or of a record, that it matches."""
        match = _expression(self.pattern).match(name[::-1])
        if self.rename is None or match is None:
            return name
        texts = (text[::-1] for text in reversed(match.groups()))
        return re.sub(r"\*", lambda _: next(texts), self.rename)

    def fail(self, problem: str) -> NoReturn:
        """Raise an error that names the rule."""
        raise MemdescError(f"rule {self.text!r}: {problem}") from None

    def fail_unmatched(self, names: Collection[str]) -> NoReturn:
        """Refuse a rule that matches nothing, with similar names, or how many there are."""
        import difflib  # needed only for a wrong rule

        short = [name for name in names if len(name) <= _MAX_COMPARED]
        near = difflib.get_close_matches(self.pattern[:_MAX_COMPARED], short, 3, 0.3)
        hint = did_you_mean(tuple(near)) or f"; there are {len(names)}"
        self.fail(f"no tensor and no record is called {self.pattern!r}{hint}")


#: the rule of what no other rule matches
COPY = Rule("", "*")


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> re.Pattern[str]:
    """Return a regular expression of names from end to start, with a group for each star.

    Earlier stars match as much as they can, so the last ones, which come first from the end, are
    short. The first place where the text between stars fits is as good as any: `(?>...)` keeps `re`
    from trying others.
    """
    first, *others = (re.escape(part[::-1]) for part in reversed(re.split(r"\*+", pattern)))
    middle = "".join(f"(?>(.*?){part})" for part in others[:-1])
    last = "".join(f"(.*){part}" for part in others[-1:])
    return re.compile(rf"{first}{middle}{last}\Z", re.DOTALL)


def is_record(given: FormatName | None) -> TypeGuard[FormatName]:
    """Whether a name in a rule is that of a record; a few of these are names of layouts too."""
    return given is not None and given.name.lower() in known_records()


def read_rules(given: Sequence[str | PathLike[str]]) -> list[Rule]:
    """Read rules: a string is a rule, a path a file of them; empty and ``#`` lines are skipped."""
    if not isinstance(given, list | tuple):
        raise MemdescError(
            f"map must be a list of rules, not {short_repr(given)}: the last one that matches "
            "applies, so their order counts"
        )
    rules: list[Rule] = []
    for source in given:
        if isinstance(source, str):
            rules.append(parse_rule(source))
        elif isinstance(source, PathLike):
            try:
                text = read_small(as_path(source), _MAX_FILE).decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise MemdescError(
                    f"{fspath(source)!r} is not UTF-8: {error}; save it as UTF-8"
                ) from None
            lines = [line for line in text.splitlines() if line.strip() and line[0] != "#"]
            with about(repr(fspath(source))):
                rules += map(parse_rule, lines)
        else:
            raise MemdescError(
                f"a rule is a string, or the path of a file of rules, not {short_repr(source)}"
            )
    return rules


def parse_rule(text: str) -> Rule:
    """Read one rule from a string. Fails if it is not a rule."""
    if len(text) > _MAX_TEXT:
        raise MemdescError(f"rule {short_repr(text)}: a rule has at most {_MAX_TEXT} characters")
    pattern, colon, rest = re.sub(r"\s+", " ", text.strip()).partition(": ")
    if not colon or not pattern or not rest.strip():
        raise MemdescError(
            f"rule {text!r} does not match {_SYNTAX}, such as '*.weight: oihw -> OIhw16i16o'; "
            "--rules, or a pathlib.Path, names a file of rules"
        )
    fields: list[tuple[str, str]] = []
    # at commas outside parentheses
    for k, word in enumerate(map(str.strip, re.split(r",(?![^()]*\))", rest))):
        key, equals, value = word.partition("=")
        if equals and "(" not in key:
            fields.append((key.strip(), value.strip()))
        elif _is_dtype(word):
            fields.append(("dtype", word))
        elif k:
            raise MemdescError(
                f"rule {text!r}: {word!r} is neither a data type nor KEY=VALUE; a layout comes "
                "first, after the colon"
            )
        else:
            src, arrow, dst = word.rpartition(_ARROW)
            fields += [*([("src", src.strip())] if arrow else []), ("dst", dst.strip())]
    return _make_rule(Rule(text, pattern.strip()), fields)


@lru_cache(maxsize=1024)  # rules for many layers are alike
def _is_dtype(word: str) -> bool:
    try:
        data_type(word)
    except MemdescError:
        return False
    return True


def _make_rule(rule: Rule, fields: Sequence[tuple[str, str]]) -> Rule:
    """Return a rule with what strings say, each read by the function for its key."""
    made = dict[str, Any]()
    for key, value in fields:
        if key in made:
            rule.fail(f"{key} is given twice")
        if key not in _READERS:
            rule.fail(f"there is no key {key!r}; the keys are {', '.join(_READERS)}")
        if not value:
            way_out = "; without it, leave the arrow out, as in '*: nChw16c'"
            rule.fail(f"{key} is empty{way_out if key == 'src' else ''}")
        read, form, what = _READERS[key]
        try:
            made[key] = read(value) if re.fullmatch(form, value) else None
        except MemdescError as error:
            rule.fail(f"{key}: {error}")
        if made[key] is None:
            rule.fail(f"{key}={value} is not {what}")
    if "groups" in made and "scales" not in made:
        rule.fail("groups= goes with scales=, which are chosen from the data")
    if "scales" in made and made.keys() & _ROLES.keys():
        rule.fail(f"scales= are chosen from the data; leave out {', '.join(_ROLES)}")
    if "scales" in made and "dtype" not in made:
        rule.fail("scales= needs the data type of the codes, such as s8")
    if made.get("rename", "").count("*") > _expression(rule.pattern).groups:
        rule.fail(f"rename={made['rename']} has more * than the pattern {rule.pattern}")
    attr = tuple((role, made.pop(key)) for key, role in _ROLES.items() if key in made)
    return replace(rule, **made, attr=attr)


def read_format(value: str) -> FormatName:
    """Return the name of a layout or record, and its options, as in ``gptq(zeros=v2)``."""
    if _is_dtype(value):
        raise MemdescError(f"{value} is a data type, not a layout: '-> plain, {value}' has both")
    match = _OPTIONS.fullmatch(value)
    if not match:
        return FormatName(value)
    options: list[tuple[str, Any]] = []
    for word in match[2].split(","):
        name, equals, given = (side.strip() for side in word.partition("="))
        if not (name and equals and given):
            raise MemdescError(f"{value!r}: options are NAME=VALUE, joined by commas")
        number = int(given) if re.fullmatch(_INTEGER, given) else given
        options.append((name, {"true": True, "false": False}.get(given, number)))
    return FormatName(match[1].strip(), tuple(options))


def _finite(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if isfinite(number) else None


def _sizes(value: str) -> tuple[int, ...]:
    return tuple(map(int, value.split("x")))


# keys -> what they are for `reorder.Attr`
_ROLES = {
    "scale": "dst_scale",
    "zero_point": "dst_zero_point",
    "src_scale": "src_scale",
    "src_zero_point": "src_zero_point",
}
_NUMBER = (_finite, ".*", "a finite number")
_WHOLE = (int, _INTEGER, "an integer")
_COUNTS = (_sizes, _COUNT + f"( ?x ?{_COUNT})*", "integers joined by x, such as 64x128")
_DTYPE = (lambda value: data_type(value).name, ".*", "a data type")
# how the values of keys are read, what they match, and what they are
_READERS: dict[str, tuple[Callable[[str], Any], str, str]] = {
    "src": (read_format, ".*", ""),
    "dst": (read_format, ".*", ""),
    "dtype": _DTYPE,
    "rename": (str, ".*", ""),
    "holds": _DTYPE,
    "dims": _COUNTS,
    "scale": _NUMBER,
    "zero_point": _WHOLE,
    "src_scale": _NUMBER,
    "src_zero_point": _WHOLE,
    "scales": (str, f"[a-l]+|{WHOLE}", f"letters of dims, with a for the first, or {WHOLE}"),
    "groups": _COUNTS,
}
