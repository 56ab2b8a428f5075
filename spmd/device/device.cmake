# What SL_DEVICE means: how files with target regions are compiled (SL_TARGET_OPTIONS) and what is linked
# (SL_DEVICE_LINK, SL_DEVICE_LIBRARIES).
set(SL_DEVICE cpu CACHE STRING "where layers compute: cpu, offload (OpenMP's x86_64 devices), cuda (NVIDIA GPUs)")
set_property(CACHE SL_DEVICE PROPERTY STRINGS cpu offload cuda)
set(SL_TARGET_OPTIONS)
set(SL_DEVICE_LINK)
set(SL_DEVICE_LIBRARIES)
set(SL_DEVICE_ENVIRONMENT) # of tests

if(SL_DEVICE STREQUAL offload)
    if(NOT CMAKE_C_COMPILER_ID STREQUAL Clang)
        message(FATAL_ERROR "SL_DEVICE=offload needs clang: its OpenMP has x86_64 devices")
    endif()
    # Vectors that are not made of a kernel's remainder loops are no news.
    set(SL_TARGET_OPTIONS -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu -DSL_DEVICE_OFFLOAD -Wno-pass-failed)
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-resource-dir OUTPUT_VARIABLE resources OUTPUT_STRIP_TRAILING_WHITESPACE)
    get_filename_component(runtime ${resources}/../.. ABSOLUTE) # the compiler's own libraries
    # On devices or not at all; programs set the threads themselves, tests that call kernels do not.
    set(SL_DEVICE_ENVIRONMENT OMP_TARGET_OFFLOAD=MANDATORY OMP_NUM_THREADS=1 OMP_TEAMS_THREAD_LIMIT=1)
    set(SL_DEVICE_LINK -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu -L${runtime} -Wl,-rpath,${runtime})
elseif(SL_DEVICE STREQUAL "cuda")
    include(${CMAKE_CURRENT_LIST_DIR}/cuda.cmake)
elseif(NOT SL_DEVICE STREQUAL cpu)
    message(FATAL_ERROR "SL_DEVICE=${SL_DEVICE}: choose cpu, offload or cuda")
endif()
