# Target python: in build/P/python the package for Python with the shared library beside it, for PYTHONPATH. A wheel of
# the installed library is made by pip (docs/python.md).
if(NOT TARGET sl_shared)
    return()
endif()
set(package ${PROJECT_BINARY_DIR}/python/shardloop)
file(GLOB modules CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/python/shardloop/*.py)
add_custom_command(OUTPUT ${package}/libshardloop.so
    COMMAND ${CMAKE_COMMAND} -E make_directory ${package}
    COMMAND ${CMAKE_COMMAND} -E copy ${modules} ${package}
    COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:sl_shared> ${package}/libshardloop.so
    DEPENDS sl_shared ${modules} VERBATIM)
add_custom_target(python DEPENDS ${package}/libshardloop.so)
