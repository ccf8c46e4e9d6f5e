"""One forward of the same GGUF file in demask, llama.cpp and PyTorch, in turns on the same machine.

    pip install gguf numpy xllamacpp torch
    python tools/gguf/random_model.py llada-8b q4_k_m FILE.gguf --layers 4
    python bench/rivals.py --demask target/release/demask --file FILE.gguf --rows 1,32,256 --out RECORD.json

A rival that is not installed is left out, and the record says so. llama.cpp is any library with its C interface: the one
inside the package xllamacpp, or `--llama LIBRARY`. A forward is all rows, each seeing all others, with logits of all of them
in the head's own format; the head is what a forward with logits of every row takes longer than one with those of the last
row (PyTorch, and llama.cpp where the model is no diffusion model), or the part that demask reports. PyTorch multiplies the file's weights widened to bf16 and to f32.

`--answer NAME=COMMAND` times whole programs beside each other, demask's among them; `{file}` is the file. The first one named
is what the others are compared with.
"""

import argparse
import ctypes
import json
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path


class LlamaBatch(ctypes.Structure):
    """llama_batch of llama.h."""

    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.POINTER(ctypes.c_float)),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


class Opaque(ctypes.Structure):
    """Parameters whose fields differ from version to version: made by the library, handed back to it unread."""

    _fields_ = [("bytes", ctypes.c_uint8 * 1024)]


class LlamaCpp:
    """llama.cpp, by its C interface."""

    def __init__(self, library, file, threads, most_rows, positions=None):
        self.library = library = ctypes.CDLL(str(library))
        for name in ("llama_model_default_params", "llama_context_default_params"):
            getattr(library, name).restype = Opaque
        library.llama_model_load_from_file.restype = ctypes.c_void_p
        library.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Opaque]
        library.llama_init_from_model.restype = ctypes.c_void_p
        library.llama_init_from_model.argtypes = [ctypes.c_void_p, Opaque]
        library.llama_get_memory.restype = ctypes.c_void_p
        library.llama_get_memory.argtypes = [ctypes.c_void_p]
        library.llama_memory_clear.argtypes = [ctypes.c_void_p, ctypes.c_bool]
        library.llama_set_n_threads.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]
        library.llama_set_causal_attn.argtypes = [ctypes.c_void_p, ctypes.c_bool]
        library.llama_decode.argtypes = [ctypes.c_void_p, LlamaBatch]
        library.llama_batch_init.restype = LlamaBatch
        library.llama_print_system_info.restype = ctypes.c_char_p
        library.llama_model_is_diffusion.restype = ctypes.c_bool
        library.llama_model_is_diffusion.argtypes = [ctypes.c_void_p]
        # Kept for as long as the library may call it.
        self.silence = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        library.llama_log_set(self.silence, None)
        library.llama_backend_init()
        model = library.llama_model_load_from_file(str(file).encode(), library.llama_model_default_params())
        if not model:
            raise SystemExit(f"llama.cpp cannot load {file}")
        # It computes logits of all rows for these, whatever is asked.
        self.has_parts = not library.llama_model_is_diffusion(model)
        parameters = library.llama_context_default_params()
        if positions:
            # n_ctx, the first field of the parameters.
            parameters.bytes[0:4] = list(positions.to_bytes(4, "little"))
        self.context = library.llama_init_from_model(model, parameters)
        library.llama_set_n_threads(self.context, threads, threads)
        library.llama_set_causal_attn(self.context, False)
        self.batch = library.llama_batch_init(most_rows, 0, 1)

    def about(self):
        return self.library.llama_print_system_info().decode()

    def seconds(self, rows, all_logits):
        """Seconds of one forward."""
        batch = self.batch
        batch.n_tokens = rows
        for row in range(rows):
            batch.token[row], batch.pos[row], batch.n_seq_id[row] = row % 250, row, 1
            batch.seq_id[row][0] = 0
            batch.logits[row] = 1 if all_logits or row == rows - 1 else 0
        self.library.llama_memory_clear(self.library.llama_get_memory(self.context), True)
        started = time.perf_counter()
        status = self.library.llama_decode(self.context, batch)
        self.library.llama_synchronize(ctypes.c_void_p(self.context))
        taken = time.perf_counter() - started
        if status:
            raise SystemExit(f"llama.cpp's forward of {rows} rows failed with status {status}")
        return taken


