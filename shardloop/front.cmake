# Target sl_headers: in SL_FRONT the headers as users see them, made of the library's own by the list in shardloop/front,
# and the symbols that a shared library exports.
find_program(SL_AWK awk REQUIRED)
set(SL_FRONT ${PROJECT_BINARY_DIR}/front)
file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/spmd/*.h ${PROJECT_SOURCE_DIR}/collectives/*.h
    ${PROJECT_SOURCE_DIR}/layers/*.h)
add_custom_command(OUTPUT ${SL_FRONT}/shardloop.map
    COMMAND ${SL_AWK} -f ${CMAKE_CURRENT_LIST_DIR}/front.awk -v source=${PROJECT_SOURCE_DIR} -v to=${SL_FRONT}
        -v version=${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} ${CMAKE_CURRENT_LIST_DIR}/front
    DEPENDS ${CMAKE_CURRENT_LIST_DIR}/front ${CMAKE_CURRENT_LIST_DIR}/front.awk ${headers}
    COMMENT "headers as they are installed: ${SL_FRONT}" VERBATIM)
add_custom_target(sl_headers ALL DEPENDS ${SL_FRONT}/shardloop.map)
