"""Values on their way between a program and its judge: plain data by value, everything else by a number."""

import builtins
import importlib
import json
import os
import types

# Longer messages are no answers.
LONGEST = 64 << 20

# Larger numbers travel as hexadecimal digits: their decimal ones are slow, and refused beyond a few thousand.
LARGE = 1 << 1000

TYPES = ("int", "float", "complex", "bool", "str", "bytes", "list", "tuple", "dict", "set", "frozenset", "range")

# Values of the standard library that are equal by what they hold, and what makes them again.
MADE = {
    "fractions.Fraction": lambda value: [value.numerator, value.denominator],
    "decimal.Decimal": lambda value: [str(value)],
    "collections.deque": lambda value: [list(value), value.maxlen],
    "datetime.date": lambda value: [value.year, value.month, value.day],
    "datetime.timedelta": lambda value: [value.days, value.seconds, value.microseconds],
    "datetime.time": lambda value: [value.hour, value.minute, value.second, value.microsecond],
    "datetime.datetime": lambda value: [
        value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond
    ],
}


class Lost(BaseException):
    """The other side is gone, or does not keep to the form."""


class Channel:
    """Messages over a socket, each after its length."""

    def __init__(self, handle):
        # Fetched now: the program may replace them.
        self.handle, self.read, self.write = handle, os.read, os.write
        self.loads, self.dumps = json.loads, json.dumps
        self.lost = False

    def send(self, message):
        text = self.dumps(message).encode()
        if len(text) > LONGEST:
            text = self.dumps(raised(MemoryError())).encode()
        data = memoryview(len(text).to_bytes(8, "little") + text)
        try:
            while data:
                data = data[self.write(self.handle, data):]
        except OSError:
            self.lose()

    def receive(self):
        length = int.from_bytes(self.exactly(8), "little")
        if length > LONGEST:
            self.lose()
        try:
            return self.loads(self.exactly(length))
        except (ValueError, UnicodeError):
            self.lose()

    def exactly(self, length):
        parts = []
        while length:
            try:
                part = self.read(self.handle, min(length, 1 << 20))
            except OSError:
                part = b""
            if not part:
                self.lose()
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def lose(self):
        self.lost = True
        raise Lost


def encode(value, refer):
    """A value in JSON; `refer` does so for what is no plain data. Classes of one's own that extend a plain type are sent
    as what they hold."""
    kind = type(value)
    many = lambda values: [encode(value, refer) for value in values]
    pairs = lambda values: [[encode(key, refer), encode(value, refer)] for key, value in dict.items(values)]
    if value is None or value is True or value is False:
        return value
    if issubclass(kind, int):
        value = int.__int__(value)
        return value if -LARGE < value < LARGE else ["int", hex(value)]
    if issubclass(kind, float):
        return float.__float__(value)
    if issubclass(kind, str):
        return str.__str__(value)
    for plain in (list, tuple, set, frozenset):
        if issubclass(kind, plain):
            return [plain.__name__, many(plain.__iter__(value))]
    if issubclass(kind, dict):
        return ["dict", pairs(value)]
    if issubclass(kind, complex):
        return ["complex", value.real, value.imag]
    if kind in (bytes, bytearray):
        return [kind.__name__, value.hex()]
    if kind is range:
        return ["range", encode(value.start, refer), encode(value.stop, refer), encode(value.step, refer)]
    if kind in (type({}.keys()), type({}.items())):
        entries = {key: None for key in value} if kind is type({}.keys()) else dict(value)
        return ["keys" if kind is type({}.keys()) else "items", pairs(entries)]
    if kind is types.ModuleType:
        return ["module", value.__name__]
    if kind is type and value.__name__ in TYPES and getattr(builtins, value.__name__) is value:
        return ["type", value.__name__]
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name in MADE and getattr(value, "tzinfo", None) is None:
        return ["made", name, many(MADE[name](value))]
    if kind.__module__ == "numpy" and hasattr(value, "dtype") and not value.dtype.hasobject:
        if value.ndim == 0:
            return encode(value.item(), refer)
        return ["array", str(value.dtype), many(value.tolist())]
    return refer(value)


def decode(plain, find):
    """The value of such a form; `find` does so for what is no plain data."""
    if not isinstance(plain, list):
        return plain
    tag, first = plain[0], plain[1]
    many = lambda values: [decode(value, find) for value in values]
    if tag in ("list", "tuple", "set", "frozenset"):
        return getattr(builtins, tag)(many(first))
    if tag in ("dict", "keys", "items"):
        value = {decode(key, find): decode(value, find) for key, value in first}
        return value if tag == "dict" else getattr(value, tag)()
    if tag == "int":
        return int(first, 16)
    if tag == "complex":
        return complex(first, plain[2])
    if tag in ("bytes", "bytearray"):
        return getattr(builtins, tag).fromhex(first)
    if tag == "range":
        return range(*many(plain[1:]))
    if tag == "module":
        return importlib.import_module(first)
    if tag == "type" and first in TYPES:
        return getattr(builtins, first)
    if tag == "made" and first in MADE:
        module, name = first.split(".")
        return getattr(importlib.import_module(module), name)(*many(plain[2]))
    if tag == "array":
        return importlib.import_module("numpy").array(many(plain[2]), dtype=first)
    return find(tag, first)


def raised(error):
    """An exception as a message: its name, those of its bases, its text."""
    try:
        text = str(error)
    except BaseException:
        text = ""
    return ["raise", type(error).__name__, [base.__name__ for base in type(error).__mro__], text[:1000]]


def exception(message):
    """The exception of such a message: Python's own, or one of that name which extends it."""
    _, name, bases, text = message
    own = [getattr(builtins, base, None) for base in bases]
    own = [base for base in own if isinstance(base, type) and issubclass(base, BaseException)]
    kind = own[0] if own else Exception
    if kind.__name__ != name:
        kind = type(str(name), (kind,), {})
    return kind.__new__(kind, text)


def quiet():
    """Takes the socket away from where messages of errors go, and gives its number. Nothing else is open."""
    sink = os.open(os.devnull, os.O_RDWR)
    handle, word = os.dup(2), os.dup(1)
    for standard in (0, 1, 2):
        os.dup2(sink, standard)
    os.close(sink)
    return handle, word
