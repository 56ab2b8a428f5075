"""The shared library: its place, the structs of its headers, and its errors as exceptions.

A struct here has the fields of the C struct of the same name in <shardloop/...>, in their order; the test python
compares the sizes."""
import ctypes
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64,
                    c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p)

OK, CHECK_FAILED, BAD_INPUT, FAILED = range(4)
F32, BF16, I32, F16 = range(4)
MAX_AXES = MAX_DIMS = 6


class Error(Exception):
    """The library's line about refused input, or about the failure that ended a run. `status` is 2 for bad input, 3 for a failure."""

    def __init__(self, line, status):
        super().__init__(line)
        self.status = status


class sl_error(Structure):
    _fields_ = [("status", c_int), ("message", c_char * 800)]


class sl_axis(Structure):
    _fields_ = [("name", c_char * 24), ("size", c_int)]


class sl_mesh(Structure):
    _fields_ = [("axes", c_int), ("axis", sl_axis * MAX_AXES), ("size", c_int)]


class sl_members(Structure):
    _fields_ = [("first", c_int), ("dims", c_int), ("count", c_int * MAX_AXES), ("stride", c_int * MAX_AXES),
                ("list", c_void_p)]


class sl_engine(Structure):
    _fields_ = [("table", c_void_p), ("timeout", c_double), ("checked", c_bool), ("delay", c_double),
                ("recorded", c_bool), ("spare", c_bool), ("error", POINTER(sl_error)), ("grace", c_double),
                ("waits", c_void_p), ("signature", c_void_p)]


class sl_spmd(Structure):
    """Only the fields that come first: the library makes these structs itself."""
    _fields_ = [("mesh", POINTER(sl_mesh)), ("engine", POINTER(sl_engine)), ("coordinate", c_int), ("device", c_int),
                ("error", sl_error)]


class sl_group(Structure):
    _fields_ = [("size", c_int), ("rank", c_int), ("members", sl_members), ("name", c_char * 48),
                ("communicator", c_void_p)]


class sl_view(Structure):
    _fields_ = [("peer", c_size_t), ("stride", c_size_t * 2)]


class sl_collective(Structure):
    _fields_ = [("operation", c_int), ("group", POINTER(sl_group)), ("dtype", c_int), ("input", c_void_p),
                ("output", c_void_p), ("count", c_size_t * 3), ("input_view", sl_view), ("output_view", sl_view),
                ("scale", c_float), ("source", c_int), ("destination", c_int), ("root", c_int), ("site", c_char_p)]


class sl_action(Structure):
    _fields_ = [("time", c_int), ("microbatch", c_uint16), ("loop", c_uint16), ("peer", c_uint16), ("kind", c_uint8),
                ("flags", c_uint8)]


class sl_rank_schedule(Structure):
    _fields_ = [("count", c_int), ("capacity", c_int), ("action", POINTER(sl_action))]


class sl_schedule(Structure):
    _fields_ = [("name", c_char * 32), ("ranks", c_int), ("loops", c_int), ("microbatches", c_int), ("copies", c_int),
                ("run", c_int), ("ascends", c_bool), ("sharded", c_bool), ("crowded", c_bool),
                ("forwards", c_bool), ("lowered", c_bool), ("wrong", c_char * 120), ("stage", POINTER(c_int)), ("place", POINTER(c_int)),
                ("rank", POINTER(sl_rank_schedule))]


class sl_stage_costs(Structure):
    _fields_ = [(name, c_double) for name in ("forward", "input_gradient", "weight_gradient", "reduce", "optimizer",
                                              "unshard")]


class sl_costs(Structure):
    _fields_ = [("count", c_int), ("stage", POINTER(sl_stage_costs)), ("shared", c_double),
                ("communication", c_double), ("overlap", c_bool), ("group", c_int), ("cores", c_int),
                ("coordinates", c_int), ("awake", c_double), ("wake", c_double), ("nap", c_double),
                ("notify", c_double), ("turn", c_double), ("spread", c_double)]


class sl_simulation(Structure):
    _fields_ = [("ranks", c_int), ("span", c_double), ("step", c_double), ("bubble", c_double), ("rank", c_void_p),
                ("count", c_int), ("event", c_void_p)]


class sl_array(Structure):
    _fields_ = [("dtype", c_int), ("dims", c_int), ("shape", c_size_t * MAX_DIMS), ("data", c_void_p)]


class sl_low_rank(Structure):
    _fields_ = [("a", c_void_p), ("b", c_void_p), ("rank", c_size_t), ("scale", c_float)]


class sl_tensor(Structure):
    _fields_ = [("name", c_char * 128), ("array", sl_array), ("checksum", c_uint64), ("adapter", sl_low_rank),
                ("piece", c_void_p), ("pieces", c_int), ("most_pieces", c_int)]


class sl_note(Structure):
    _fields_ = [("key", c_char_p), ("text", c_char_p)]


class sl_names(Structure):
    _fields_ = [("count", c_int), ("slots", c_int), ("slot", c_void_p)]


