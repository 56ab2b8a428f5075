#!/usr/bin/env python3
"""published.py - files of published models, for published.sh.

compare GIVEN WANTED        prints the largest difference of the logits in two safetensors files, relative to their
                            spread, and whether each row's largest one is the same
tokens OUT                  writes the sequences of facts.json (reference.py)
gradients GIVEN LOSS FACTS  prints the largest difference of the loss, and of a gradient beside its norm, from the facts
gguf FOLDER OUT             writes the model in FOLDER as a GGUF file of float32 (Llama's rows of q and k turned)
prompts FACTS               prints the prompts of smollm2.json (real.py), a line each
length FACTS N              prints how many tokens prompt N has
facts LOGITS OUT FACTS N    prints how far the largest logits after prompt N's tokens are from the facts, relative to the logits'
                            spread; OUT is the output of the driver with --json
rows LOGITS FIRST COUNT OUT writes COUNT rows of the logits from row FIRST on, as if they were all
config FOLDER OUT KEY JSON  copies FOLDER to OUT with another value of a key in its config.json; "-": without it"""

import json
import math
import os
import shutil
import struct
import sys


def read(path):
    """Returns the tensors, (shape, list of floats), of a safetensors file of float32 or bf16."""
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


def compare(given, wanted, limit=None):
    (rows, columns), got = read(given)["logits"]
    _, want = read(wanted)["logits"]
    want = want[: len(got)]
    mean = sum(want) / len(want)
    spread = (sum((x - mean) ** 2 for x in want) / len(want)) ** 0.5
    difference = max(abs(a - b) for a, b in zip(got, want)) / spread
    rows_of = lambda x: [x[r * columns : (r + 1) * columns] for r in range(rows)]
    same = all(a.index(max(a)) == b.index(max(b)) for a, b in zip(rows_of(got), rows_of(want)))
    print(f"{difference:.3g} {'same' if same else 'other'} choices")
    return 0 if (difference < float(limit) if limit else same and difference < 1e-5) else 1


def tokens(out):
    rows = [[(7 * i * i + 3 * i + 5 * r * r) % 64 for i in range(17)] for r in range(4)]
    about = {"tokens": {"dtype": "I32", "shape": [4, 17], "data_offsets": [0, 4 * 4 * 17]}}
    head = json.dumps(about).encode()
    with open(out, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + struct.pack("<68i", *sum(rows, [])))


def gradients(given, loss, facts):
    with open(facts) as file:
        want = json.load(file)
    got = {name: values for name, (_, values) in read(given).items()}
    worst = abs(float(loss) - want["loss"]) / want["loss"]
    for name, (norm, product) in want["gradients"].items():
        values = got.pop(name)
        products = sum(x * math.cos(i * i) for i, x in enumerate(values))
        worst = max(worst, abs(math.hypot(*values) - norm) / norm, abs(products - product) / norm)
    print(f"{worst:.3g}{' other names: ' + ' '.join(got) if got else ''}")
    return 0 if worst < 1e-5 and not got else 1


NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
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
    "wte.weight": "token_embd.weight",
    "wpe.weight": "position_embd.weight",
    "ln_f.weight": "output_norm.weight",
    "ln_f.bias": "output_norm.bias",
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}


def gguf_name(name):
    name = name.removeprefix("transformer.")
    if name in NAMES:
        return NAMES[name]
    layer, rest = name.removeprefix("model.layers.").removeprefix("h.").split(".", 1)
    stem, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{NAMES[stem]}.{kind}"


