# Kernels: one source of each, compiled once per CPU level, or for devices; which of them runs is chosen at start.
set(kernels kernels/kernels.c kernels/draws.c kernels/sequence.c kernels/attention/attention.c kernels/attention/attention_decode.c
    kernels/attention/attention_latent.c kernels/gelu.c kernels/published.c kernels/expert.c
    kernels/operands/operands.c kernels/norms/norms.c)
set_source_files_properties(kernels/attention/attention.c kernels/attention/attention_decode.c kernels/attention/attention_latent.c kernels/gelu.c
    kernels/gemm/rows/few_rows.c kernels/gemm/rows/few_rows_transposed.c kernels/gemm/rows/many_rows.c kernels/gemm/rows/one_row.c
    kernels/gemm/blocks/block_rows.c kernels/gemm/blocks/block_dots.c PROPERTIES COMPILE_OPTIONS -ffp-contract=fast)

# Kernels for tensor cores only.
set(device_kernels)
if(SL_DEVICE STREQUAL cuda)
    set(device_kernels kernels/attention/attention_warps.c)
    set_source_files_properties(${device_kernels} PROPERTIES COMPILE_OPTIONS -ffp-contract=fast)
endif()

# Optimizers, a file each; the table is in training/optimizers/optimizer.c.
set(optimizers training/optimizers/optimizer_adamw.c training/optimizers/optimizer_sgd.c)

# Sources with target regions, in builds for devices: a program contains each once, linked as an object, because linkers do not
# find the images of objects in archives.
if(NOT SL_DEVICE STREQUAL cpu)
    set(regions ${kernels} ${device_kernels} ${optimizers} kernels/gemm/gemm_reference.c ../collectives/sums/reduce.c ../collectives/sums/collect.c
        ${SL_DEVICE_OWN})
    add_library(sl_target OBJECT ${regions})
    target_link_libraries(sl_target PUBLIC sl_options ${SL_DEVICE_LIBRARIES})
    target_compile_options(sl_target PRIVATE ${SL_TARGET_OPTIONS})
    sl_link_regions(sl_target ${regions})
    if(SL_DEVICE_SOURCES) # sources without regions
        add_library(sl_device OBJECT ${SL_DEVICE_SOURCES} ${SL_REGIONS})
        target_link_libraries(sl_device PUBLIC sl_options ${SL_DEVICE_LIBRARIES})
        target_compile_options(sl_device PRIVATE ${SL_DEVICE_OPTIONS})
    endif()
    target_compile_definitions(sl_target PRIVATE SL_KERNELS=sl_kernels_device SL_LEVEL="${SL_DEVICE}"
        SL_SEQUENCE_KERNELS=sl_sequence_kernels_device SL_ATTENTION_KERNELS=sl_attention_kernels_device
        SL_ATTENTION_DECODE=sl_attention_decode_device SL_LATENT_KERNELS=sl_latent_kernels_device
        SL_GELU_FORWARD=sl_gelu_forward_device SL_GELU_BACKWARD=sl_gelu_backward_device
        SL_OPERAND_KERNELS=sl_operand_kernels_device SL_NORM_KERNELS=sl_norm_kernels_device
        SL_EXPERT_KERNELS=sl_expert_kernels_device SL_PUBLISHED_KERNELS=sl_published_kernels_device SL_DRAWS=sl_draws_device SL_REDUCE=sl_reduce_on_device)
endif()

set(level_sources kernels/gemm/rows/few_rows.c kernels/gemm/rows/few_rows_transposed.c kernels/gemm/rows/many_rows.c
    kernels/gemm/rows/one_row.c kernels/gemm/blocks/block_rows.c kernels/gemm/blocks/block_dots.c)
if(SL_DEVICE STREQUAL cpu)
    list(APPEND level_sources ${kernels})
    set(SL_OPTIMIZERS_HERE ${optimizers})
    set(SL_KERNELS_SELECT kernels/kernels_cpu.c kernels/gemm/gemm_reference.c)
else()
    set(SL_KERNELS_SELECT kernels/kernels_device.c)
endif()
# Checks of undefined behaviour lengthen one second of compiling to six. Only level v2 has them: all levels have the same sources,
# and the kernels' tests run every level. Little else runs v2 and v3, so builds with sanitizers do not optimize them: this reduces
# ten seconds of compiling checks to one, and omits no check.
set(lower_levels)
if(SL_SANITIZE)
    set(lower_levels -O0)
endif()
set(SL_LOWER_LEVELS "${lower_levels}" CACHE STRING "options of the compiler for the kernels of levels v2 and v3, as -O1 where these are only tested")
add_library(sl_checked_elsewhere INTERFACE)
if(SL_SANITIZE MATCHES undefined)
    target_compile_options(sl_checked_elsewhere INTERFACE -fno-sanitize=undefined)
