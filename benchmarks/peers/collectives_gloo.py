"""collectives_gloo - times of PyTorch's gloo for collectives among processes of one machine.

Prints a JSON line for each operation, group and size. Measured as bench_collectives.c does: microseconds of a call
among calls that follow each other, until the slowest process has finished; the median of a few batches, their least and
most. psum is all_reduce in place; ppermute sends to the next process of a ring and receives from the one before.
Threads are those that worked for any of a group's lines, gloo's own included: a sum over the processes.
"""

import argparse
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist

import measure

BATCHES = 5
GROUPS = [2, 4, 8]
SIZES = [4, 1 << 10, 1 << 14, 1 << 18, 1 << 22, 4 * 4618762]  # the last: all gradients of the article's model


def psum(tensor, other, group, rank):
    dist.all_reduce(tensor, group=group)


def ppermute(tensor, other, group, rank):
    size = dist.get_world_size(group)
    requests = [
        dist.isend(tensor, (rank + 1) % size, group=group),
        dist.irecv(other, (rank - 1) % size, group=group),
    ]
    for request in requests:
        request.wait()


def batch_us(operation, arguments, group, count):
    """Returns the mean microseconds of COUNT calls."""
    dist.barrier(group)
    began = time.perf_counter()
    for _ in range(count):
        operation(*arguments)
    dist.barrier(group)
    return 1e6 * (time.perf_counter() - began) / count


def measure_calls(operation, elements, group, rank, seconds):
    """Returns the sorted times of a few batches. All members double a batch until it is long enough for the first one's clock."""
    arguments = (torch.zeros(elements), torch.zeros(elements), group, rank)
    batch_us(operation, arguments, group, 2)  # the first calls take longer
    count, more = 1, torch.ones(1)
    while more:
        us = batch_us(operation, arguments, group, count)
        more.fill_(1e-6 * us * count < seconds / BATCHES)
        dist.broadcast(more, 0, group=group)
        count *= 2 if more else 1
    return sorted(batch_us(operation, arguments, group, count) for _ in range(BATCHES))


def measure_group(options, group, rank):
    """Returns the lines of one group."""
    size = dist.get_world_size(group)
    lines, before = [], measure.thread_ticks()
    for operation in psum, ppermute:
        for count in options.sizes:
            us = measure_calls(operation, count // 4, group, rank, options.seconds)
            line = {"peer": "gloo", "version": torch.__version__, "operation": operation.__name__, "group": size}
            line |= {"bytes": count, "us": statistics.median(us), "us_min": us[0], "us_max": us[-1]}
            lines.append(line)
    threads = torch.tensor([measure.threads_since(before)])
    dist.all_reduce(threads, group=group)
    return [line | {"threads": threads.item()} for line in lines]


def run(rank, options, directory):
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    processes = max(options.groups)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=processes)
    for size in options.groups:
        group = dist.new_group(list(range(size)))
        lines = measure_group(options, group, rank) if rank < size else []
        for line in lines if rank == 0 else []:
            print(json.dumps({name: measure.rounded(value) for name, value in line.items()}), flush=True)
        dist.barrier()  # processes outside of the group sleep in it
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, nargs="+", default=GROUPS, help="numbers of processes, from 2")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes, multiples of 4")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each measurement")
    parser.add_argument("--json", action="store_true", help="changes nothing: the lines are JSON anyway")
    options = parser.parse_args()
    if min(options.groups) < 2 or any(size < 4 or size % 4 for size in options.sizes):
        parser.error("groups begin at 2 processes, sizes are positive multiples of 4 bytes")
    with tempfile.TemporaryDirectory() as directory:
        torch.multiprocessing.spawn(run, (options, directory), nprocs=max(options.groups))


if __name__ == "__main__":
    main()
