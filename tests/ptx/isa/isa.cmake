# sl_executor: the executor of PTX alone, as a library that the tests of tests/ptx/isa load. Needs jansson, and clang, whose
# vectors it is made of.
file(GLOB executor CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/ptx/executor/*.c)
list(FILTER executor EXCLUDE REGEX /hooks) # hooks of tests/fake_cuda
add_library(sl_executor SHARED ${executor})
target_link_libraries(sl_executor PRIVATE sl_options PkgConfig::JANSSON Threads::Threads m)
# Memory of a GPU has no type, its integers wrap; a warp's 32 lanes are vectors of this machine.
target_compile_options(sl_executor PRIVATE -fno-strict-aliasing -fwrapv -march=native -Wno-psabi)
set(isa ${PROJECT_SOURCE_DIR}/tests/ptx/isa)
