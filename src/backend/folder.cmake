# SPDX-License-Identifier: BSD-3-Clause
# All ranks must choose alike, so products and sums are rounded one by one on every machine.
target_compile_options(tutti_backend PRIVATE -ffp-contract=off)
if(TUTTI_BUILD_TESTS)
  set(test_libraries tutti_reference)
  # Half a minute of proofs: more than the usual two minutes on a busy machine.
  function(backend_tests)
    math(EXPR timeout "400 * ${TUTTI_TIMEOUT_FACTOR}")
    set_tests_properties(backend.cuda_plan_test PROPERTIES TIMEOUT ${timeout})
  endfunction()
  cmake_language(DEFER CALL backend_tests)
endif()
