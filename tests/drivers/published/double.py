"""double.py - computes a Llama in double precision, in plain Python, and writes its files: the reference of foreign.py.

Sizes are those of SIZES unless others are given. Values are drawn from a seed and rounded to float32."""

import json
import math
import os
import random
import struct

from published import NAMES, read, text, turned  # noqa: F401

SIZES = dict(vocabulary=48, channels=24, inside=32, layers=2, heads=4, key_heads=2, width=12, base=50.0)
TOKENS = [5, 17, 3, 40, 42, 42, 7, 0, 31, 12, 9, 33]
EPSILON = 1e-6


def vector(draw, count, scale=0.35, shift=0.0):
    return list(struct.unpack(f"<{count}f", struct.pack(f"<{count}f", *(shift + scale * draw.gauss(0, 1) for _ in range(count)))))


def tensor(draw, rows, columns, scale=1.0):
    return [rows, columns], vector(draw, rows * columns, scale / math.sqrt(columns))


def params(seed=1, qkv=False, out=False, mlp=False, head_norms=False, tied=False, sizes=SIZES):
    """Returns tensors, (shape, values), by the names of a published folder."""
    draw = random.Random(seed)
    c, inside, width = sizes["channels"], sizes["inside"], sizes["width"]
    q, k = sizes["heads"] * width, sizes["key_heads"] * width
    bias = lambda count: ([count], vector(draw, count))
    norm = lambda count: ([count], vector(draw, count, 0.3, 1.0))
    p = {"model.embed_tokens.weight": tensor(draw, sizes["vocabulary"], c, 6.0), "model.norm.weight": norm(c)}
    if not tied:
        p["lm_head.weight"] = tensor(draw, sizes["vocabulary"], c, 3.0)
    for layer in range(sizes["layers"]):
        at = f"model.layers.{layer}."
        products = {"self_attn.q_proj": (q, c, qkv), "self_attn.k_proj": (k, c, qkv), "self_attn.v_proj": (k, c, qkv),
                    "self_attn.o_proj": (c, q, out), "mlp.gate_proj": (inside, c, mlp), "mlp.up_proj": (inside, c, mlp),
                    "mlp.down_proj": (c, inside, mlp)}
        for name, (rows, columns, biased) in products.items():
            p[f"{at}{name}.weight"] = tensor(draw, rows, columns, 1.5)
            if biased:
                p[f"{at}{name}.bias"] = bias(rows)
        for name in ("input_layernorm", "post_attention_layernorm"):
            p[f"{at}{name}.weight"] = norm(c)
        for name in ("self_attn.q_norm", "self_attn.k_norm") if head_norms else ():
            p[f"{at}{name}.weight"] = norm(width)
    return p


def times(x, p, name):
    """Returns x [out, in]^T + bias, row by row."""
    (rows, columns), values = p[f"{name}.weight"]
    bias = p.get(f"{name}.bias", (None, [0.0] * rows))[1]
    kernel = [values[r * columns : (r + 1) * columns] for r in range(rows)]
    return [[b + sum(map(float.__mul__, row, line)) for line, b in zip(kernel, bias)] for row in x]


def normalized(row, scale):
    factor = 1 / math.sqrt(sum(v * v for v in row) / len(row) + EPSILON)
    return [v * factor * s for v, s in zip(row, scale)]


def rotated(head, position, rates, amplitude):
    half = len(head) // 2
    turns = [(amplitude * math.cos(position * r), amplitude * math.sin(position * r)) for r in rates]
    return [head[i] * turns[i][0] - head[i + half] * turns[i][1] for i in range(half)] + [
        head[i + half] * turns[i][0] + head[i] * turns[i][1] for i in range(half)]


