# Target regions in the queue, with threads in the place of GPUs: clang makes images for this machine, which these
# run. Two libraries with kernels of the same names, and an image made by hand. None of this is for sanitizers, which do
# not see into images, but into the code that launches them.
execute_process(COMMAND ${CMAKE_C_COMPILER} -print-prog-name=clang-linker-wrapper OUTPUT_VARIABLE wrapper OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND ${CMAKE_C_COMPILER} -print-resource-dir OUTPUT_VARIABLE resources OUTPUT_STRIP_TRAILING_WHITESPACE)
get_filename_component(runtime ${resources}/../.. ABSOLUTE)
if(NOT IS_ABSOLUTE "${wrapper}" OR NOT EXISTS ${runtime}/libomptarget.so)
    sl_add_test(test_tape echo "1..0 # SKIP ${CMAKE_C_COMPILER} cannot make images (Debian: clang-tools-19 libomp-19-dev)")
    sl_add_test(test_regions echo "1..0 # SKIP ${CMAKE_C_COMPILER} cannot make images (Debian: clang-tools-19 libomp-19-dev)")
    return()
endif()
foreach(factor 2 3)
    add_library(regions_library_${factor} MODULE spmd/device/regions_library.c)
    target_include_directories(regions_library_${factor} PRIVATE ${CMAKE_SOURCE_DIR})
    target_compile_definitions(regions_library_${factor} PRIVATE FACTOR=${factor})
    target_compile_options(regions_library_${factor} PRIVATE -Wall -Wextra -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu)
    target_link_options(regions_library_${factor} PRIVATE -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu -L${runtime} -Wl,-rpath,${runtime})
endforeach()
add_library(regions_image MODULE spmd/device/regions_image.c)
target_include_directories(regions_image PRIVATE ${CMAKE_SOURCE_DIR})
add_executable(test_regions spmd/device/test_regions.c)
target_link_libraries(test_regions PRIVATE shardloop ${SL_DEVICE_LIBRARIES} ${SL_CMOCKA} ${CMAKE_DL_LIBS})
set_target_properties(test_regions PROPERTIES ENABLE_EXPORTS ON)
add_dependencies(test_regions regions_library_2 regions_library_3 regions_image)
sl_add_test(test_regions $<TARGET_FILE:test_regions> $<TARGET_FILE:regions_library_2> $<TARGET_FILE:regions_library_3> $<TARGET_FILE:regions_image>)
set_property(TEST test_regions APPEND PROPERTY ENVIRONMENT OMP_NUM_THREADS=1 OMP_TEAMS_THREAD_LIMIT=1
    TSAN_OPTIONS=ignore_noninstrumented_modules=1 FAKE_CUDA_RECORD=${CMAKE_CURRENT_BINARY_DIR}/regions.record)

# Steps as graphs of such regions.
add_executable(test_tape spmd/device/test_tape.c)
target_link_libraries(test_tape PRIVATE shardloop ${SL_DEVICE_LIBRARIES} ${SL_CMOCKA} ${CMAKE_DL_LIBS})
set_target_properties(test_tape PROPERTIES ENABLE_EXPORTS ON)
add_dependencies(test_tape regions_library_2)
sl_add_test(test_tape $<TARGET_FILE:test_tape> $<TARGET_FILE:regions_library_2>)
set_property(TEST test_tape APPEND PROPERTY ENVIRONMENT OMP_NUM_THREADS=1 OMP_TEAMS_THREAD_LIMIT=1
    TSAN_OPTIONS=ignore_noninstrumented_modules=1)
