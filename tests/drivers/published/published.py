#!/usr/bin/env python3
"""published.py - files of published models, for published.sh.

compare GIVEN WANTED        prints the largest difference of the logits in two safetensors files, relative to their
                            spread, and whether each row's largest one is the same
gguf FOLDER OUT             writes the model in FOLDER as a GGUF file of float32 (Llama's rows of q and k turned)
config FOLDER OUT KEY JSON  copies FOLDER to OUT with another value of a key in its config.json; "-": without it"""

import json
import os
import shutil
import struct
import sys


def read(path):
    """The tensors of a safetensors file of float32 or bf16, as (shape, list of floats)."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack_from("<Q", data)[0]
    tensors = {}
    for name, about in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = about["data_offsets"]
        raw = data[8 + size + begin : 8 + size + end]
        if about["dtype"] == "BF16":
            raw = b"".join(b"\0\0" + raw[i : i + 2] for i in range(0, len(raw), 2))
        tensors[name] = about["shape"], list(struct.unpack(f"<{len(raw) // 4}f", raw))
    return tensors


def compare(given, wanted):
    (rows, columns), got = read(given)["logits"]
    _, want = read(wanted)["logits"]
    want = want[: len(got)]
    mean = sum(want) / len(want)
    spread = (sum((x - mean) ** 2 for x in want) / len(want)) ** 0.5
    difference = max(abs(a - b) for a, b in zip(got, want)) / spread
    rows_of = lambda x: [x[r * columns : (r + 1) * columns] for r in range(rows)]
    same = all(a.index(max(a)) == b.index(max(b)) for a, b in zip(rows_of(got), rows_of(want)))
    print(f"{difference:.3g} {'same' if same else 'other'} choices")
    return 0 if same and difference < 1e-5 else 1


NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    if name in NAMES:
        return NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    stem, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{NAMES[stem]}.{kind}"


def turned(values, rows, width):
    """Row 2i + j of a head is row j * width / 2 + i."""
    columns = len(values) // rows
    order = [h * width + j * (width // 2) + i for h in range(rows // width) for i in range(width // 2) for j in range(2)]
    return [x for row in order for x in values[row * columns : (row + 1) * columns]]


def text(string):
    return struct.pack("<Q", len(string)) + string.encode()


def gguf(folder, out):
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    family = config["model_type"]
    width = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    sizes = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": width,
    }
    reals = {"rope.freq_base": config["rope_parameters"]["rope_theta"], "attention.layer_norm_rms_epsilon": config["rms_norm_eps"]}
    head = text("general.architecture") + struct.pack("<I", 8) + text(family)
    for key, value in sizes.items():
        head += text(f"{family}.{key}") + struct.pack("<II", 4, value)
    for key, value in reals.items():
        head += text(f"{family}.{key}") + struct.pack("<If", 6, value)
    tensors = read(os.path.join(folder, "model.safetensors"))
    infos, data = b"", b""
    for name, (shape, values) in tensors.items():
        if family == "llama" and ("q_proj" in name or "k_proj" in name):
            values = turned(values, shape[0], width)
        data += b"\0" * (-len(data) % 32)
        infos += text(gguf_name(name)) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, len(data))
        data += struct.pack(f"<{len(values)}f", *values)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 1 + len(sizes) + len(reals)) + head + infos
    with open(out, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32) + data)


def config(folder, out, key, value):
    shutil.copytree(folder, out)
    path = os.path.join(out, "config.json")
    with open(path) as file:
        values = json.load(file)
    values.pop(key, None)
    if value != "-":
        values[key] = json.loads(value)
    with open(path, "w") as file:
        json.dump(values, file)


if __name__ == "__main__":
    sys.exit({"compare": compare, "gguf": gguf, "config": config}[sys.argv[1]](*sys.argv[2:]))
