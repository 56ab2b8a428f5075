# NVIDIA's GPUs: target regions by clang's OpenMP, all else by CUDA's libraries; or, for tests where there is no GPU, by
# tests/fake_cuda, and target regions are then the host's code behind a queue.
#
# SL_DEVICE_SOURCES are its other files. SL_REGIONS are the files that bring regions to the GPU, SL_OTHER_REGIONS those that could be in their place.
set(SL_DEVICE_OWN ${CMAKE_CURRENT_LIST_DIR}/cuda.c)
set(SL_DEVICE_SOURCES ${CMAKE_CURRENT_LIST_DIR}/constants.c ${CMAKE_CURRENT_LIST_DIR}/driver.c ${CMAKE_CURRENT_LIST_DIR}/failures.c ${CMAKE_CURRENT_LIST_DIR}/graph.c ${CMAKE_CURRENT_LIST_DIR}/tape.c)
set(SL_REGIONS ${CMAKE_CURRENT_LIST_DIR}/regions.c ${CMAKE_CURRENT_LIST_DIR}/images.c)
set(SL_OTHER_REGIONS ${CMAKE_CURRENT_LIST_DIR}/regions_libomptarget.c)
option(SL_FAKE_CUDA "tests: threads in the place of GPUs" OFF)
if(SL_FAKE_CUDA)
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fake_cuda/*.c)
    add_library(sl_fake_cuda SHARED ${sources}) # as CUDA is: a test counts what the project's own objects allocate
    target_link_libraries(sl_fake_cuda PRIVATE sl_options PUBLIC Threads::Threads)
    target_include_directories(sl_fake_cuda BEFORE PUBLIC ${CMAKE_SOURCE_DIR}/tests/fake_cuda)
    set(SL_TARGET_OPTIONS -I${CMAKE_SOURCE_DIR}/tests/fake_cuda -DSL_DEVICE_QUEUED -DSL_CUDA_ARCHITECTURES=\"none\")
    set(SL_DEVICE_OPTIONS ${SL_TARGET_OPTIONS})
    set(SL_DEVICE_LIBRARIES sl_fake_cuda)
    set(SL_DEVICE_HEADERS ${CMAKE_SOURCE_DIR}/tests/fake_cuda)
    set(SL_DEVICE_ENVIRONMENT FAKE_CUDA_DELAY_US=20)
    message(STATUS "Device: threads in the place of GPUs")
    return()
endif()

sl_need_offloading("its OpenMP makes code for NVIDIA's GPUs")
set(SL_CUDA_REGIONS queue CACHE STRING "how target regions run: queue (enqueued, not waited for) or libomptarget (LLVM's runtime)")
set_property(CACHE SL_CUDA_REGIONS PROPERTY STRINGS queue libomptarget)
string(REGEX MATCH "^[0-9]+" version ${CMAKE_C_COMPILER_VERSION})
if(SL_CUDA_REGIONS STREQUAL libomptarget)
    set(swap ${SL_REGIONS})
    set(SL_REGIONS ${SL_OTHER_REGIONS})
    set(SL_OTHER_REGIONS ${swap})
elseif(NOT SL_CUDA_REGIONS STREQUAL queue)
    message(FATAL_ERROR "SL_CUDA_REGIONS=${SL_CUDA_REGIONS}: choose queue or libomptarget")
elseif(NOT version EQUAL 19)
    message(FATAL_ERROR "SL_CUDA_REGIONS=queue knows how clang 19 calls target regions, and ${CMAKE_C_COMPILER} is clang "
        "${CMAKE_C_COMPILER_VERSION}: take clang-19 (-DCMAKE_C_COMPILER=clang-19), or -DSL_CUDA_REGIONS=libomptarget")
endif()
# The library's own regions are optimized together with the device's runtime, file by file, once for all programs.
string(COMPARE EQUAL "${version}" 19 known) # how others link device code nobody has tried
option(SL_CUDA_LTO "optimize the device code of each file when it is linked with the device's runtime" ${known})
if(SL_CUDA_LTO)
    get_filename_component(folder ${CMAKE_C_COMPILER} REALPATH)
    get_filename_component(folder ${folder} DIRECTORY)
    find_program(SL_LLVM_OBJCOPY NAMES llvm-objcopy-${version} llvm-objcopy HINTS ${folder}) # clang's linker takes it, too
    if(NOT SL_LLVM_OBJCOPY)
        message(FATAL_ERROR "SL_CUDA_LTO needs llvm-objcopy, and there is none (Debian: llvm-${version}): "
            "install it, or take -DSL_CUDA_LTO=OFF")
    endif()
endif()
find_package(CUDAToolkit)
if(NOT CUDAToolkit_FOUND)
    message(FATAL_ERROR "SL_DEVICE=cuda needs CUDA's toolkit, and there is none (-DCUDAToolkit_ROOT=DIR says where it is)")
endif()
if(SL_CUDA_REGIONS STREQUAL queue AND CUDAToolkit_VERSION VERSION_LESS 12.5)
    message(FATAL_ERROR "SL_CUDA_REGIONS=queue needs CUDA 12.5 or later, and ${CUDAToolkit_BIN_DIR} has "
        "${CUDAToolkit_VERSION}: -DCUDAToolkit_ROOT=DIR names another one, or take -DSL_CUDA_REGIONS=libomptarget")
endif()
get_filename_component(toolkit ${CUDAToolkit_BIN_DIR} DIRECTORY)

set(SL_CUDA_ARCHITECTURES sm_90 CACHE STRING "the GPUs to make code for: sm_80, sm_90, ...; several between commas")
string(REPLACE "," ";" architectures "${SL_CUDA_ARCHITECTURES}")
set(images)
foreach(architecture ${architectures})
    if(NOT EXISTS ${sl_runtime}/libomptarget-nvptx-${architecture}.bc AND NOT EXISTS ${sl_runtime}/libomptarget-nvptx.bc)
        message(FATAL_ERROR "SL_CUDA_ARCHITECTURES: ${CMAKE_C_COMPILER} has no OpenMP for ${architecture}: "
            "there is no ${sl_runtime}/libomptarget-nvptx-${architecture}.bc (Debian: libomp-19-dev)")
    endif()
    list(APPEND images --offload-arch=${architecture})
endforeach()
list(JOIN architectures " " names)

# Where regions are enqueued, libomptarget has nothing to do.
set(link -Wl,--as-needed -L${sl_runtime} -Wl,-rpath,${sl_runtime} -Wno-unknown-cuda-version)
set(offload -fopenmp ${images} --cuda-path=${toolkit} --libomptarget-nvptx-bc-path=${sl_runtime})
set(SL_USERS_LINK ${link} ${offload})
if(PROJECT_IS_TOP_LEVEL AND BUILD_TESTING) # what is built here, the preset ptx executes
    include(${PROJECT_SOURCE_DIR}/tests/ptx/toolkit.cmake)
    list(TRANSFORM offload REPLACE "^--cuda-path=.*" --cuda-path=${toolkit})
endif()
set(SL_DEVICE_LINK ${link} ${offload})
set(SL_DEVICE_OPTIONS -DSL_DEVICE_CUDA -DSL_CUDA_ARCHITECTURES=\"${names}\")
# No loop that threads share lies within another, and no region asks OpenMP for threads (tests/spmd/device/nesting.py
# looks): without the code for that the compiler is done in half the time.
set(alone -fopenmp-assume-no-nested-parallelism -fopenmp-assume-no-thread-state)
# Vectors that are not made are no news, nor is a CUDA newer than the compiler.
set(SL_TARGET_OPTIONS ${offload} ${alone} ${SL_DEVICE_OPTIONS} -Wno-pass-failed -Wno-unknown-cuda-version)
set(SL_DEVICE_LIBRARIES CUDA::cudart CUDA::cublasLt)
set(SL_DEVICE_HEADERS ${CUDAToolkit_INCLUDE_DIRS})

if(SL_CUDA_LTO)
    list(JOIN offload " " words)
    set(SL_LINK_REGIONS "${CMAKE_C_COMPILER} -r -O3 ${words} -foffload-lto -nostdlib -L${sl_runtime} -Wno-unknown-cuda-version -Wno-unused-command-line-argument")
    set(SL_REGION_LAUNCHER ${CMAKE_CURRENT_BINARY_DIR}/link_regions)
    configure_file(${CMAKE_CURRENT_LIST_DIR}/link_regions.sh.in ${SL_REGION_LAUNCHER} @ONLY
        FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
endif()
set(SL_DEVICE_LIBRARY_FLAGS "-L${CUDAToolkit_LIBRARY_DIR} -lcudart -lcublasLt") # for users of pkg-config

message(STATUS "Device: ${names} by ${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION} and CUDA ${CUDAToolkit_VERSION}; "
    "target regions: ${SL_CUDA_REGIONS}")
# llvm/llvm-project#159088: LLVM's runtime looks up the GPU in the image's ELF header, where CUDA 13 has moved it.
if(SL_CUDA_REGIONS STREQUAL libomptarget)
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 13 AND CMAKE_C_COMPILER_VERSION VERSION_LESS 21.1.2)
        message(STATUS "  these do not fit: the OpenMP runtime of LLVM before 21.1.2 refuses what CUDA 13's nvlink links. "
            "It builds; to run it, use CUDA 12.9 (-DCUDAToolkit_ROOT=...) or a newer LLVM's runtime")
    else()
        message(STATUS "  these fit: the OpenMP runtime takes what this CUDA's nvlink links")
    endif()
endif()