class Torch:
    """The same network in plain torch operations, weights widened from the file."""

    LAYER = {"attention_norm": "attn_norm", "mlp_norm": "ffn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v"}
    LAYER |= {"o": "attn_output", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}

    def __init__(self, file, dtype, threads):
        import gguf
        import torch
        from pytorch_step import Network

        torch.set_num_threads(threads)
        self.torch, self.network = torch, Network.__new__(Network)
        reader = gguf.GGUFReader(file)
        field = lambda name: reader.fields[name].contents()
        arch = field("general.architecture")
        network = self.network
        network.device = torch.device("cpu")
        network.heads = field(f"{arch}.attention.head_count")
        network.kv_heads = field(f"{arch}.attention.head_count_kv")
        network.head_dim = field(f"{arch}.embedding_length") // network.heads
        network.layers = field(f"{arch}.block_count")
        network.epsilon = field(f"{arch}.attention.layer_norm_rms_epsilon")
        network.theta = field(f"{arch}.rope.freq_base")
        network.names = {"layer": "blk.{}.", "embedding": "token_embd", "norm": "output_norm", "head": "output"} | self.LAYER
        network.weights = {}
        for tensor in reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            network.weights[tensor.name] = torch.from_numpy(values.copy()).to(dtype)
        network.weights.setdefault("output.weight", network.weights["token_embd.weight"])
        self.has_parts = True

    def seconds(self, rows, all_logits):
        ids = self.torch.arange(rows) % 250
        started = time.perf_counter()
        with self.torch.inference_mode():
            self.network.step(ids, rows if all_logits else 1)
        return time.perf_counter() - started


class Demask:
    """demask, one process a turn."""

    def __init__(self, program, file, threads, options):
        self.command = [program, "bench", "step", "--json", "--model", file, "--device", "cpu", "--threads", str(threads)]
        self.command += options

    def report(self, rows, repeat):
        """Reports of one turn, one for each number of rows."""
        command = [*self.command, "--rows", ",".join(map(str, rows)), "--repeat", str(repeat)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{shlex.join(command)} failed: {done.stderr.strip()}")
        return json.loads(done.stdout)


def installed_llama():
    """The library inside an installed package, if there is one."""
    import importlib.util

    for package, pattern in [("xllamacpp", "*.so"), ("llama_cpp", "lib/libllama.*")]:
        found = importlib.util.find_spec(package)
        places = found.submodule_search_locations if found else []
        for place in places or []:
            for library in Path(place).glob(pattern):
                return library
    return None


def spread(values):
    """Median and quartiles."""
    if len(values) == 1:
        return {"median": values[0], "quartiles": [values[0], values[0]]}
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "quartiles": [low, high]}


def of_rival(rival, rows, repeat):
    """A turn of a rival: seconds with all logits and with the last row's, the median of some forwards each."""
    turn = {}
    for count in rows:
        rival.seconds(count, True)
        whole = statistics.median(rival.seconds(count, True) for _ in range(repeat))
        turn[count] = {"step": whole}
        if rival.has_parts:
            last = statistics.median(rival.seconds(count, False) for _ in range(repeat))
            turn[count] |= {"head": whole - last, "layers": last}
    return turn


def of_demask(demask, rows, repeat):
    """A turn of demask: its own report."""
    turn = {}
    for found in demask.report(rows, repeat):
        step, head = found["seconds"]["median"], found["parts"]["head"]
        turn[found["rows"]] = {"step": step, "head": head, "layers": step - head, "device": found["device"]}
    return turn


def summary(turns, rows):
    """Spreads of each engine and number of rows, and how many times as long as demask's each rival's step takes."""
    table = []
    for count in rows:
        line = {"rows": count}
        for name, of_engine in turns.items():
            parts = [part for part in ("step", "layers", "head") if part in of_engine[0][count]]
            line[name] = {part: spread([turn[count][part] for turn in of_engine]) for part in parts}
        for name, of_engine in turns.items():
            if name != "demask":
                pairs = zip(of_engine, turns["demask"], strict=True)
                line[name]["over_demask"] = spread([theirs[count]["step"] / ours[count]["step"] for theirs, ours in pairs])
        table.append(line)
    return table


def shown(table):
    """The table in words."""
    lines = []
    for line in table:
        for name, found in line.items():
            if name == "rows":
                continue
            low, high = found["step"]["quartiles"]
            text = f"{line['rows']:5} rows  {name:12} {found['step']['median']:.4f} s ({low:.4f} to {high:.4f})"
            if "head" in found:
                text += f"  layers {found['layers']['median']:.4f}  head {found['head']['median']:.4f}"
            if "over_demask" in found:
                text += f"  {found['over_demask']['median']:.2f} x demask"
            lines.append(text)
    return "\n".join(lines)


