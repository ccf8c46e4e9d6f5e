#!/usr/bin/env python3
"""Writes a trained demo checkpoint of LLaDA's shape as a GGUF file: what the loss of quantised files is measured with.

    pip install gguf numpy
    python tools/gguf/demo_model.py demo/demo-llada q8_0 FILE.gguf

Every matrix gets the format: q8_0, q5_1, q5_0, q4_1, q4_0 or mxfp4. Those of blocks of 256 do not divide its rows.
"""

import argparse
import json
import struct
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

FORMATS = {kind.name.lower(): kind for kind in [Type.Q8_0, Type.Q5_1, Type.Q5_0, Type.Q4_1, Type.Q4_0, Type.MXFP4]}
# Names in the checkpoint and in GGUF files.
LAYER = {
    "attn_norm": "attn_norm",
    "attn_out": "attn_output",
    "ff_norm": "ffn_norm",
    "ff_out": "ffn_down",
    "ff_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
}
OTHERS = {"wte": "token_embd", "ln_f": "output_norm", "ff_out": "output"}


def tensors(path):
    """Yields name and f32 values of each tensor of a safetensors file of bf16."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    for name, facts in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        if facts["dtype"] != "BF16":
            raise SystemExit(f"{name} is {facts['dtype']}, expected BF16")
        start, end = (8 + length + offset for offset in facts["data_offsets"])
        values = np.frombuffer(data[start:end], "<u2").astype(np.uint32) << 16
        yield name, values.view(np.float32).reshape(facts["shape"])


def renamed(name):
    parts = name.removeprefix("model.transformer.").split(".")
    if parts[0] == "blocks":
        return f"blk.{parts[1]}.{LAYER[parts[2]]}.weight"
    return f"{OTHERS[parts[0]]}.weight"


def permuted(values, heads):
    """Rows of q and k in the order of llama.cpp's converter: the halves of each head interleaved."""
    return values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("file")
    asked = parser.parse_args()
    kind = FORMATS[asked.format]
    config = json.loads((asked.checkpoint / "config.json").read_text())
    out = gguf.GGUFWriter(asked.file, "llada")
    out.add_name(f"{asked.checkpoint.name} {asked.format}")
    out.add_block_count(config["n_layers"])
    out.add_context_length(config["max_sequence_length"])
    out.add_embedding_length(config["d_model"])
    out.add_feed_forward_length(config["mlp_hidden_size"])
    out.add_head_count(config["n_heads"])
    out.add_head_count_kv(config["n_kv_heads"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_rope_freq_base(config["rope_theta"])
    out.add_causal_attention(False)
    out.add_bool("diffusion.shift_logits", False)
    out.add_mask_token_id(config["mask_token_id"])
    tokenizer = json.loads((asked.checkpoint / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    special = {added["content"]: added["id"] for added in tokenizer["added_tokens"]}
    names = {number: name for name, number in (vocabulary | special).items()}
    tokens = [names[number] for number in range(config["vocab_size"])]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("llada-moe")
    out.add_token_list(tokens)
    kinds = (gguf.TokenType.NORMAL, gguf.TokenType.CONTROL)
    out.add_token_types([kinds[name in special] for name in tokens])
    merges = tokenizer["model"]["merges"]
    out.add_token_merges([" ".join(merge) if isinstance(merge, list) else merge for merge in merges])
    words = json.loads((asked.checkpoint / "tokenizer_config.json").read_text())
    out.add_bos_token_id(special[words["bos_token"]])
    out.add_eos_token_id(config["eos_token_id"])
    out.add_pad_token_id(config["pad_token_id"])
    out.add_chat_template(words["chat_template"])
    for name, values in tensors(asked.checkpoint / "model.safetensors"):
        name = renamed(name)
        if values.ndim == 1:
            out.add_tensor(name, values)
            continue
        if name.endswith(("attn_q.weight", "attn_k.weight")):
            values = permuted(values, config["n_heads"])
        out.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    main()
