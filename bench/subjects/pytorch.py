"""LLaDA's, Dream's or Qwen's network in plain torch operations, as users of transformers have it: tensors in torch's own
layout, one linear layer each, nothing tuned by hand. Weights come from a folder of safetensors or, widened, from a GGUF file.

A step is one forward over all rows with full attention, and the head on all of them or on `head_rows`, followed by the
confidence of the most probable token of each, as demask's head computes it.
"""

import json
import os
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from subjects import parts

# Where the weights of a layer are, and those beside the layers.
LLADA = {
    "prefix": "model.transformer.", "layer": "blocks.{}.", "embedding": "wte", "norm": "ln_f", "head": "ff_out",
    "attention_norm": "attn_norm", "mlp_norm": "ff_norm", "q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "attn_out",
    "gate": "ff_proj", "up": "up_proj", "down": "ff_out",
}  # fmt: skip
DREAM = {
    "prefix": "model.", "layer": "layers.{}.", "embedding": "embed_tokens", "norm": "norm", "head": "lm_head",
    "attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm", "q": "self_attn.q_proj",
    "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj", "gate": "mlp.gate_proj",
    "up": "mlp.up_proj", "down": "mlp.down_proj",
}  # fmt: skip
GGUF = {
    "layer": "blk.{}.", "embedding": "token_embd", "norm": "output_norm", "head": "output", "attention_norm": "attn_norm",
    "mlp_norm": "ffn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output", "gate": "ffn_gate",
    "up": "ffn_up", "down": "ffn_down",
}  # fmt: skip


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


class Network:
    """A network over one sequence."""

    def __init__(self, path, device, dtype):
        self.device = device
        if Path(path).is_file():
            self.from_gguf(path, dtype)
        else:
            self.from_folder(Path(path), dtype)

    def from_folder(self, folder, dtype):
        config = json.loads((folder / "config.json").read_text())
        either = lambda *names: next(config[name] for name in names if config.get(name) is not None)
        self.names = LLADA if "d_model" in config else DREAM
        self.heads = either("n_heads", "num_attention_heads")
        self.kv_heads = either("n_kv_heads", "num_key_value_heads", "n_heads")
        self.head_dim = either("d_model", "hidden_size") // self.heads
        self.layers = either("n_layers", "num_hidden_layers")
        self.epsilon, self.theta = config["rms_norm_eps"], config["rope_theta"]
        self.weights = {}
        for path in sorted(folder.glob("*.safetensors")):
            for name, tensor in read_safetensors(path):
                self.weights[name.removeprefix(self.names["prefix"])] = tensor.to(self.device, dtype)

    def from_gguf(self, file, dtype):
        import gguf

        reader = gguf.GGUFReader(file)
        field = lambda name: reader.fields[name].contents()
        arch = field("general.architecture")
        self.names = GGUF
        self.heads = field(f"{arch}.attention.head_count")
        self.kv_heads = field(f"{arch}.attention.head_count_kv")
        self.head_dim = field(f"{arch}.embedding_length") // self.heads
        self.layers = field(f"{arch}.block_count")
        self.epsilon, self.theta = field(f"{arch}.attention.layer_norm_rms_epsilon"), field(f"{arch}.rope.freq_base")
        self.weights = {}
        for tensor in reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            self.weights[tensor.name] = torch.from_numpy(values.copy()).to(self.device, dtype)
        self.weights.setdefault("output.weight", self.weights["token_embd.weight"])

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
            # As in transformers: every row goes through the whole of every layer, and the head's rows are cut out afterwards.
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


def timed(device, work):
    """Seconds until a device has done something."""
    finish = torch.cuda.synchronize if device.type == "cuda" else lambda _: None
    finish(device)
    began = time.perf_counter()
    work()
    finish(device)
    return time.perf_counter() - began


def matrix_tflops(device, size=8192, tries=20):
    """Largest rate of torch's own product of two square matrices of bf16."""
    a, b = (torch.randn(size, size, dtype=torch.bfloat16, device=device) for _ in range(2))
    return 2 * size**3 / min(timed(device, lambda: torch.matmul(a, b)) for _ in range(tries)) / 1e12


class Steps:
    """Steps of each number of rows, on the threads of the others or on a GPU."""

    def __init__(self, _bench, values):
        torch.set_num_threads(values["threads"])
        self.values, self.device = values, torch.device(values.get("device", "cpu"))
        self.network = Network(values["file"], self.device, getattr(torch, values["torch_dtype"]))
        oned = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
        self.about = f"{torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {'with' if oned else 'without'} oneDNN"
        self.rate = {}
        if self.device.type == "cuda":
            self.about += f", {torch.cuda.get_device_name(self.device)}, CUDA {torch.version.cuda}"
            self.rate = {"matrix_tflops": matrix_tflops(self.device)}

    def seconds(self, rows, head_rows):
        ids = (torch.arange(rows) % 250).to(self.device)
        with torch.inference_mode():
            return timed(self.device, lambda: self.network.step(ids, head_rows))

    def turn(self):
        head_rows = self.values.get("head_rows", 0)

        def seconds(count, all_rows):
            return self.seconds(count, min(head_rows or count, count) if all_rows else 1)

        return [found | self.rate for found in parts(seconds, not head_rows, self.values["rows"], self.values["repeat"])]