def named(text):
    """A name and a command, split at the first equals sign."""
    name, sign, command = text.partition("=")
    if not (name and sign and command):
        raise argparse.ArgumentTypeError(f'"{text}" is no NAME=COMMAND')
    return name, command


def answers(commands, file, rounds):
    """Seconds of whole programs, in turns, and how many times as long as the first one's each takes."""
    taken = {name: [] for name, _ in commands}
    for _ in range(rounds):
        for name, command in commands:
            words = [word.replace("{file}", file) for word in shlex.split(command)]
            started = time.perf_counter()
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{shlex.join(words)} failed: {done.stderr.strip()[-300:]}")
            taken[name].append(time.perf_counter() - started)
    first = taken[commands[0][0]]
    ratios = {name: [one / other for one, other in zip(values, first, strict=True)] for name, values in taken.items()}
    return {name: {"seconds": spread(values), "over_first": spread(ratios[name])} for name, values in taken.items()}


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demask", required=True)
    parser.add_argument("--file", required=True, help="a GGUF file of LLaDA's, Dream's or Qwen's shape")
    parser.add_argument("--rows", default="1,32,256", type=lambda text: [int(count) for count in text.split(",")])
    parser.add_argument("--rounds", default=10, type=int)
    parser.add_argument("--repeat", default=3, type=int, help="forwards of a turn, whose median counts")
    parser.add_argument("--threads", default=len(os.sched_getaffinity(0)), type=int)
    parser.add_argument("--llama", type=Path, help="a library with llama.cpp's C interface")
    parser.add_argument("--without", default="", help="rivals that are left out: llama.cpp, torch")
    parser.add_argument("--option", action="append", default=[], help="an option of demask's bench step: --option=--activations=bf16")
    parser.add_argument("--answer", action="append", default=[], type=named, metavar="NAME=COMMAND")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.rounds < 1 or min(asked.rows) < 1:
        parser.error("expected at least one round, and one row")
    if not Path(asked.file).is_file():
        parser.error(f"{asked.file} is no file: expected a GGUF file (tools/gguf/random_model.py makes one)")
    if shutil.which(asked.demask) is None:
        parser.error(f"{asked.demask} is no program: expected demask's, target/release/demask for example")
    demask = Demask(asked.demask, asked.file, asked.threads, asked.option)
    engines, about, missing = {"demask": lambda: of_demask(demask, asked.rows, asked.repeat)}, {}, {}

    def add(name, rival):
        engines[name] = lambda: of_rival(rival, asked.rows, asked.repeat)

    left_out = set(asked.without.split(","))
    library = asked.llama or installed_llama()
    if "llama.cpp" in left_out or library is None:
        missing["llama.cpp"] = "left out" if library else "not installed: pip install xllamacpp"
    else:
        rival = LlamaCpp(library, asked.file, asked.threads, max(asked.rows))
        about["llama.cpp"] = rival.about()
        add("llama.cpp", rival)
    try:
        if "torch" in left_out:
            raise ImportError("left out")
        import torch

        for dtype in (torch.bfloat16, torch.float32):
            add(f"torch {str(dtype).removeprefix('torch.')}", Torch(asked.file, dtype, asked.threads))
        about["torch"] = f"{torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"
    except ImportError as reason:
        missing["torch"] = str(reason)
    turns = {name: [] for name in engines}
    for number in range(asked.rounds):
        for name, turn in engines.items():
            turns[name].append(turn())
        print(f"round {number + 1} of {asked.rounds}", file=sys.stderr)
    table = summary(turns, asked.rows)
    record = {
        "processor": processor(),
        "threads": asked.threads,
        "device": turns["demask"][0][asked.rows[0]]["device"],
        "file": Path(asked.file).name,
        "rounds": asked.rounds,
        "about": about,
        "missing": missing,
        "forwards": table,
    }
    print(shown(table))
    if asked.answer:
        record["answers"] = answers(asked.answer, asked.file, asked.rounds)
        for name, found in record["answers"].items():
            print(f"{name:24} {found['seconds']['median']:.2f} s, {found['over_first']['median']:.2f} x {asked.answer[0][0]}")
    for name, reason in missing.items():
        print(f"without {name}: {reason}")
    if asked.out:
        asked.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
