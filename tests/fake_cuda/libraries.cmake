# sl_cuda_libraries(NAME FOLDER [SOURCE...]): tests/fake_cuda, and SOURCE, as the libraries that programs for GPUs are linked
# with: in FOLDER, which they find before CUDA's own. Needs CUDAToolkit_VERSION_MAJOR.
function(sl_cuda_libraries name folder)
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fake_cuda/*.c)
    set(major ${CUDAToolkit_VERSION_MAJOR})
    file(CONFIGURE OUTPUT ${name}.map CONTENT "libcudart.so.@major@ { global: cuda*; };
libcublasLt.so.@major@ { global: cublas*; };
libcuda { global: cu[A-Z]*; nccl*; ptx_*; local: *; };
" @ONLY)
    add_library(${name} SHARED ${sources} ${ARGN})
    target_include_directories(${name} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/fake_cuda)
    target_link_libraries(${name} PRIVATE sl_options Threads::Threads)
    target_link_options(${name} PRIVATE -Wl,--version-script=${CMAKE_CURRENT_BINARY_DIR}/${name}.map)
    set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${folder})
    foreach(library libcuda.so libcuda.so.1 libcudart.so.${major} libcublasLt.so.${major} libnccl.so.2)
        list(APPEND links COMMAND ${CMAKE_COMMAND} -E create_symlink lib${name}.so ${folder}/${library})
    endforeach()
    add_custom_command(TARGET ${name} POST_BUILD ${links} VERBATIM)
endfunction()
