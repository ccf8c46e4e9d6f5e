"""One denoising step in PyTorch and in demask, in turns on the same machine, and the ratio of their times.

    demask synth --like llada-8b --layers 4 --out DIR
    python bench/pytorch_step.py --model DIR --rows 256 --demask target/release/demask

Needs torch. The model is written here in plain torch operations, with the weights as users of transformers have them:
bf16 tensors in torch's own layout, one linear layer each. A step is one forward over all rows with full attention, and
the head on all rows, followed by the confidence of the most probable token of each, as demask's head computes it.
"""

import argparse
import json
import os
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


class Llada:
    """LLaDA's network over one sequence, in bf16."""

    def __init__(self, directory):
        config = json.loads((Path(directory) / "config.json").read_text())
        self.heads = config["n_heads"]
        self.kv_heads = config.get("n_kv_heads") or self.heads
        self.head_dim = config["d_model"] // self.heads
        self.layers = config["n_layers"]
        self.epsilon = config["rms_norm_eps"]
        self.theta = config["rope_theta"]
        self.vocabulary = config.get("embedding_size") or config["vocab_size"]
        self.weights = {}
        for path in sorted(Path(directory).glob("*.safetensors")):
            for name, tensor in read_safetensors(path):
                self.weights[name.removeprefix("model.transformer.")] = tensor.to(torch.bfloat16)

    def rotation(self, rows):
        steps = torch.arange(0, self.head_dim, 2, dtype=torch.float32) / self.head_dim
        angles = torch.outer(torch.arange(rows, dtype=torch.float32), self.theta**-steps)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()

    def norm(self, x, weight):
        return F.rms_norm(x, (x.shape[-1],), weight, self.epsilon)

    def rotate(self, x, cos, sin):
        low, high = x.float().chunk(2, dim=-1)
        turned = torch.cat((-high, low), dim=-1)
        return (x.float() * cos + turned * sin).to(x.dtype)

    def step(self, ids):
        weights, rows = self.weights, ids.shape[0]
        cos, sin = self.rotation(rows)
        x = F.embedding(ids, weights["wte.weight"])
        for layer in range(self.layers):
            of = lambda name: weights[f"blocks.{layer}.{name}.weight"]
            normed = self.norm(x, of("attn_norm"))
            shaped = lambda y, heads: y.view(rows, heads, self.head_dim).transpose(0, 1)
            q = self.rotate(shaped(F.linear(normed, of("q_proj")), self.heads), cos, sin)
            k = self.rotate(shaped(F.linear(normed, of("k_proj")), self.kv_heads), cos, sin)
            v = shaped(F.linear(normed, of("v_proj")), self.kv_heads)
            attended = F.scaled_dot_product_attention(q[None], k[None], v[None], enable_gqa=self.heads != self.kv_heads)
            x = x + F.linear(attended[0].transpose(0, 1).reshape(rows, -1), of("attn_out"))
            normed = self.norm(x, of("ff_norm"))
            x = x + F.linear(F.silu(F.linear(normed, of("ff_proj"))) * F.linear(normed, of("up_proj")), of("ff_out"))
        logits = F.linear(self.norm(x, weights["ln_f.weight"]), weights["ff_out.weight"]).float()
        best, ids = logits.max(dim=-1)
        return ids, torch.exp(best - logits.logsumexp(dim=-1))


def torch_seconds(model, ids, repeat):
    taken = []
    with torch.inference_mode():
        for index in range(repeat + 1):
            started = time.perf_counter()
            model.step(ids)
            if index > 0:
                taken.append(time.perf_counter() - started)
    return taken


def demask_report(arguments):
    command = [arguments.demask, "bench", "step", "--json", "--model", arguments.model, "--dtype", "bf16"]
    command += ["--rows", str(arguments.rows), "--repeat", str(arguments.repeat), "--threads", str(arguments.threads)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a directory that demask synth --like llada-8b made")
    parser.add_argument("--demask", default="target/release/demask", help="the binary")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=3, help="measured steps of each turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = Llada(arguments.model)
    ids = torch.randint(0, model.vocabulary, (arguments.rows,), generator=torch.Generator().manual_seed(0))
    rival, own = [], []
    for turn in range(arguments.turns):
        rival += torch_seconds(model, ids, arguments.repeat)
        report = demask_report(arguments)
        own.append(report["seconds"]["median"])
        print(f"turn {turn}: torch {statistics.median(rival):.4f} s, demask {own[-1]:.4f} s", file=sys.stderr)
    result = {
        "model": arguments.model.rstrip("/").rsplit("/", 1)[-1],
        "rows": arguments.rows,
        "threads": arguments.threads,
        "torch": torch.__version__,
        "torch_seconds": {"median": statistics.median(rival), "min": min(rival), "max": max(rival)},
        "demask_seconds": {"median": statistics.median(own), "min": min(own), "max": max(own)},
        "ratio": statistics.median(rival) / statistics.median(own),
        "device": report["device"],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