class sl_store(Structure):
    _fields_ = [("count", c_int), ("capacity", c_int), ("tensor", POINTER(sl_tensor)), ("notes", c_int),
                ("most_notes", c_int), ("note", POINTER(sl_note)), ("tensor_names", sl_names),
                ("note_names", sl_names), ("checksums", c_bool), ("replaces_links", c_bool), ("path", c_void_p),
                ("mapping", c_void_p), ("mapped", c_size_t), ("draft", c_void_p), ("root", c_uint64),
                ("part", c_void_p), ("parts", c_int), ("lists_others", c_bool), ("others", c_int),
                ("most_others", c_int), ("other", c_void_p)]


PROGRAM = CFUNCTYPE(c_int, POINTER(sl_spmd), c_void_p)

_error = POINTER(sl_error)
_group = POINTER(sl_group)
_schedule = POINTER(sl_schedule)
_array_call = [_group, c_int, c_void_p, c_void_p, c_size_t]
_dims = [c_int, POINTER(c_size_t)]
_FUNCTIONS = {
    "sl_mesh_parse": (c_int, [POINTER(sl_mesh), c_char_p, _error]),
    "sl_mesh_index": (c_int, [POINTER(sl_mesh), c_int, c_int]),
    "sl_engine_open": (c_int, [POINTER(sl_engine), c_char_p, _error]),
    "sl_run": (c_int, [POINTER(sl_mesh), POINTER(sl_engine), PROGRAM, c_void_p]),
    "sl_fail": (c_int, [POINTER(sl_spmd), c_int, c_char_p, c_char_p]),
    "sl_progress": (c_int, [POINTER(sl_spmd)]),
    "sl_group_axes": (c_int, [POINTER(sl_spmd), c_char_p, _group]),
    "sl_call": (c_int, [POINTER(sl_spmd), c_char_p, sl_collective]),
    "sl_describe_barrier": (sl_collective, [_group]),
    "sl_describe_ppermute": (sl_collective, _array_call + [c_int, c_void_p]),
    "sl_describe_psum": (sl_collective, _array_call),
    "sl_describe_pmean": (sl_collective, _array_call),
    "sl_describe_pmax": (sl_collective, _array_call),
    "sl_describe_broadcast": (sl_collective, _array_call + [c_int]),
    "sl_describe_psum_scatter_dim": (sl_collective, _array_call[:4] + _dims + [c_int]),
    "sl_describe_all_gather_dim": (sl_collective, _array_call[:4] + _dims + [c_int]),
    "sl_describe_all_to_all": (sl_collective, _array_call[:4] + _dims + [c_int, c_int]),
    "sl_schedule_names": (None, [c_char_p, c_size_t]),
    "sl_schedule_make": (c_int, [_schedule, c_char_p, c_int, c_int, c_int, _error]),
    "sl_schedule_read_csv": (c_int, [_schedule, c_char_p, _error]),
    "sl_schedule_write_csv": (c_int, [_schedule, c_void_p]),
    "sl_schedule_print_table": (c_int, [_schedule, c_void_p]),
    "sl_schedule_lower": (c_int, [_schedule, _error]),
    "sl_schedule_check": (c_int, [_schedule, c_int, c_int, POINTER(c_int), _error]),
    "sl_schedule_slots": (c_int, [_schedule, c_int, POINTER(c_int), _error]),
    "sl_schedule_simulate": (c_int, [_schedule, POINTER(sl_costs), POINTER(sl_simulation), _error]),
    "sl_simulation_free": (None, [POINTER(sl_simulation)]),
    "sl_schedule_free": (None, [_schedule]),
    "sl_action_name": (c_char_p, [c_int]),
    "sl_store_add": (POINTER(sl_tensor), [POINTER(sl_store), c_char_p, c_int, c_int, POINTER(c_size_t)]),
    "sl_store_set_note": (c_int, [POINTER(sl_store), c_char_p, c_char_p]),
    "sl_store_free": (None, [POINTER(sl_store)]),
    "sl_safetensors_read": (c_int, [POINTER(sl_store), c_char_p, _error]),
    "sl_safetensors_write": (c_int, [POINTER(sl_store), c_char_p, _error]),
    "sl_checkpoint_latest": (c_int, [c_char_p, c_char_p, _error, _error]),
}


def _load():
    """$SHARDLOOP_LIBRARY, or the library that lies in the wheel, or one that the system finds."""
    beside = os.path.join(os.path.dirname(__file__), "libshardloop.so")
    path = os.environ.get("SHARDLOOP_LIBRARY") or (beside if os.path.exists(beside) else "libshardloop.so")
    library = ctypes.CDLL(path)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


lib = _load()


def check(status, error):
    """Raises the line of ERROR, a struct sl_error, for a call that returned STATUS."""
    if status != OK:
        line = error.message.decode("utf-8", "replace") if error.message else "there is not enough memory"
        raise Error(line, status)


def path_bytes(path):
    """PATH, or bytes or an os.PathLike, as C takes it."""
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("a path has no zero byte")
    return name
