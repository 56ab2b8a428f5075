"""llama_published - a published model by llama.cpp, from its GGUF file, in one process on all cores.

--job prefill: a prompt into caches. --job decode: greedy, behind a prompt of 8 tokens.
"""

import argparse
import random

import measure

import llama_cpp
import numpy

PROMPT, CONTEXT = 512, 8


def read_options():
    parser = measure.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="its GGUF file")
    parser.add_argument("--job", choices=["prefill", "decode"], required=True)
    parser.add_argument("--steps", type=measure.positive, default=4, help="of the job that are measured")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def random_tokens(model, count):
    return [random.Random(1).randrange(model.n_vocab()) for _ in range(count)]


def logits(model):
    """Returns the logits of the last token."""
    return numpy.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(model.ctx, -1), (model.n_vocab(),))


def prefilling(model):
    tokens = random_tokens(model, PROMPT)

    def step():
        model.reset()
        model.eval(tokens)
        return float(logits(model)[0])

    return step


def decoding(model):
    model.eval(random_tokens(model, CONTEXT))

    def step():
        token = int(logits(model).argmax())
        model.eval([token])
        return float(token)

    return step


def main():
    options = read_options()
    cores = measure.cores()
    model = llama_cpp.Llama(options.model, n_ctx=2 * PROMPT, n_batch=PROMPT, n_threads=cores, n_threads_batch=cores, verbose=False)
    step = {"prefill": prefilling, "decode": decoding}[options.job](model)
    told = measure.run(step, options.steps, 1)
    measure.report({"peer": "llama.cpp", "version": f"llama-cpp-python {llama_cpp.__version__}"} | told, options.json)


main()
