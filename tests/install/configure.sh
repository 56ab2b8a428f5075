#!/bin/sh
# configure.sh SOURCE CC - the message of a build for devices without a compiler for their code; prints TAP.
source=$1 cc=$2
for tool in cmake ninja; do
    if ! command -v $tool >/dev/null; then
        echo "1..0 # SKIP there is no $tool"
        exit
    fi
done
. "$(dirname "$0")/../rigs/points.sh"

# A compiler that has none of its tools for devices, and one that has not their headers and libraries.
cat >without_tools <<END
#!/bin/sh
case \$* in
-print-prog-name=*) echo "\${1#*=}" ;;
*) exec "$cc" "\$@" ;;
esac
END
cat >without_libraries <<END
#!/bin/sh
case \$* in
-print-prog-name=*) echo "$work/\${1#*=}" ;;
-print-resource-dir) echo "$work/lib/clang/19" ;;
*) exec "$cc" "\$@" ;;
esac
END
# newer: a compiler that reports to be clang 20.
cat >newer <<END
#!/bin/sh
exec "$cc" -Wno-builtin-macro-redefined -D__clang_major__=20 "\$@"
END
chmod +x without_tools without_libraries newer

options= # of cmake's, besides

# refuses COMPILER DEVICE TEXT...: nothing is configured, and the one error has each TEXT in it.
refuses() {
    compiler=$1 device=$2
    shift 2
    rm -rf "$work/build"
    cmake -S "$source" -B "$work/build" -G Ninja -DCMAKE_C_COMPILER="$compiler" -DSL_DEVICE="$device" $options >out 2>err
    status=$?
    tr -s ' \n' ' ' <err >line
    found=$([ $status != 0 ] && [ "$(grep -c '^CMake Error' err)" = 1 ] && echo yes)
    for text in "$@"; do
        grep -qF -- "$text" line || found=
    done
    [ "$found" ]
    point "$device: $*"
}

if "$cc" --version | grep -q clang; then
    version=$("$cc" -dumpversion)
    for device in offload cuda; do
        refuses "$work/without_tools" $device 'without clang-offload-packager, clang-linker-wrapper' \
            "Install what Debian calls clang-tools-${version%%.*}"
        refuses "$work/without_libraries" $device "without $work/lib/clang/19/include/omp.h" \
            "Install what Debian calls libomp-${version%%.*}-dev"
    done
    if "$cc" -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu -x c -fsyntax-only - </dev/null 2>/dev/null &&
        [ -x "$("$cc" -print-prog-name=clang-linker-wrapper)" ]; then
        refuses "$work/newer" cuda 'SL_CUDA_REGIONS=queue knows how clang 19 calls target regions' 'is clang 20.' \
            '-DSL_CUDA_REGIONS=libomptarget'
        options=-DSL_CUDA_REGIONS=stream
        refuses "$cc" cuda 'SL_CUDA_REGIONS=stream: choose queue or libomptarget'
        options=-DSL_LLVM_OBJCOPY=OFF # none is found
        refuses "$cc" cuda 'SL_CUDA_LTO needs llvm-objcopy' "(Debian: llvm-${version%%.*})" '-DSL_CUDA_LTO=OFF'
        options=
    else
        skip "another clang" "$cc makes no code for devices (Debian: clang-tools-${version%%.*} libomp-${version%%.*}-dev)"
    fi
else
    refuses "$cc" offload 'needs clang'
    refuses "$cc" cuda 'needs clang'
fi
refuses "$cc" gpu 'choose cpu, offload or cuda'
plan
