"""Files of runs: tensors and checkpoints in the safetensors format, and metrics."""
import ctypes
import json
import os

import numpy

from shardloop import library
from shardloop.library import check, lib, path_bytes

_NUMPY = {library.F32: numpy.float32, library.I32: numpy.int32, library.F16: numpy.float16,
          library.BF16: numpy.uint16} # numpy has no bfloat16: its bits
_STATE = "optimizer."


def read_tensors(path):
    """({name: array}, {key: note}) of a safetensors file. bfloat16 becomes float32."""
    store, error = library.sl_store(), library.sl_error()
    check(lib.sl_safetensors_read(store, path_bytes(path), error), error)
    try:
        tensors = {tensor.name.decode(): _copy(tensor.array) for tensor in store.tensor[:store.count]}
        notes = {note.key.decode(): note.text.decode() for note in store.note[:store.notes]}
    finally:
        lib.sl_store_free(store)
    return tensors, notes


def _copy(array):
    shape = array.shape[:array.dims]
    dtype = numpy.dtype(_NUMPY[array.dtype])
    count = int(numpy.prod(shape, dtype=numpy.uint64))
    data = (ctypes.c_char * (count * dtype.itemsize)).from_address(array.data) if count else b""
    values = numpy.frombuffer(data, dtype).reshape(shape)
    if array.dtype == library.BF16:
        return (values.astype(numpy.uint32) << 16).view(numpy.float32)
    return values.copy()


def write_tensors(path, tensors, notes={}, checksums=False):
    """Writes {name: array} of float32, float16 or int32, and {key: text}. An older file is replaced only by a whole one.
    With CHECKSUMS a reader can verify the file; then all floats must be finite."""
    store, error = library.sl_store(), library.sl_error()
    store.checksums = checksums
    try:
        for name, array in tensors.items():
            _add(store, name, numpy.asarray(array))
        for key, text in notes.items():
            check(lib.sl_store_set_note(store, _text(key), _text(text)), error)
        check(lib.sl_safetensors_write(store, path_bytes(path), error), error)
    finally:
        lib.sl_store_free(store)


def _add(store, name, array):
    number = {dtype: number for number, dtype in _NUMPY.items() if number != library.BF16}.get(array.dtype.type)
    if number is None or not array.dtype.isnative:
        raise TypeError(f"{name}: an array of {array.dtype}: use float32, float16 or int32")
    if array.ndim > library.MAX_DIMS:
        raise ValueError(f"{name}: an array of {array.ndim} dims: the most are {library.MAX_DIMS}")
    array = numpy.ascontiguousarray(array).reshape(array.shape)
    encoded = _text(name)
    if not encoded or len(encoded) > 127:
        raise ValueError(f"a name of {len(encoded)} bytes: names have 1 to 127")
    tensor = lib.sl_store_add(store, encoded, number, array.ndim, (ctypes.c_size_t * library.MAX_DIMS)(*array.shape))
    if not tensor:
        raise MemoryError(name)
    ctypes.memmove(tensor.contents.array.data, array.ctypes.data, array.nbytes)


def _text(text):
    encoded = str(text).encode()
    if b"\0" in encoded:
        raise ValueError(f"{text!r} has a zero character")
    return encoded


def latest_checkpoint(folder):
    """The path of the whole checkpoint with the most steps in FOLDER."""
    path, error = ctypes.create_string_buffer(4096), library.sl_error()
    check(lib.sl_checkpoint_latest(path_bytes(folder), path, None, error), error)
    return os.fsdecode(path.value)


def read_checkpoint(path):
    """(values, state, notes) of a checkpoint, or of the latest in a folder: {name: array}, {(tensor, name): array} of the
    optimizer ("first_moment", "head.kernel"), and the notes: "step", "seed", "option.lr"."""
    if os.path.isdir(path):
        path = latest_checkpoint(path)
    tensors, notes = read_tensors(path)
    if "shardloop.checkpoint" not in notes:
        raise library.Error(f"{os.fspath(path)}: no checkpoint", library.BAD_INPUT)
    values = {name: array for name, array in tensors.items() if not name.startswith(_STATE)}
    state = {tuple(name[len(_STATE):].split(".", 1)): array for name, array in tensors.items()
             if name.startswith(_STATE)}
    return values, state, notes


def read_metrics(path):
    """({column: array}, last) of a file that --metrics wrote: a value a step, NaN if a line has none; and the last lines, which
    tell of the whole run and its restarts, or {} while it has not ended. A line that is being written is left out."""
    steps, last = [], {}
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith("\n"):
                break
            try:
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise ValueError
            except ValueError:
                raise library.Error(f"{os.fspath(path)}: line {number}: no line of metrics", library.BAD_INPUT) from None
            if "step" in record:
                steps.append(record)
            else:
                last = last | record if "goodput" in record else record
    columns = dict.fromkeys(key for record in steps for key, value in record.items()
                            if isinstance(value, (int, float)) and not isinstance(value, bool))
    table = {column: numpy.array([_number(record.get(column)) for record in steps]) for column in columns}
    return table, last


def _number(value):
    return float(value) if isinstance(value, (int, float)) else float("nan")
