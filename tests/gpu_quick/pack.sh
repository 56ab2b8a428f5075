# pack.sh - sourced by tests/gpu for --pack: puts into $pack what --quick needs, as paths from the repository's root:
# its steps' programs, as far as they are built, stripped; libraries that a machine with CUDA may lack, in
# $directory/lib; and scripts and data of these sources. build/cuda as a whole has gigabytes.
case $directory in /* | *..*) refuse "--pack: --build $directory: name a folder within the repository, as in build/cuda" ;; esac
case $pack in
*.zst) tool=zstd compress="zstd -q -T0 -9 --long=27 -c" ;; # programs are alike: the next ones share most of their bytes with the first
*.xz) tool=xz compress="xz -T1 -6 --lzma2=dict=128MiB -c" ;;
*) tool=gzip compress="gzip -6 -c" ;;
esac
for tool in $tool ldd tar; do
    command -v $tool >/dev/null || refuse "--pack: there is no $tool here"
done
touch "$pack" 2>/dev/null || refuse "--pack $pack: cannot be written"
staged=$(mktemp -d)
trap 'rm -rf "$commands" "$staged"' EXIT

# take FILE...: copies the files that exist.
take() {
    for file; do
        [ -e "$file" ] || continue
        cp -R --parents "$file" "$staged"
    done
}

# ---- programs

steps=$(grep -vE '^(#|$)' tests/gpu_quick/list | ONLY=$only awk '$1 ~ ENVIRON["ONLY"] { print $1 }')
[ -n "$steps" ] || refuse "no step's name matches \"$only\""
absent=
drivers=
for step in $steps; do
    case $step in
    loss_*) drivers="$drivers $(sed -n "s/^$step$tab.*$tab\([a-z_]*\) .*/\1/p" tests/gpu_quick/losses)" ;;
    driver_* | test_notebook) drivers="$drivers looping_pipeline transformer" ;;
    launches) take "$directory/benchmarks/bench_launch" ;;
    steps)
        drivers="$drivers looping_pipeline" # its steps are counted on a GPU that computes nothing, for predictions
        take "$directory/benchmarks/bench_step"
        mkdir -p "$staged/$directory/tests"
        [ ! -d "$directory/tests/null_cuda" ] || cp -R "$directory/tests/null_cuda" "$staged/$directory/tests"
        ;;
    esac
    words=$(sed -n "s/^$step$tab//p" "$list" | tr '\t' '\n' | sed -n "s|^@BUILD@/\(tests/[a-z_0-9]*\)$|\1|p" | grep -v '^tests/cache$') || true
    for word in $words; do
        [ -e "$directory/$word" ] && take "$directory/$word" || absent="$absent $step"
    done
done
for driver in $(printf '%s\n' $drivers | sort -u); do
    [ -e "$directory/drivers/$driver" ] && take "$directory/drivers/$driver" || absent="$absent $driver"
done
[ -z "$absent" ] || echo "tests/gpu: not built, so not packed:$absent" >&2
find "$staged" -type f -perm -u+x -size +50k -exec strip --strip-debug {} + 2>/dev/null || true

# ---- libraries: not the C library's, the compiler's and those of CUDA

mkdir -p "$staged/$directory/lib"
find "$staged/$directory" -type f -perm -u+x ! -path '*/null_cuda/*' -exec ldd {} + 2>/dev/null |
    sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|libcuda|libcudart|libcublas(Lt)?|libnccl|ld-linux-[a-z0-9-]*|libtsan|libasan)\.so' |
    while IFS= read -r library; do cp -L "$library" "$staged/$directory/lib"; done
find "$staged/$directory/lib" -type f -exec strip --strip-debug {} + 2>/dev/null || true

# ---- the rest

take "$list" "$directory/CMakeCache.txt" LICENSE tests/gpu tests/gpu_quick tests/tap tests/rigs/points.sh tests/data \
    tests/drivers/device.sh tests/drivers/tools/machine/graph.sh tests/spmd/device/null_cuda.py benchmarks
find "$staged" -name __pycache__ -prune -exec rm -rf {} +
tar -C "$staged" --sort=name --owner=0 --group=0 -cf - . | $compress >"$pack" || {
    rm -f "$pack"
    echo "tests/gpu: --pack $pack: it could not be written" >&2
    exit 1
}
bytes=$(wc -c <"$pack")
echo "$pack: $(((bytes + 524288) / 1048576)) MiB of $(du -sm "$staged" | cut -f 1); unpack it where it is to run, then ./tests/gpu --quick --build $directory"
[ "$bytes" -le 67108864 ] || echo "tests/gpu: that is more than 64 MiB: .tar.zst and .tar.xz are smaller" >&2
