#!/bin/sh
# checksums.sh BUILD SOURCE [PYTHON] - the program in docs/checkpoints/format.md comes to the same checksums; prints TAP.
drivers=$1/drivers source=$2
. "$source/tests/rigs/points.sh"

# Debian's packages are its own interpreter's, which need not be the first one.
for python in ${3:-python3 /usr/bin/python3}; do
    "$python" -c 'import xxhash' 2>/dev/null && break
done
if ! "$python" -c 'import xxhash' 2>/dev/null; then
    skip 'another program verifies a checkpoint' "$python has no package xxhash"
    plan
    exit
fi
driver=$drivers/looping_pipeline
file=saved/step-00000002.safetensors
awk '/^```python/ { on = ++count == 1; next } /^```/ { on = 0 } on' "$source/docs/checkpoints/format.md" >verify.py

call --mesh model=2 --layers 4 --hidden 16 --batch 32 --microbatches 4 --steps 2 --save saved
"$python" verify.py $file >out 2>err && [ -s verify.py ]
point 'another program verifies a checkpoint'
printf '\001' | dd of=$file bs=1 seek=$(($(wc -c <$file) - 1)) conv=notrunc 2>dd
! "$python" verify.py $file >out 2>err && grep -q '^AssertionError: ' err
point 'and finds a wrong byte'

# Another program that writes the notes and tensors again: in another order, with spaces.
cat >rewrite.py <<'END'
import json, sys

with open(sys.argv[1], "rb") as file:
    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    data = file.read()
kept, written = {"__metadata__": header.pop("__metadata__")}, b""
for name, tensor in reversed(header.items()):
    begin, end = tensor["data_offsets"]
    kept[name] = dict(tensor, data_offsets=[len(written), len(written) + end - begin])
    written += data[begin:end]
text = json.dumps(dict(reversed(kept.items())), indent=1).encode()
sys.stdout.buffer.write(len(text).to_bytes(8, "little") + text + written)
END
call --mesh model=2 --layers 4 --hidden 16 --batch 32 --microbatches 4 --steps 2 --save again
"$python" rewrite.py again/step-00000002.safetensors >rewritten
"$python" verify.py rewritten >out 2>err
point 'it verifies what another program has written again'
call --mesh model=2 --layers 4 --hidden 16 --batch 32 --microbatches 4 --steps 3 --resume rewritten
[ $status = 0 ] && [ ! -s err ]
point 'and the run goes on with that'

plan
