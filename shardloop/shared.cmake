# libshardloop.so, which exports the symbols that shardloop/front promises, and no others. With BUILD_SHARED_LIBS it is built and
# installed; otherwise the target sl_shared is there for tests. It has the archive's objects, which Debian's compilers
# make for programs that lie anywhere; calls within it stay within it. The build's own programs have the archive in them.
if(NOT SL_DEVICE STREQUAL "cpu" OR SL_SANITIZE)
    return()
endif()
get_target_property(objects sl_archive SOURCES)
get_target_property(libraries sl_archive LINK_LIBRARIES)
add_library(sl_shared SHARED ${objects})
set_target_properties(sl_shared PROPERTIES OUTPUT_NAME shardloop LINKER_LANGUAGE C VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINK_DEPENDS ${SL_FRONT}/shardloop.map)
target_link_libraries(sl_shared PRIVATE ${libraries})
target_link_options(sl_shared PRIVATE -Wl,-Bsymbolic -Wl,--version-script=${SL_FRONT}/shardloop.map -Wl,--as-needed)
add_dependencies(sl_shared sl_headers)
if(BUILD_SHARED_LIBS)
    install(TARGETS sl_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
else()
    set_target_properties(sl_shared PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
