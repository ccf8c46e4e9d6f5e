"""Definitions of benchmarks (`definitions/*.toml`): subjects, axes, turns, figures and their units.

    about = "one sentence"
    [needs]                     what must be given, NAME = what it is
    [given]                     what may be given, NAME = default
    [computed]                  expressions over the names above and below, NAME = "expression"
    [units]                     figures that tables show, NAME = unit
    [subject]                   keys that all subjects have, where they do not say otherwise
    [[parts]]                   one comparison; all of the following
    name, rounds, warm          turns, and rounds before them that do not count
    when                        an expression: left out where it is not true
    axes = {NAME = [..]}        each pair of values is a cell; may be given, too
    cells = [{NAME = ..}, ..]   cells that are no product
    prepare = [{run, makes}]    commands before a cell; with `makes`, only where that path is not there
    over                        subjects that the others are compared with
    same                        figures that must be alike: otherwise the subjects did other work
    [[parts.subjects]]
    name, when, each = {NAME = [..]}, prepare
    run                         a command: {demask}, {lab}, {work}, {threads} and names of above are put in
    environment                 variables
    python = "FILE:CLASS"       a subject of subjects/ instead of a command, options = {..} for it
    rival                       true where no build of demask runs: --against has no second one
    reads                       the file with the output; otherwise what is printed
    entries, by                 path of a list in the output, and the field that tells its entries apart
    figures = {NAME = "a.0.b"}  paths in the output; every command has `wall` and `processor`, seconds
    derived = {NAME = "a / b"}  expressions over figures of the same round, other subjects (`other.figure`) and names of above
    keep                        whether the record has the last output, or entry, as a whole

A value that begins with a dash is several words of a command, any other value is one.
"""

import itertools
import re
import shlex
import tomllib
from pathlib import Path
from types import SimpleNamespace

FOLDER = Path(__file__).parent / "definitions"
KEYS = {
    "definition": {"about", "needs", "given", "computed", "units", "subject", "parts"},
    "part": {"name", "rounds", "warm", "when", "axes", "cells", "prepare", "over", "same", "subjects"},
    "subject": {"name", "when", "each", "prepare", "run", "environment", "python", "options", "rival", "reads", "entries", "by", "figures"}
    | {"derived", "keep"},
}


class Wrong(Exception):
    """What is wrong in a definition, or in what was given for it."""


def names():
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read(name):
    """A definition, whose keys are all known."""
    path = FOLDER / f"{name}.toml"
    if not path.exists():
        raise Wrong(f"no definition {name!r}: expected one of {', '.join(names())}")
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    for part in checked("definition", found).setdefault("parts", []):
        part["subjects"] = [found.get("subject", {}) | subject for subject in checked("part", part)["subjects"]]
        for subject in part["subjects"]:
            checked("subject", subject)
            if ("run" in subject) == ("python" in subject):
                raise Wrong(f"subject {subject['name']!r} has both run and python, or none of them")
    return found


def checked(kind, table):
    for key in table.keys() - KEYS[kind]:
        raise Wrong(f"{kind} {table.get('name', '')!r} has an unknown key {key!r}")
    return table


def settle(definition, words):
    """Values of all names, from NAME=VALUE words; axes are changed in place."""
    axes = {name: values for part in definition["parts"] for name, values in part.get("axes", {}).items()}
    values = dict(definition.get("given", {}))
    known = [*definition.get("needs", {}), *values, *axes]
    for word in words:
        name, sign, text = word.partition("=")
        if not sign or name not in known:
            raise Wrong(f"{word!r} gives nothing that is known: expected NAME=VALUE with one of {', '.join(known) or 'no name'}")
        if name in axes:
            chosen = typed(name, text, axes[name])
            for part in definition["parts"]:
                part["axes"] = {axis: chosen if axis == name else there for axis, there in part.get("axes", {}).items()}
        else:
            values[name] = typed(name, text, values.get(name, ""))
    for name, about in definition.get("needs", {}).items():
        if name not in values:
            raise Wrong(f"{name}=VALUE is missing: {about}")
    return values


def typed(name, text, default):
    """A value of the default's type; items of a list are separated by `|`, or by commas."""
    if isinstance(default, list):
        return [typed(name, item, default[0]) for item in text.split("|" if "|" in text else ",")]
    try:
        return type(default)(text)
    except ValueError:
        raise Wrong(f"{name}={text} is no {type(default).__name__}") from None


def cells(part):
    """Points of a part, in order."""
    axes = part.get("axes", {})
    product = [dict(zip(axes, values)) for values in itertools.product(*axes.values())]
    return [{**cell, **point} for cell in part.get("cells", [{}]) for point in product]


def computed_values(definition, values):
    """Values with the definition's computed ones."""
    return values | {name: computed(text, values) for name, text in definition.get("computed", {}).items()}


def expanded(part, values):
    """Subjects of a part at a point: name and table, with the values of `each` and of options in `values`."""
    found = {}
    for subject in part["subjects"]:
        each = subject.get("each", {})
        for number, chosen in enumerate(itertools.product(*each.values())):
            own = {**values, "number": number, **dict(zip(each, chosen)), **subject.get("options", {})}
            if holds(subject.get("when", "1"), own):
                found[plain(subject["name"], own)] = {**subject, "values": own}
    return found


def shown(value):
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def plain(text, values):
    """A text with values in place of their names."""
    return re.sub(r"\{(\w+)\}", lambda found: shown(named(found[1], values)), text)


def named(name, values):
    if name not in values:
        raise Wrong(f"{{{name}}} is unknown: expected one of {', '.join(sorted(values))}")
    return values[name]


def words(text, values):
    """Words of a command."""

    def quoted(found):
        value = shown(named(found[1], values)).strip()
        return value if value.startswith("-") or not value else shlex.quote(value)

    return shlex.split(re.sub(r"\{(\w+)\}", quoted, text))


def holds(expression, values):
    return bool(computed(expression, values))


def computed(expression, values):
    """The value of an expression over names; definitions are the project's own files."""
    return eval(expression, {"__builtins__": {}, "min": min, "max": max, **values})


def derive(derived, own, others, values):
    """Adds derived figures to those of a subject's turn."""
    for name, expression in derived.items():
        beside = {other: SimpleNamespace(**found) for other, found in others.items() if other.isidentifier()}
        try:
            own[name] = computed(expression, {**values, **beside, **own})
        except (NameError, AttributeError, TypeError, ZeroDivisionError):
            # It needs a subject, or a figure, that this turn does not have.
            own[name] = None
    return own


def looked_up(output, path):
    """What is at a path of JSON; nothing if it is not there."""
    for step in filter(None, path.split(".")):
        try:
            output = output[int(step)] if isinstance(output, list) else output[step]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return output
