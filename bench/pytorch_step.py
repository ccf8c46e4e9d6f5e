"""Denoising steps in PyTorch and in demask, in turns on the same machine, and the ratios of their times.

    demask synth --like llada-8b --layers 4 --out DIR
    python bench/pytorch_step.py --model DIR --rows 32,256 --demask target/release/demask --quantize q8

Shapes of LLaDA and Dream; --device cuda runs both sides on a GPU, one after the other, and measures torch's largest rate
of a product of bf16 there (matrix_tflops). Needs torch. The model is written here in plain torch operations, with the weights as users of transformers have them:
bf16 tensors in torch's own layout, one linear layer each, nothing tuned by hand. A step is one forward over all rows
with full attention, and the head on all of them or on --head-rows, followed by the confidence of the most probable token
of each, as demask's head computes it. demask computes in bf16 too, and besides with --quantize and --activations if
they are given. All take turns, so that whatever else the machine does meets them alike.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F


def read_safetensors(path):
    """All tensors of a file, without the safetensors package: a length, a JSON header, bytes."""
    dtypes = {"BF16": torch.bfloat16, "F32": torch.float32, "F16": torch.float16}
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    data = torch.from_file(str(path), shared=False, size=os.path.getsize(path), dtype=torch.uint8)[8 + length :]
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        yield name, data[first:last].clone().view(dtypes[entry["dtype"]]).view(entry["shape"])


# Where the weights of a layer are, and those beside the layers.
LLADA = {
    "prefix": "model.transformer.", "layer": "blocks.{}.", "embedding": "wte", "norm": "ln_f", "head": "ff_out",
    "attention_norm": "attn_norm", "mlp_norm": "ff_norm", "q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "attn_out",
    "gate": "ff_proj", "up": "up_proj", "down": "ff_out",
}
DREAM = {
    "prefix": "model.", "layer": "layers.{}.", "embedding": "embed_tokens", "norm": "norm", "head": "lm_head",
    "attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm", "q": "self_attn.q_proj",
    "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj", "gate": "mlp.gate_proj",
    "up": "mlp.up_proj", "down": "mlp.down_proj",
}


class Network:
    """LLaDA's or Dream's network over one sequence, in bf16."""

    def __init__(self, directory, device):
        config = json.loads((Path(directory) / "config.json").read_text())
        either = lambda *names: next(config[name] for name in names if config.get(name) is not None)
        self.device = device
        self.names = LLADA if "d_model" in config else DREAM
        self.heads = either("n_heads", "num_attention_heads")
        self.kv_heads = either("n_kv_heads", "num_key_value_heads", "n_heads")
        self.head_dim = either("d_model", "hidden_size") // self.heads
        self.layers = either("n_layers", "num_hidden_layers")
        self.epsilon = config["rms_norm_eps"]
        self.theta = config["rope_theta"]
        self.vocabulary = either("embedding_size", "vocab_size")
        self.weights = {}
        for path in sorted(Path(directory).glob("*.safetensors")):
            for name, tensor in read_safetensors(path):
                self.weights[name.removeprefix(self.names["prefix"])] = tensor.to(device, torch.bfloat16)

    def rotation(self, rows):
        steps = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=self.device) / self.head_dim
        positions = torch.arange(rows, dtype=torch.float32, device=self.device)
        angles = torch.outer(positions, self.theta**-steps)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()

    def norm(self, x, weight):
        return F.rms_norm(x, (x.shape[-1],), weight, self.epsilon)

    def rotate(self, x, cos, sin):
        low, high = x.float().chunk(2, dim=-1)
        turned = torch.cat((-high, low), dim=-1)
        return (x.float() * cos + turned * sin).to(x.dtype)

    def linear(self, x, name):
        return F.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def step(self, ids, head_rows):
        names, rows = self.names, ids.shape[0]
        cos, sin = self.rotation(rows)
        x = F.embedding(ids, self.weights[f"{names['embedding']}.weight"])
        for layer in range(self.layers):
            # As in transformers: every row goes through the whole of every layer, and the head's rows are cut out behind.
            of = lambda part: names["layer"].format(layer) + names[part]
            weight = lambda part: self.weights[f"{of(part)}.weight"]
            normed = self.norm(x, weight("attention_norm"))
            shaped = lambda y, heads: y.view(rows, heads, self.head_dim).transpose(0, 1)
            q = self.rotate(shaped(self.linear(normed, of("q")), self.heads), cos, sin)
            k = self.rotate(shaped(self.linear(normed, of("k")), self.kv_heads), cos, sin)
            v = shaped(self.linear(normed, of("v")), self.kv_heads)
            attended = F.scaled_dot_product_attention(q[None], k[None], v[None], enable_gqa=self.heads != self.kv_heads)
            x = x + self.linear(attended[0].transpose(0, 1).reshape(rows, -1), of("o"))
            normed = self.norm(x, weight("mlp_norm"))
            x = x + self.linear(F.silu(self.linear(normed, of("gate"))) * self.linear(normed, of("up")), of("down"))
        logits = self.linear(self.norm(x, self.weights[f"{names['norm']}.weight"])[:head_rows], names["head"]).float()
        best, ids = logits.max(dim=-1)
        return ids, torch.exp(best - logits.logsumexp(dim=-1))


def finish(device):
    """Waits until a device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def matrix_tflops(device, size=8192, tries=20):
    """Largest rate of torch's own product of two square matrices of bf16."""
    a, b = (torch.randn(size, size, dtype=torch.bfloat16, device=device) for _ in range(2))
    taken = []
    for _ in range(tries):
        finish(device)
        started = time.perf_counter()
        torch.matmul(a, b)
        finish(device)
        taken.append(time.perf_counter() - started)
    return 2 * size**3 / min(taken) / 1e12


