# Harnesses, one a parser. A new one is a file fuzz_NAME.c, a folder seeds/NAME and a word in this list.
set(parsers
    adapters
    adopt
    chats
    checkpoint
    choices
    csv
    documents
    idx
    journal
    machine
    memory
    mesh
    metrics
    options
    parts
    peft
    prompts
    publish
    published
    records
    report
    ring
    safetensors
    signature
    tokenizer
    tokens
    trace)
set(fuzz_report_library sl_report)
set(fuzz_trace_library sl_schedules)

add_custom_target(fuzz)
foreach(name ${parsers})
    add_executable(fuzz_${name} fuzz/fuzz_${name}.c)
    target_link_libraries(fuzz_${name} PRIVATE ${fuzz_${name}_library} sl_drivers)
    add_dependencies(fuzz fuzz_${name})
    if(SL_SANITIZE MATCHES fuzzer) # tests/fuzz/run runs these
        target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    else()
        target_sources(fuzz_${name} PRIVATE fuzz/run_seeds.c)
        sl_add_test(fuzz_${name} $<TARGET_FILE:fuzz_${name}> ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/seeds/${name})
    endif()
endforeach()
