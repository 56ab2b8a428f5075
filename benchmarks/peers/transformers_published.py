"""transformers_published - a published model by Hugging Face's transformers on PyTorch, in one process on all cores.

--job train: forward, backward and AdamW, with bf16 under autocast and with float32 master weights. --job prefill: a
prompt into caches. --job decode: greedy, behind a prompt of 8 tokens. For the last two bf16 is the type of all there is.
"""

import argparse

import measure

import torch
import transformers
from torch.nn import functional
from transformers import AutoModelForCausalLM

PROMPT, CONTEXT, BATCH, SEQUENCE = 512, 8, 4, 256


def read_options():
    parser = measure.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="its folder")
    parser.add_argument("--job", choices=["train", "prefill", "decode"], required=True)
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--steps", type=measure.positive, default=4, help="of the job that are measured")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def random_tokens(model, rows, columns):
    return torch.randint(0, model.config.vocab_size, (rows, columns), generator=torch.Generator().manual_seed(1))


def training(model, options):
    tokens = random_tokens(model, BATCH, SEQUENCE + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    model.train()

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16"):
            logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        loss = functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def prefilling(model, _):
    tokens = random_tokens(model, 1, PROMPT)
    model.eval()
    return lambda: model(input_ids=tokens, use_cache=True, logits_to_keep=1).logits[0, 0, 0].item()


def decoding(model, _):
    model.eval()
    out = model(input_ids=random_tokens(model, 1, CONTEXT), use_cache=True, logits_to_keep=1)
    caches, token = out.past_key_values, out.logits[:, -1:].argmax(-1)

    def step():
        nonlocal token
        token = model(input_ids=token, past_key_values=caches, use_cache=True).logits[:, -1:].argmax(-1)
        return token.item()

    return step


def main():
    options = read_options()
    torch.set_num_threads(measure.cores())
    transformers.logging.set_verbosity_error()
    bf16 = options.precision == "bf16" and options.job != "train"
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.bfloat16 if bf16 else torch.float32)
    begin = {"train": training, "prefill": prefilling, "decode": decoding}[options.job]
    with torch.inference_mode(options.job != "train"):
        told = measure.run(begin(model, options), options.steps, 1)
    version = f"{transformers.__version__} on torch {torch.__version__}"
    measure.report({"peer": "transformers", "version": version} | told, options.json)


main()
