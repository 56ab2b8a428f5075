"""llama_published - a published model by llama.cpp, from its GGUF file, in one process on all cores.

--job prefill: a prompt into caches, and its first token. --job decode: greedy, behind a prompt of 8 tokens.
"""

import argparse
import random
import time

import measure

import xllamacpp

PROMPT, CONTEXT = 512, 8
VOCABULARY = 49152  # of the measured model


def read_options():
    parser = measure.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="its GGUF file")
    parser.add_argument("--job", choices=["prefill", "decode"], required=True)
    parser.add_argument("--steps", type=measure.positive, default=4, help="of the job that are measured")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def make_server(model, cores):
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx, params.n_batch, params.n_parallel, params.verbosity = 2 * PROMPT, PROMPT, 1, -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = cores
    return xllamacpp.Server(params)


def answer(server, prompt, tokens):
    """Returns the moments of TOKENS tokens, chosen greedily behind PROMPT random ones."""
    words = [random.Random(1).randrange(VOCABULARY) for _ in range(prompt)]
    moments = []

    def saw(chunk):
        if "error" in chunk:
            raise SystemExit(f"llama.cpp: {chunk}")
        moments.append(time.perf_counter())

    server.handle_completions({"prompt": words, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
                               "cache_prompt": False, "stream": True}, saw)
    return moments[:tokens]  # a last message has the statistics


def decode(server, steps):
    """Returns the measurements of STEPS tokens; two tokens before them warm up."""
    first = answer(server, CONTEXT, 1)
    startup, before = measure.since_start_ms(), measure.thread_ticks()
    moments = answer(server, CONTEXT, steps + 2)[1:]
    times = [1e3 * (later - earlier) for earlier, later in zip(moments, moments[1:])]
    return measure.summary(times, [0.0] * len(first), measure.threads_since(before), startup)


def main():
    options = read_options()
    server = make_server(options.model, measure.cores())
    if options.job == "decode":
        told = decode(server, options.steps)
    else:
        told = measure.run(lambda: float(len(answer(server, PROMPT, 1))), options.steps, 1)
    measure.report({"peer": "llama.cpp", "version": f"xllamacpp {xllamacpp.__version__}"} | told, options.json)


main()
