"""collectives_gloo - what PyTorch's gloo needs for collectives among processes of one machine.

Prints a JSON line for each operation, group and size: microseconds a call, the median by the first process's clock.
psum is all_reduce in place; ppermute sends to the next process of a ring and receives from the one before. Calls follow
each other without a barrier between.
"""

import argparse
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist

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


def measure(operation, elements, group, rank, seconds):
    """Median microseconds of as many calls as fit into SECONDS, at least 5 and at most 2000."""
    tensor, other = torch.zeros(elements), torch.zeros(elements)
    arguments = (tensor, other, group, rank)
    for _ in range(2):
        operation(*arguments)
    begin = time.perf_counter()
    operation(*arguments)
    # All members must make the same number of calls: the first one's.
    calls = torch.tensor([min(2000, max(5, seconds / (time.perf_counter() - begin)))]).int()
    dist.broadcast(calls, 0, group=group)
    times = []
    for _ in range(calls.item()):
        begin = time.perf_counter()
        operation(*arguments)
        times.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(times)


def run(rank, options, directory):
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    processes = max(options.groups)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=processes)
    for size in options.groups:
        group = dist.new_group(list(range(size)))
        for operation in psum, ppermute:
            for count in options.sizes:
                if rank < size:
                    us = measure(operation, count // 4, group, rank, options.seconds)
                if rank == 0:
                    line = {"peer": "gloo", "version": torch.__version__, "operation": operation.__name__}
                    line |= {"bytes": count, "group": size, "us": float(f"{us:.9g}")}
                    print(json.dumps(line), flush=True)
                dist.barrier()  # those outside of the group sleep in it
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
