# SPDX-License-Identifier: BSD-3-Clause
# All ranks must choose alike, so products and sums are rounded one by one on every machine.
target_compile_options(tutti_backend PRIVATE -ffp-contract=off)
set_source_files_properties(${dir}/flat/flat_op.c PROPERTIES COMPILE_OPTIONS "${TUTTI_CLEARS}")
if(TUTTI_BUILD_TESTS)
  set(test_libraries tutti_reference)
  function(backend_tests) # half a minute of proofs, of which ./dev test takes a sample
    math(EXPR timeout "400 * ${TUTTI_TIMEOUT_FACTOR}")
    set_tests_properties(backend.gpu_plan_test PROPERTIES TIMEOUT ${timeout} ENVIRONMENT TUTTI_TEST_SAMPLE=1)
    add_test(NAME backend.gpu_plan_test_long COMMAND test_backend_gpu_plan_test)
    set_tests_properties(backend.gpu_plan_test_long PROPERTIES TIMEOUT ${timeout} LABELS long)
  endfunction()
  cmake_language(DEFER CALL backend_tests)
endif()
