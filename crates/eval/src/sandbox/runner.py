"""Runs program.py and writes one word on how it ended. Everything that this needs afterwards is fetched before."""


def run():
    import os
    import sys
    import types

    with open("program.py", encoding="utf-8") as file:
        key, _, source = file.read().partition("\n")
    os.remove("program.py")
    path = os.path.abspath("verdict")
    create, write, leave = os.open, os.write, os._exit
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    sys.path[:] = [folder for folder in sys.path if folder]
    module = types.ModuleType("program")
    sys.modules["program"] = module
    try:
        exec(compile(source, "program.py", "exec"), module.__dict__)
        word = "passed"
    except MemoryError:
        word = "memory"
    except SystemExit:
        word = "exit"
    except BaseException as error:
        word = "exception " + type(error).__name__
    module.__dict__.clear()
    write(create(path, flags, 0o600), (key + " " + word).encode("utf-8", "replace"))
    leave(0)


run()
