# Debian packages, which `cpack -G DEB` makes in a build: shardloop has the programs, libshardloop-dev the library and
# the files to compile programs against it, shardloop-doc the documents. The library is an archive, so there is no
# package of a shared one. dpkg-shlibdeps finds the libraries that the programs need. finish.cmake adapts installed
# files to Debian's rules.
if(NOT SL_DEVICE STREQUAL "cpu" OR SL_SANITIZE)
    return() # such builds are for the machine that they are made on
endif()

set(SL_MAINTAINER "shardloop authors <shardloop@example.org>" CACHE STRING "whom Debian packages name as their maintainer")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME shardloop)
set(CPACK_PACKAGE_VENDOR shardloop)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT ${SL_MAINTAINER})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/finish.cmake)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL programs development documents)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 0local1) # older than a 1, which would be the first one of Debian itself
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)

set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME shardloop)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SUGGESTS "shardloop-doc, openmpi-bin, dataset-fashion-mnist")
set(CPACK_COMPONENT_PROGRAMS_DESCRIPTION "training of neural networks on many processors
Trains transformers and classifiers on a mesh of threads, processes or
devices: over data, in pipelines, with tensor parallelism. Draws, proves and
compares pipeline schedules, and plans large runs.")

# The libraries that shardloop.pc requires and links, by Debian's names.
set(needs pkg-config libjansson-dev libmd-dev libpcre2-dev libutf8proc-dev libxxhash-dev libzstd-dev zlib1g-dev)
if(SL_ONEDNN)
    list(APPEND needs libdnnl-dev)
    if(SL_COMPILES_CXX)
        list(APPEND needs "libstdc++-12-dev | libstdc++-dev")
    endif()
endif()
if(SL_HWLOC_TARGET)
    list(APPEND needs libhwloc-dev)
endif()
if(MPI_C_FOUND)
    if("${MPI_C_LIBRARIES}" MATCHES mpich)
        list(APPEND needs libmpich-dev)
    else()
        list(APPEND needs libopenmpi-dev)
    endif()
endif()
list(JOIN needs ", " needs)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libshardloop-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ${needs})
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS shardloop-doc)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "library that trains neural networks on many processors
The archive libshardloop.a, its headers, and what pkg-config and CMake find
it by. A program written with it runs at each coordinate of a mesh, as
threads or as processes.")

set(CPACK_DEBIAN_DOCUMENTS_PACKAGE_NAME shardloop-doc)
set(CPACK_DEBIAN_DOCUMENTS_PACKAGE_SECTION doc)
set(CPACK_DEBIAN_DOCUMENTS_PACKAGE_ARCHITECTURE all)
set(CPACK_COMPONENT_DOCUMENTS_DESCRIPTION "documents and examples of shardloop
How shardloop is arranged and used, tutorials, and programs to begin with.")

set(CPACK_VERBATIM_VARIABLES ON)
configure_file(${CMAKE_CURRENT_LIST_DIR}/options.cmake.in ${PROJECT_BINARY_DIR}/packages_options.cmake @ONLY)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_BINARY_DIR}/packages_options.cmake)
include(CPack)
