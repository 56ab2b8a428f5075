#!/bin/sh
# missing.sh PROGRAM - a program without a translated image ends with a line about it; prints TAP.
. "$(dirname "$0")/../rigs/points.sh"
python3 - "$1" <<'END'
import pathlib, sys
data = bytearray(pathlib.Path(sys.argv[1]).read_bytes())
at = data.find(b".nv.info")
data[at + 1] ^= 1
pathlib.Path("program").write_bytes(data)
END
chmod +x program
driver=./program
call
[ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q "^/.*/[0-9a-f]\{64\}\.jsonl is not there: the program's image was not translated. Build the preset ptx " err
point 'an image that was not translated is told'
plan
