"""The side of the tests: runs them in a process that the program cannot reach, and tells the verdict. The program's
functions are called in its own process, and what comes back is compared here, as plain data."""

import ast
import signal


class Left(BaseException):
    """The program has ended itself."""


with open(0, "rb", closefd=False) as order:
    job = json.loads(order.read())
handle, word = quiet()
channel = Channel(handle)
functions = []


class Remote:
    """Something of the program that is no plain data. It is never equal to plain data, whatever it says itself."""

    __slots__ = ("_number",)

    def __init__(self, number):
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments, **named):
        return ask("call", self, *arguments, **named)

    def __getattr__(self, name):
        return ask("get", self, name)

    def __setattr__(self, name, value):
        ask("set", self, name, value)

    def __iter__(self):
        return ask("iter", self)

    def __next__(self):
        return ask("next", self)

    def __len__(self):
        return ask("len", self)

    def __bool__(self):
        return bool(ask("bool", self))

    def __str__(self):
        return ask("str", self)

    def __repr__(self):
        return ask("repr", self)

    def __hash__(self):
        return ask("hash", self)

    def __getitem__(self, key):
        return ask("item", self, key)

    def __setitem__(self, key, value):
        ask("set item", self, key, value)

    def __eq__(self, other):
        if type(other) is not Remote:
            return False
        return self._number == other._number or ask("equal", self, other) is True

    def __lt__(self, other):
        return ask("less", self, other) is True if type(other) is Remote else NotImplemented


def refer(value):
    if type(value) is Remote:
        return ["object", value._number]
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        functions.append(value)
        return ["function", len(functions) - 1]
    raise TypeError(f"a test hands over a {type(value).__name__}, which only its own process could use")


def find(tag, number):
    if tag != "object":
        channel.lose()
    return Remote(number)


def ask(operation, *arguments, **named):
    named = {name: encode(value, refer) for name, value in named.items()}
    message = exchange(["do", operation, [encode(value, refer) for value in arguments], named])
    for value, after in zip(arguments, message[2] or []):
        if type(value) in (list, dict, set, bytearray):
            restore(value, decode(after, find))
    return decode(message[1], find)


def restore(value, after):
    """Makes a test's own value what the program has made of it."""
    if type(value) in (list, bytearray):
        value[:] = after
    elif value != after:
        value.clear()
        value.update(after)


def exchange(message):
    channel.send(message)
    while True:
        message = channel.receive()
        if message[0] == "value":
            return message + [None]
        if message[0] == "raise":
            raise exception(message)
        if message[0] != "call":
            raise Left
        try:
            result = functions[message[1]](*[decode(value, find) for value in message[2]])
            channel.send(["value", encode(result, refer)])
        except Exception as error:
            channel.send(raised(error))


def wanted(tests, entry, known):
    """Names that the tests take from the program. One of Python's own is the program's only where the tests call no
    other: `sum(4, 6)` may be its function, `sum(pairs(4))` is not."""
    tree = ast.parse(tests)
    nodes = list(ast.walk(tree))
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {(node.asname or node.name).split(".")[0] for node in nodes if isinstance(node, ast.alias)}
    named = {node.id for node in nodes if isinstance(node, ast.Name)} - bound - known
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    free = {name for name in named if not hasattr(builtins, name)}
    if entry:
        free.add(entry)
    elif not free & called:
        free |= named & called
    return sorted(free)


def compiles(code):
    try:
        compile(code, "program.py", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def judge():
    code, tests = job["code"], job["tests"]
    if compiles(code):
        exchange(["run", code])
    else:
        # Code that only the tests' text completes runs, as it would elsewhere; but no test is left outside of it.
        exchange(["run", code + "\n\n" + tests])
        return "exit"
    space = types.ModuleType("tests").__dict__
    exec(compile(job["given"], "given.py", "exec"), space)
    names = wanted(tests, job["entry_point"], set(space))
    # Of what the program sends, only what was asked for.
    given = decode(exchange(["names", names])[1], find)
    space.update({name: given[name] for name in names if name in given})
    exec(compile(tests, "tests.py", "exec"), space)
    return "lost" if channel.lost else "passed"


def verdict():
    # Whatever ends this process ends the program too.
    signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
    signal.alarm(job["seconds"])
    try:
        return judge()
    except Lost:
        return "lost"
    except (Left, SystemExit):
        return "exit"
    except MemoryError:
        return "memory"
    except BaseException as error:
        return "lost" if channel.lost else "exception " + type(error).__name__


def tell(text):
    # Not while memory is short: the verdict is a short word.
    os.write(word, text.encode("utf-8", "replace")[:200])
    os._exit(0)


tell(verdict())
