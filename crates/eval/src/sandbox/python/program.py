"""The side of the program: runs it, then calls what the judge asks for. Nothing here knows a test or the verdict."""

import operator
import sys


def serve():
    handle, word = quiet()
    os.close(word)
    channel = Channel(handle)
    objects, numbers = [], {}
    module = types.ModuleType("program")
    sys.modules["program"] = module
    sys.path[:] = [folder for folder in sys.path if folder]

    def refer(value):
        if id(value) not in numbers:
            numbers[id(value)] = len(objects)
            objects.append(value)
        return ["object", numbers[id(value)]]

    def find(tag, number):
        if tag == "object":
            return objects[number]
        return lambda *arguments: ask(number, arguments)

    def ask(number, arguments):
        channel.send(["call", number, [encode(value, refer) for value in arguments]])
        while (message := channel.receive())[0] not in ("value", "raise"):
            channel.send(answer(message))
        if message[0] == "raise":
            raise exception(message)
        return decode(message[1], find)

    def run(code):
        exec(compile(code, "program.py", "exec"), module.__dict__)

    def names(wanted):
        return {name: module.__dict__[name] for name in wanted if name in module.__dict__}

    def call(function, *arguments, **named):
        return function(*arguments, **named)

    operations = {
        "call": call, "get": getattr, "set": setattr, "iter": iter, "next": next, "len": len, "bool": bool, "str": str,
        "repr": repr, "hash": hash, "item": operator.getitem, "set item": operator.setitem, "equal": operator.eq,
        "less": operator.lt,
    }

    def perform(message):
        if message[0] == "run":
            return ["value", run(message[1])]
        if message[0] == "names":
            return ["value", encode(names(message[1]), refer)]
        _, name, plain, named = message
        arguments = [decode(value, find) for value in plain]
        result = operations[name](*arguments, **{name: decode(value, find) for name, value in named.items()})
        # What the call has done to its arguments.
        left = [encode(value, refer) for value in arguments]
        return ["value", encode(result, refer), left if left != plain else None]

    def answer(message):
        try:
            return perform(message)
        except SystemExit:
            return ["exit"]
        except Lost:
            raise
        except BaseException as error:
            return raised(error)

    while True:
        channel.send(answer(channel.receive()))


try:
    serve()
except Lost:
    pass