def turned(values, rows, width):
    """Reorders the rows of each head: row j * width / 2 + i becomes row 2i + j."""
    columns = len(values) // rows
    order = [h * width + j * (width // 2) + i for h in range(rows // width) for i in range(width // 2) for j in range(2)]
    return [x for row in order for x in values[row * columns : (row + 1) * columns]]


def text(string):
    return struct.pack("<Q", len(string)) + string.encode()


def transposed(values, columns):
    return [x for c in range(columns) for x in values[c::columns]]


def divisors(width, rope):
    """Returns the divisors of the rotation rates of Llama 3."""
    low, high = (rope["original_max_position_embeddings"] / rope[f"{end}_freq_factor"] for end in ("low", "high"))
    for i in range(width // 2):
        wave = 2 * math.pi * rope["rope_theta"] ** (2 * i / width)
        smooth = min(1, max(0, (low / wave - 1) / (low / high - 1)))
        yield 1 / ((1 - smooth) / rope["factor"] + smooth)


def sizes_of(config):
    """Returns the metadata that are integers and reals."""
    if config["model_type"] == "gpt2":
        return {
            "block_count": config["n_layer"],
            "context_length": config["n_positions"],
            "embedding_length": config["n_embd"],
            "feed_forward_length": config["n_inner"],
            "attention.head_count": config["n_head"],
        }, {"attention.layer_norm_epsilon": config["layer_norm_epsilon"]}
    return {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config.get("head_dim", config["hidden_size"] // config["num_attention_heads"]),
    }, {"rope.freq_base": config["rope_parameters"]["rope_theta"], "attention.layer_norm_rms_epsilon": config["rms_norm_eps"]}


def gguf(folder, out):
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    family = config["model_type"]
    sizes, reals = sizes_of(config)
    width, rope = sizes.get("attention.key_length"), config.get("rope_parameters", {})
    head = text("general.architecture") + struct.pack("<I", 8) + text(family)
    for key, value in sizes.items():
        head += text(f"{family}.{key}") + struct.pack("<II", 4, value)
    for key, value in reals.items():
        head += text(f"{family}.{key}") + struct.pack("<If", 6, value)
    tensors = {}
    for name, (shape, values) in read(os.path.join(folder, "model.safetensors")).items():
        if family == "llama" and ("q_proj" in name or "k_proj" in name):
            values = turned(values, shape[0], width)
        if family == "gpt2" and ".c_" in name and len(shape) == 2:
            shape, values = shape[::-1], transposed(values, shape[1])
        tensors[gguf_name(name)] = shape, values
    if rope.get("rope_type") == "llama3":
        tensors["rope_freqs.weight"] = [width // 2], list(divisors(width, rope))
    infos, data = b"", b""
    for name, (shape, values) in tensors.items():
        data += b"\0" * (-len(data) % 32)
        infos += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, len(data))
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


def real(facts):
    with open(facts) as file:
        return json.load(file)["prompts"]


def prompts(facts):
    for prompt in real(facts):
        print(prompt["text"])


def length(facts, number):
    print(len(real(facts)[int(number)]["tokens"]))


def row(path, number, columns):
    """Returns one row of the logits in a file."""
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        file.seek(8 + size + 4 * columns * number)
        return struct.unpack(f"<{columns}f", file.read(4 * columns))


def rows(path, first, count, out):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        columns = json.loads(file.read(size))["logits"]["shape"][1]
        file.seek(8 + size + 4 * columns * int(first))
        data = file.read(4 * columns * int(count))
    about = {"logits": {"dtype": "F32", "shape": [int(count), columns], "data_offsets": [0, len(data)]}}
    head = json.dumps(about).encode()
    with open(out, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + data)


def check_facts(given, out, facts, number):
    prompt = real(facts)[int(number)]
    with open(out) as file:
        got = json.loads(file.readline())["tokens"]
    count = len(prompt["tokens"])
    logits = row(given, count - 1, prompt["classes"])
    worst = max(abs(logits[token] - logit) for token, logit in prompt["largest"]) / prompt["spread"]
    same = got[:count] == prompt["tokens"] and got[count] == prompt["largest"][0][0]
    print(f"{worst:.2g} {'same' if same else 'other'} tokens")
    return 0 if same and worst < 1e-4 else 1


COMMANDS = {
    "compare": compare,
    "tokens": tokens,
    "gradients": gradients,
    "gguf": gguf,
    "rows": rows,
    "config": config,
    "prompts": prompts,
    "length": length,
    "facts": check_facts,
}

if __name__ == "__main__":
    sys.exit(COMMANDS[sys.argv[1]](*sys.argv[2:]))
