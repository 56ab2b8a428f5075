# Programs for GPUs on a GPU that computes nothing: tests/fake_cuda as the libraries that they are linked with, and
# found before these. So a step's requests are counted on every machine with CUDA's toolkit.
include(${CMAKE_CURRENT_SOURCE_DIR}/fake_cuda/libraries.cmake)
sl_cuda_libraries(sl_null_cuda ${CMAKE_CURRENT_BINARY_DIR}/null_cuda)

# The same drivers with LLVM's own runtime for their regions, for comparison.
foreach(driver looping_pipeline transformer)
    add_executable(${driver}_libomptarget $<TARGET_OBJECTS:${driver}>)
    target_link_libraries(${driver}_libomptarget PRIVATE sl_drivers)
    set_target_properties(${driver}_libomptarget PROPERTIES SL_OTHER_REGIONS ON)
endforeach()
target_link_libraries(transformer_libomptarget PRIVATE sl_transformer)
set(linked)
if(SL_CUDA_LTO)
    set(linked --linked)
endif()
sl_add_test(null_cuda python3 ${CMAKE_CURRENT_LIST_DIR}/null_cuda.py ${CMAKE_BINARY_DIR})
sl_add_test(null_cuda_graphs python3 ${CMAKE_CURRENT_LIST_DIR}/graphs.py ${CMAKE_BINARY_DIR} $<$<BOOL:${MPI_C_FOUND}>:${CMAKE_CURRENT_SOURCE_DIR}/mpirun>)
sl_add_test(null_cuda_timeline python3 ${CMAKE_CURRENT_LIST_DIR}/timeline.py ${CMAKE_BINARY_DIR})
sl_add_test(cuda_toolkit ${CMAKE_SOURCE_DIR}/tests/ptx/toolkit.sh ${CMAKE_BINARY_DIR})
sl_add_test(cuda_nesting python3 ${CMAKE_CURRENT_LIST_DIR}/nesting.py ${CMAKE_BINARY_DIR})
sl_add_test(cuda_kernels python3 ${CMAKE_CURRENT_LIST_DIR}/kernels.py ${linked} $<TARGET_FILE:transformer>)
if(SL_CUDA_LTO)
    sl_add_test(cuda_stores python3 ${CMAKE_CURRENT_LIST_DIR}/stores.py ${CMAKE_BINARY_DIR} $<TARGET_FILE:transformer> $<TARGET_FILE:gpipe> $<TARGET_FILE:convolution>
        $<TARGET_FILE:custom_module> $<TARGET_FILE:custom_optimizer> $<TARGET_FILE:regression>)
endif()
sl_add_test(cuda_kernels_table python3 ${CMAKE_CURRENT_LIST_DIR}/kernels.py --check docs/gpus/kernels.md
    "clang ${CMAKE_C_COMPILER_VERSION} and CUDA ${CUDAToolkit_VERSION_MAJOR}.${CUDAToolkit_VERSION_MINOR} for ${SL_CUDA_ARCHITECTURES}" $<TARGET_FILE:transformer>)
sl_add_test(gpu_model_jobs python3 ${CMAKE_SOURCE_DIR}/tests/benchmarks/test_gpu_model.py ${CMAKE_BINARY_DIR})
