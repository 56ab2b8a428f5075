# The tests of the preset ptx: programs of the preset cuda, and scripts that run its drivers.
include(../managed.cmake)

# Each test leaves which basic blocks of kernels it has run, for coverage and mutants.
function(sl_ptx_add name)
    add_test(NAME ${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/tap ${CMAKE_CURRENT_SOURCE_DIR}/covered
        ${CMAKE_CURRENT_BINARY_DIR}/coverage/${name} ${ARGN})
    set(environment LD_LIBRARY_PATH=${libraries} XDG_CACHE_HOME=${CMAKE_CURRENT_BINARY_DIR}/cache)
    string(REGEX REPLACE "^(test|nccl)_" "" subject ${name})
    if(subject IN_LIST sl_managed_subjects)
        list(APPEND environment SHARDLOOP_MEMORY=managed)
    endif()
    if(name MATCHES "^nccl_")
        list(APPEND environment FAKE_CUDA_DEVICES=16)
    endif()
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} ENVIRONMENT "${environment}")
endfunction()

# sl_ptx_test(SUBJECT [ARGUMENT]...): the program test_SUBJECT. PROGRAMS collects programs that the tests need.
set(programs)
macro(sl_ptx_test subject)
    list(APPEND programs ${cuda}/tests/test_${subject})
    sl_ptx_add(test_${subject} ${cuda}/tests/test_${subject} ${ARGN})
endmacro()

# The executor itself
include(isa/isa.cmake)
sl_ptx_add(test_opcodes ${isa}/test_opcodes.py $<TARGET_FILE:sl_executor> 300 ${cuda}/ptx)
sl_ptx_add(test_checker ${isa}/test_checker.py $<TARGET_FILE:sl_executor>)

# Kernels
set(kernels adamw kernels norms sequence_kernels loss_kernels attention_forms attention_latent hashes settled kept parts stripes forms fours decode_parts
    gemm_sums gemm_adding dropout dropout_kernels exact_kernels expert_kernels sgd operands summands stored_stream optimizer experts random reduce sums convolution regression
    classifier device window)
foreach(subject ${kernels})
    sl_ptx_test(${subject})
endforeach()
set_property(TEST test_convolution APPEND PROPERTY ENVIRONMENT SL_TEST_FILTER=*gradient*) # whole runs take minutes here
sl_ptx_test(attention_kernels few)
sl_ptx_test(gemm few)
sl_ptx_test(collectives)
sl_ptx_test(channel)
sl_ptx_add(nccl_collectives ${cuda}/tests/test_collectives nccl few)

# Modules
sl_ptx_test(modules few)
foreach(subject gqa mla sharded_modules tensor_parallel zero)
    sl_ptx_test(${subject} local few)
endforeach()
foreach(subject gradient_check stored_gradients token_modules leaves)
    sl_ptx_test(${subject})
endforeach()
sl_ptx_test(transformer local small)
sl_ptx_test(generate local small)
sl_ptx_test(recompute local small)
sl_ptx_test(offload)
sl_ptx_test(journal local few)

sl_ptx_add(missing ${CMAKE_CURRENT_SOURCE_DIR}/missing.sh ${cuda}/tests/test_norms)

# Work of kernels, as benchmarks/gpu_model prices it: of the first job alone but for --long
sl_ptx_add(gpu_model_counts python3 -B ${PROJECT_SOURCE_DIR}/benchmarks/gpu_model/counting.py --check)

# Drivers
foreach(driver looping_pipeline transformer loss_equality)
    list(APPEND programs ${cuda}/drivers/${driver})
endforeach()
foreach(script exact drivers)
    sl_ptx_add(driver_${script} ${CMAKE_CURRENT_SOURCE_DIR}/${script}.sh ${cuda}/drivers ${PROJECT_SOURCE_DIR})
endforeach()
sl_ptx_add(driver_graph ${PROJECT_SOURCE_DIR}/tests/drivers/tools/machine/graph.sh ${cuda}/drivers cuda)
sl_ptx_add(driver_device ${PROJECT_SOURCE_DIR}/tests/drivers/device.sh ${cuda} cuda ${PROJECT_SOURCE_DIR})
sl_ptx_test(notebook ${cuda}/drivers small)
foreach(file ../gpu_quick/losses losses)
    file(STRINGS ${file} lines REGEX "^[^#]")
    foreach(line ${lines})
        string(REGEX REPLACE "\t.*" "" name "${line}")
        sl_ptx_add(${name} ${CMAKE_CURRENT_SOURCE_DIR}/losses.sh ${cuda}/drivers ${PROJECT_SOURCE_DIR} ${name})
    endforeach()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${file})
endforeach()

# Tests of tests/gpu --quick are here, too. Its other steps measure a GPU.
file(STRINGS ../gpu_quick/list lines REGEX "^(test|driver|loss)_")
foreach(line ${lines})
    string(REGEX REPLACE " .*" "" name "${line}")
    if(NOT TEST ${name})
        message(FATAL_ERROR "tests/gpu_quick/list has ${name}, and the preset ptx has not")
    endif()
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/../gpu_quick/list)

# Results of these tests: instructions that none has run, and changes, by hand and drawn, that none has noticed.
get_property(run DIRECTORY PROPERTY TESTS)
function(sl_ptx_judge name script)
    add_test(NAME ${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/tap ${CMAKE_CURRENT_SOURCE_DIR}/${script} ${CMAKE_BINARY_DIR} ${ARGN})
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 RUN_SERIAL ON TIMEOUT 7200 ENVIRONMENT SL_TEST_SECONDS=7200 DEPENDS "${run}")
endfunction()
list(TRANSFORM kernels PREPEND test_)
sl_ptx_judge(coverage coverage --needs ${kernels} test_attention_kernels)
sl_ptx_judge(mutants_by_hand mutants --hand)
sl_ptx_judge(mutants mutants)