endif()
# Plain products take most of a test's time under sanitizers; checks of each element would make them ten times as slow.
# Instead gemm.c reports the arrays that they read and write; integers are checked.
if(SL_SANITIZE AND SL_DEVICE STREQUAL cpu)
    set_source_files_properties(kernels/gemm/gemm_reference.c PROPERTIES COMPILE_OPTIONS "-O2;-fno-sanitize=thread,address,pointer-overflow,alignment,null")
endif()
function(sl_add_level level)
    add_library(sl_level_${level} OBJECT ${level_sources})
    add_library(sl_level_${level}_widening OBJECT kernels/gemm/rows/few_rows.c kernels/gemm/rows/few_rows_transposed.c
        kernels/gemm/rows/many_rows.c)
    foreach(library sl_level_${level} sl_level_${level}_widening)
        target_link_libraries(${library} PUBLIC sl_options)
        target_compile_options(${library} PRIVATE -march=x86-64-${level} ${ARGN})
        if(NOT level STREQUAL v2)
            target_link_libraries(${library} PRIVATE sl_checked_elsewhere) # behind sl_options: the last one counts
        endif()
        if(NOT level STREQUAL v4)
            target_compile_options(${library} PRIVATE ${SL_LOWER_LEVELS})
        endif()
    endforeach()
    target_compile_definitions(sl_level_${level}_widening PRIVATE SL_BF16_WEIGHTS
        SL_FEW_ROWS_TABLE=sl_few_rows_widening SL_FEW_ROWS=sl_few_rows_widening_${level}
        SL_FEW_ROWS_TRANSPOSED=sl_few_rows_transposed_widening_${level}
        SL_MANY_ROWS_TABLE=sl_many_rows_widening SL_MANY_ROWS=sl_many_rows_widening_${level})
    target_compile_definitions(sl_level_${level} PRIVATE SL_KERNELS=sl_kernels_${level} SL_LEVEL="x86-64-${level}"
        SL_SEQUENCE_KERNELS=sl_sequence_kernels_${level} SL_ATTENTION_KERNELS=sl_attention_kernels_${level}
        SL_EXPERT_KERNELS=sl_expert_kernels_${level} SL_FEW_ROWS_TABLE=sl_few_rows
        SL_FEW_ROWS=sl_few_rows_${level} SL_FEW_ROWS_TRANSPOSED=sl_few_rows_transposed_${level} SL_MANY_ROWS_TABLE=sl_many_rows
        SL_MANY_ROWS=sl_many_rows_${level}
        SL_ONE_ROW=sl_one_row_${level} SL_BLOCK_ROWS=sl_block_rows_${level} SL_BLOCK_DOTS=sl_block_dots_${level}
        SL_ATTENTION_DECODE=sl_attention_decode_${level}
        SL_LATENT_KERNELS=sl_latent_kernels_${level} SL_PUBLISHED_KERNELS=sl_published_kernels_${level}
        SL_DRAWS=sl_draws_${level}
        SL_GELU_FORWARD=sl_gelu_forward_${level} SL_GELU_BACKWARD=sl_gelu_backward_${level}
        SL_OPERAND_KERNELS=sl_operand_kernels_${level} SL_NORM_KERNELS=sl_norm_kernels_${level})
endfunction()
sl_add_level(v2)
sl_add_level(v3)
sl_add_level(v4 -mprefer-vector-width=512)
# Additional kernels for CPUs with AVX-512, and for CPUs with its instructions for bf16 and bytes.
add_library(sl_level_avx512 OBJECT kernels/gemm/rows/few_terms.c kernels/gemm/rows/few_columns.c)
target_link_libraries(sl_level_avx512 PUBLIC sl_options)
target_compile_options(sl_level_avx512 PRIVATE -march=x86-64-v4 -mprefer-vector-width=512)
add_library(sl_level_bf16 OBJECT kernels/gemm/rows/few_rows_bf16.c kernels/gemm/rows/one_row_bf16.c)
target_link_libraries(sl_level_bf16 PUBLIC sl_options)
target_compile_options(sl_level_bf16 PRIVATE -march=x86-64-v4 -mprefer-vector-width=512 -mavx512bf16)
add_library(sl_level_vnni OBJECT kernels/gemm/blocks/block_dots.c)
target_link_libraries(sl_level_vnni PUBLIC sl_options PRIVATE sl_checked_elsewhere)
target_compile_options(sl_level_vnni PRIVATE -march=x86-64-v4 -mprefer-vector-width=512 -mavx512vnni)
target_compile_definitions(sl_level_vnni PRIVATE SL_BLOCK_DOTS=sl_block_dots_vnni)
add_library(sl_level_amx OBJECT kernels/gemm/tiles/tile_rows.c)
target_link_libraries(sl_level_amx PUBLIC sl_options)
target_compile_options(sl_level_amx PRIVATE -march=x86-64-v4 -mprefer-vector-width=512 -mamx-tile -mamx-bf16)
