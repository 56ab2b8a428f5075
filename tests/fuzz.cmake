# Harnesses, one a parser, of drivers and of the library. A new one is a file fuzz_NAME.c and a folder seeds/NAME.
file(GLOB harnesses CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_LIST_DIR} fuzz/drivers/fuzz_*.c fuzz/library/fuzz_*.c)
set(fuzz_report_library sl_report)
set(fuzz_trace_library sl_schedules)

add_custom_target(fuzz)
foreach(source ${harnesses})
    string(REGEX REPLACE ".*/fuzz_|[.]c$" "" name ${source})
    add_executable(fuzz_${name} ${source})
    target_link_libraries(fuzz_${name} PRIVATE ${fuzz_${name}_library} sl_drivers)
    add_dependencies(fuzz fuzz_${name})
    if(SL_SANITIZE MATCHES fuzzer) # tests/fuzz/run runs these
        target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    else()
        target_sources(fuzz_${name} PRIVATE fuzz/run_seeds.c)
        sl_add_test(fuzz_${name} $<TARGET_FILE:fuzz_${name}> ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/seeds/${name})
    endif()
endforeach()
