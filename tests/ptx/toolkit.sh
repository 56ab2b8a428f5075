#!/bin/sh
# toolkit.sh BUILD - the ptxas and nvlink that stand in for NVIDIA's in a build for GPUs with tests (tests/ptx/toolkit):
# images are NVIDIA's own, and their PTX is kept; prints TAP.
tools=$1/toolkit/bin real=$1/toolkit/real/bin
. "$(dirname "$0")/../rigs/points.sh"
kept=kept/ptx
mkdir -p kept/toolkit/bin
for tool in ptxas nvlink; do cp "$tools/$tool" kept/toolkit/bin/; done # beside a folder of this test's
ln -s "$(readlink -f "$1/toolkit/real")" kept/toolkit/real
tools=kept/toolkit/bin

# module NAME NUMBER: a kernel that writes NUMBER.
module() {
    cat >"$1.s" <<END
.version 8.0
.target sm_90
.address_size 64
.visible .entry $1(.param .u64 to)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [to];
    st.global.u32 [%rd1], $2;
    ret;
}
END
}

# assemble NAME, and then link IMAGE NAME...: as clang calls them.
assemble() { "$tools/ptxas" -m64 -O3 --gpu-name sm_90 --output-file "$1.cubin" "$1.s" -c; }
link() {
    image=$1
    shift
    "$tools/nvlink" -o "$image" -arch sm_90 $(printf '%s.cubin ' "$@")
}

# keeps IMAGE NAME...: the PTX of these modules, and no others, is under the hash of IMAGE.
keeps() {
    folder=$kept/$(sha256sum <"$1" | cut -d ' ' -f 1)
    shift
    [ "$(ls "$folder" | wc -l)" = $# ] || return
    number=0
    for name; do
        number=$((number + 1))
        cmp "$name.s" "$folder/$number.ptx" || return
    done
}

module one 1
module two 2
for name in one two; do "$real/ptxas" -m64 -O3 --gpu-name sm_90 --output-file "$name.cubin" "$name.s" -c; done
"$real/nvlink" -o wanted_one -arch sm_90 one.cubin && "$real/nvlink" -o wanted -arch sm_90 one.cubin two.cubin

assemble one 2>err && assemble two 2>>err && link image_one one 2>>err && cmp image_one wanted_one && keeps image_one one
point 'an image is what NVIDIA makes, and its PTX is kept'
link image one two 2>err && cmp image wanted && keeps image one two
point 'of several modules, too'
rm -r kept/ptx
link image one two 2>err && keeps image one two
point 'the objects have it, wherever they come from'

link same one two 2>err && for i in 1 2 3 4 5 6; do link "same$i" one two & done
wait
keeps image one two && [ "$(ls -A $kept | wc -l)" = 1 ]
point 'processes at the same time leave one'

sed -i 's/ret;/nonsense;/' one.s
assemble one >out 2>err
status=$?
[ $status != 0 ] && grep -q nonsense err
point 'what NVIDIA refuses is refused'
link none missing >out 2>err
status=$?
[ $status != 0 ] && [ "$(ls -A $kept | wc -l)" = 1 ]
point 'of a link, too'
"$tools/ptxas" --version >out 2>err && grep -q NVIDIA out && "$tools/nvlink" --version >out 2>err && grep -q NVIDIA out
point 'questions are answered'
plan
