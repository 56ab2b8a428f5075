"""Schedules of pipelines: made by name or read from a file, proven, simulated and printed."""
import collections
import ctypes
import os

from shardloop import library
from shardloop.library import check, lib, path_bytes

Action = collections.namedtuple("Action", "time kind stage microbatch")
Action.__doc__ = """The action of a rank in iteration `time`: `kind` is "forward", "backward", "send of the activation"..."""

_libc = ctypes.CDLL(None)
_libc.open_memstream.restype = _libc.fopen.restype = ctypes.c_void_p
_libc.open_memstream.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t)]
_libc.fopen.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
_libc.fclose.argtypes = _libc.free.argtypes = [ctypes.c_void_p]


def schedule_names():
    """The names that Schedule takes."""
    text = ctypes.create_string_buffer(4096)
    lib.sl_schedule_names(text, len(text))
    return text.value.decode().split(", ")


class Schedule:
    """The schedule NAME for RANKS ranks with LOOPS stages each, with the messages between them; it is proven to end."""

    def __init__(self, name, ranks, microbatches, loops=1):
        self._open(lambda struct, error: lib.sl_schedule_make(struct, str(name).encode(), _integer("ranks", ranks),
                                                              _integer("loops", loops),
                                                              _integer("microbatches", microbatches), error))

    @classmethod
    def read_csv(cls, path):
        """The table of compute actions in PATH, a line a rank, as PyTorch writes it."""
        self = cls.__new__(cls)
        self._open(lambda struct, error: lib.sl_schedule_read_csv(struct, path_bytes(path), error))
        return self

    def _open(self, fill):
        self._struct, error = library.sl_schedule(), library.sl_error()
        check(fill(self._struct, error), error)
        check(lib.sl_schedule_lower(self._struct, error), error)
        self.name = self._struct.name.decode()
        self.ranks, self.loops, self.microbatches = (self._struct.ranks, self._struct.loops, self._struct.microbatches)
        slots, stash = ctypes.c_int(), (ctypes.c_int * self.ranks)()
        check(lib.sl_schedule_slots(self._struct, 1, slots, error), error)
        check(lib.sl_schedule_check(self._struct, slots, 1, stash, error), error)
        self.slots = slots.value # of each channel: the fewest with which it ends
        self.stash = list(stash) # the most microbatches that each rank holds at once

    def __del__(self):
        if hasattr(self, "_struct"):
            lib.sl_schedule_free(self._struct)

    def actions(self, rank):
        """The Actions of RANK, in order."""
        if not 0 <= rank < self.ranks:
            raise IndexError(f"there are {self.ranks} ranks, not one called {rank}")
        table = self._struct.rank[rank]
        return [Action(a.time, lib.sl_action_name(a.kind).decode(), self._struct.stage[rank * self.loops + a.loop],
                       a.microbatch) for a in table.action[:table.count]]

    def simulate(self, forward=1.0, input_gradient=1.0, weight_gradient=1.0, communication=0.0, reduce=0.0):
        """{"step", "bubble"}: a step's time if a stage's work takes these, in any unit, and the share of it that ranks
        have nothing to compute."""
        stage = library.sl_stage_costs(forward, input_gradient, weight_gradient, reduce)
        costs = library.sl_costs(count=1, stage=ctypes.pointer(stage), communication=communication, overlap=True)
        result, error = library.sl_simulation(), library.sl_error()
        check(lib.sl_schedule_simulate(self._struct, costs, result, error), error)
        told = {"step": result.step, "bubble": result.bubble}
        lib.sl_simulation_free(result)
        return told

    def __str__(self):
        text, size = ctypes.c_void_p(), ctypes.c_size_t()
        stream = _libc.open_memstream(text, size)
        if not stream:
            raise MemoryError
        status = lib.sl_schedule_print_table(self._struct, stream)
        _libc.fclose(stream)
        table = ctypes.string_at(text, size.value).decode()
        _libc.free(text)
        check(status, library.sl_error())
        return table

    def __repr__(self):
        return f"Schedule({self.name!r}, {self.ranks}, {self.microbatches}, loops={self.loops})"

    def write_csv(self, path):
        """Writes the compute actions to PATH, as read_csv reads them."""
        stream = _libc.fopen(path_bytes(path), b"w")
        if not stream:
            raise OSError(f"{os.fspath(path)}: cannot be written")
        status = lib.sl_schedule_write_csv(self._struct, stream)
        if _libc.fclose(stream) or status:
            raise OSError(f"{os.fspath(path)}: cannot be written")


def _integer(name, value):
    if int(value) != value or not -2**31 <= value < 2**31:
        raise ValueError(f"{name} is {value}, and must be a whole number")
    return int(value)