def attention(x, p, at, rates, amplitude, window, sizes):
    width, groups = sizes["width"], sizes["heads"] // sizes["key_heads"]
    parts = {}
    for kind, heads in ("q", sizes["heads"]), ("k", sizes["key_heads"]), ("v", sizes["key_heads"]):
        rows = times(x, p, f"{at}self_attn.{kind}_proj")
        parts[kind] = [[row[h * width : (h + 1) * width] for h in range(heads)] for row in rows]
        if kind != "v":
            scale = p.get(f"{at}self_attn.{kind}_norm.weight")
            if scale:
                parts[kind] = [[normalized(head, scale[1]) for head in row] for row in parts[kind]]
            parts[kind] = [[rotated(head, t, rates, amplitude) for head in row] for t, row in enumerate(parts[kind])]
    out = []
    for t, row in enumerate(parts["q"]):
        first = max(0, t + 1 - window) if window else 0
        line = []
        for h, query in enumerate(row):
            scores = [sum(map(float.__mul__, query, parts["k"][s][h // groups])) / math.sqrt(width) for s in range(first, t + 1)]
            weights = [math.exp(s - max(scores)) for s in scores]
            total = sum(weights)
            line += [sum(w * parts["v"][first + s][h // groups][i] for s, w in enumerate(weights)) / total for i in range(width)]
        out.append(line)
    return times(out, p, f"{at}self_attn.o_proj")


def logits(p, tokens=TOKENS, rates=None, amplitude=1.0, window=0, sizes=SIZES):
    """Returns the logits [tokens][vocabulary]."""
    c, width = sizes["channels"], sizes["width"]
    rates = rates or [sizes["base"] ** (-2 * i / width) for i in range(width // 2)]
    table = p["model.embed_tokens.weight"][1]
    x = [table[t * c : (t + 1) * c] for t in tokens]
    add = lambda a, b: [[u + v for u, v in zip(r, s)] for r, s in zip(a, b)]
    for layer in range(sizes["layers"]):
        at = f"model.layers.{layer}."
        scale = lambda name: p[f"{at}{name}.weight"][1]
        x = add(x, attention([normalized(row, scale("input_layernorm")) for row in x], p, at, rates, amplitude, window, sizes))
        h = [normalized(row, scale("post_attention_layernorm")) for row in x]
        gate, up = times(h, p, f"{at}mlp.gate_proj"), times(h, p, f"{at}mlp.up_proj")
        x = add(x, times([[a / (1 + math.exp(-a)) * u for a, u in zip(r, s)] for r, s in zip(gate, up)], p, f"{at}mlp.down_proj"))
    x = [normalized(row, p["model.norm.weight"][1]) for row in x]
    head = {"head.weight": p.get("lm_head.weight", p["model.embed_tokens.weight"])}
    return times(x, head, "head")


def loss(p, tokens, **how):
    """Returns the mean loss of each token's successor."""
    total = 0
    for row, target in zip(logits(p, tokens[:-1], **how), tokens[1:]):
        most = max(row)
        total += most + math.log(sum(math.exp(v - most) for v in row)) - row[target]
    return total / (len(tokens) - 1)


# ---- files ----

FORMATS = {"F32": "f", "F64": "d", "I64": "q", "U8": "B", "BOOL": "?"}


def safetensors(path, tensors):
    """Writes a safetensors file. TENSORS: (shape, values) or (shape, values, dtype) by name."""
    about, data = {}, b""
    for name, (shape, values, *dtype) in tensors.items():
        dtype = dtype[0] if dtype else "F32"
        raw = struct.pack(f"<{len(values)}{FORMATS[dtype]}", *values)
        about[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(about).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + data)


def adapters(path, p, modules=("self_attn.q_proj", "mlp.down_proj"), layers=None, rank=3, alpha=7.0, seed=5, sizes=SIZES, **changes):
    """Writes a folder of PEFT's with adapters for P. Returns P with the adapters added."""
    draw, tensors, added, scale = random.Random(seed), {}, dict(p), alpha / rank
    for layer in range(sizes["layers"]) if layers is None else layers:
        for module in modules:
            name = f"model.layers.{layer}.{module}"
            (rows, columns), values = p[f"{name}.weight"]
            a, b = vector(draw, rank * columns, 0.2), vector(draw, rows * rank, 0.2)
            tensors[f"base_model.model.{name}.lora_A.weight"] = [rank, columns], a
            tensors[f"base_model.model.{name}.lora_B.weight"] = [rows, rank], b
            products = [scale * sum(b[r * rank + i] * a[i * columns + c] for i in range(rank)) for r in range(rows) for c in range(columns)]
            added[f"{name}.weight"] = [rows, columns], [u + v for u, v in zip(values, products)]
    os.makedirs(path, exist_ok=True)
    safetensors(os.path.join(path, "adapter_model.safetensors"), tensors)
    about = dict(peft_type="LORA", task_type="CAUSAL_LM", r=rank, lora_alpha=alpha, bias="none", target_modules=[m.split(".")[1] for m in modules])
    with open(os.path.join(path, "adapter_config.json"), "w") as file:
        json.dump({**about, **changes}, file)
    return added


def safetensors_of_tokens(path, rows):
    """Writes sequences of token numbers as a file for --data."""
    raw = b"".join(struct.pack(f"<{len(row)}i", *row) for row in rows)
    head = json.dumps({"tokens": {"dtype": "I32", "shape": [len(rows), len(rows[0])], "data_offsets": [0, len(raw)]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + raw)


def config(family="llama", sizes=SIZES, **changes):
    values = dict(model_type=family, vocab_size=sizes["vocabulary"], hidden_size=sizes["channels"], intermediate_size=sizes["inside"],
                  num_hidden_layers=sizes["layers"], num_attention_heads=sizes["heads"], num_key_value_heads=sizes["key_heads"],
                  head_dim=sizes["width"], max_position_embeddings=64, rms_norm_eps=EPSILON, rope_theta=sizes["base"],
                  tie_word_embeddings=False, hidden_act="silu")
    values.update(changes)
    return values


def folder(path, tensors, values):
    os.makedirs(path, exist_ok=True)
    safetensors(os.path.join(path, "model.safetensors"), tensors)
    with open(os.path.join(path, "config.json"), "w") as file:
        json.dump(values, file)


def value(of):
    """Returns a GGUF value with its type."""
    if isinstance(of, bool):
        return struct.pack("<I?", 7, of)
    if isinstance(of, int):
        return struct.pack("<II", 4, of)
    if isinstance(of, float):
        return struct.pack("<If", 6, of)
    if isinstance(of, list):
        inner = [value(v) for v in of]
        return struct.pack("<I", 9) + inner[0][:4] + struct.pack("<Q", len(of)) + b"".join(v[4:] for v in inner)
    return struct.pack("<I", 8) + text(of)


def gguf_name(name):
    if name in NAMES:
        return NAMES[name]
    if not name.startswith("model.layers."):
        return name
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    stem, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{NAMES[stem]}.{kind}"


def split(path, tensors, count, sizes=SIZES, change=lambda part, keys: None):
    """Writes a GGUF file in COUNT parts, as llama.cpp splits it, and returns the first one. CHANGE may change a part's plain keys."""
    names = list(tensors)
    for part in range(count):
        share = names[part * len(names) // count : (part + 1) * len(names) // count]
        keys = {"split.no": part, "split.count": count, "split.tensors.count": len(names)}
        change(part, keys)
        gguf(f"{path}-{part + 1:05}-of-{count:05}.gguf", {name: tensors[name] for name in share}, sizes=sizes, plain=keys)
    return f"{path}-00001-of-{count:05}.gguf"


def gguf(path, tensors, family="llama", sizes=SIZES, others={}, plain={}, **keys):
    """Writes a GGUF file. KEYS are added under the architecture's name, with "__" for a dot, PLAIN under their own names.
    OTHERS: tensors under their own names, (shape, bytes, number of the type)."""
    all_keys = {"block_count": sizes["layers"], "context_length": 64, "embedding_length": sizes["channels"],
                "feed_forward_length": sizes["inside"], "attention.head_count": sizes["heads"],
                "attention.head_count_kv": sizes["key_heads"], "attention.key_length": sizes["width"],
                "attention.layer_norm_rms_epsilon": EPSILON, "rope.freq_base": sizes["base"]}
    all_keys.update({key.replace("__", "."): of for key, of in keys.items()})
    head = text("general.architecture") + value(family)
    for key, of in all_keys.items():
        head += text(f"{family}.{key}") + value(of)
    for key, of in plain.items():
        head += text(key) + value(of)
    lie = {}
    for name, (shape, values, *_) in tensors.items():
        if family == "llama" and ("q_proj" in name or "k_proj" in name):
            values = turned(values, shape[0], sizes["width"])
        lie[gguf_name(name)] = shape, struct.pack(f"<{len(values)}f", *values), 0
    lie.update(others)
    infos, data = b"", b""
    for name, (shape, raw, kind) in lie.items():
        data += b"\0" * (-len(data) % 32)
        infos += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, len(data))
        data += raw
    head = b"GGUF" + struct.pack("<IQQ", 3, len(lie), 1 + len(all_keys) + len(plain)) + head + infos
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32) + data)