def torch_seconds(model, ids, head_rows, repeat):
    taken = []
    with torch.inference_mode():
        for index in range(repeat + 1):
            started = time.perf_counter()
            model.step(ids, head_rows)
            finish(model.device)
            if index > 0:
                taken.append(time.perf_counter() - started)
    return taken


def demask_report(arguments, variant, rows, head_rows):
    command = [arguments.demask, "bench", "step", "--json", "--model", arguments.model]
    command += ["--rows", str(rows), "--head-rows", str(head_rows), "--repeat", str(arguments.repeat)]
    command += ["--device", arguments.device]
    # What runs on a GPU has no threads to be told of.
    command += ["--threads", str(arguments.threads)] if arguments.device == "cpu" else []
    command += ["--dtype", "bf16", *variant]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{shlex.join(command)}: {result.stderr.strip()}")
    return json.loads(result.stdout)[0]


def spread(seconds):
    return {"median": statistics.median(seconds), "min": min(seconds), "max": max(seconds)}


def merged(spreads):
    """Of the turns of one variant: the median of their medians, and their extremes."""
    return {
        "median": statistics.median(spread["median"] for spread in spreads),
        "min": min(spread["min"] for spread in spreads),
        "max": max(spread["max"] for spread in spreads),
    }


def variants(arguments):
    """demask's flags: none, and those that were given."""
    given = [("--quantize", arguments.quantize), ("--activations", arguments.activations)]
    flags = tuple(part for flag, value in given if value for part in (flag, value))
    return [(), flags] if flags else [()]


def compare(arguments, model, rows):
    """All variants and torch in turns, on one number of rows."""
    head_rows = min(arguments.head_rows or rows, rows)
    ids = torch.randint(0, model.vocabulary, (rows,), generator=torch.Generator().manual_seed(0)).to(model.device)
    rival, own = [], {variant: [] for variant in variants(arguments)}
    for turn in range(arguments.turns):
        rival += torch_seconds(model, ids, head_rows, arguments.repeat)
        for variant, reports in own.items():
            reports.append(demask_report(arguments, variant, rows, head_rows))
        print(f"{rows} rows: turn {turn + 1} of {arguments.turns} done", file=sys.stderr)
    torch_spread = spread(rival)
    results = []
    for variant, reports in own.items():
        seconds = merged([report["seconds"] for report in reports])
        ratio = torch_spread["median"] / seconds["median"]
        results.append({"flags": shlex.join(variant), "device": reports[0]["device"], "seconds": seconds, "ratio": ratio})
    return {"rows": rows, "head_rows": head_rows, "torch_seconds": torch_spread, "demask": results}


def told(result):
    of = lambda seconds: f"{seconds['median']:.4f} s ({seconds['min']:.4f} to {seconds['max']:.4f})"
    yield f"{result['rows']} rows, {result['head_rows']} head rows: torch bf16 {of(result['torch_seconds'])}"
    for own in result["demask"]:
        yield f"  demask {own['flags'] or '--dtype bf16'} ({own['device']}): {of(own['seconds'])}, ratio {own['ratio']:.2f}"


def setting(arguments):
    """What PyTorch computes with: its threads, instructions and the library behind its products of bf16."""
    gpu = {}
    if arguments.device != "cpu":
        device = torch.device(arguments.device)
        gpu = {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda, "matrix_tflops": matrix_tflops(device)}
    return gpu | {
        "model": arguments.model.rstrip("/").rsplit("/", 1)[-1],
        "threads": torch.get_num_threads(),
        "turns": arguments.turns,
        "repeat": arguments.repeat,
        "torch": torch.__version__,
        "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch_onednn": torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled,
    }


def numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a directory that demask synth --like llada-8b or dream-7b made")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:N [default: cpu]")
    parser.add_argument("--demask", default="target/release/demask", help="the binary")
    parser.add_argument("--rows", type=numbers, default=[256], help="numbers of rows: 32,256")
    parser.add_argument("--head-rows", type=int, help="rows that the head answers [default: all]")
    parser.add_argument("--quantize", help="demask's flag, beside its plain bf16: q8, q4")
    parser.add_argument("--activations", help="demask's flag, beside its plain bf16: int8")
    parser.add_argument("--repeat", type=int, default=3, help="measured steps of each turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true", help="print JSON, and nothing else, to standard output")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = Network(arguments.model, torch.device(arguments.device))
    result = setting(arguments) | {"results": []}
    for rows in arguments.rows:
        result["results"].append(compare(arguments, model, rows))
        if not arguments.json:
            print("\n".join(told(result["results"][-1])), flush=True)
    if arguments.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
