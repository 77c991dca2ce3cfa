# SPDX-License-Identifier: BSD-3-Clause
# tutti_gpu_test(NAME ... as tutti_test [NO_STANDIN]): a program that needs a CUDA device. It runs as NAME with the label
# gpu on the real one, or says "skipped: no CUDA device" and returns 77; and as NAME.standin on the stand-in
# (tests/standin/cuda), which needs a C++ compiler, unless that would take too long.
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER AND NOT TUTTI_FUZZ)
  set(TUTTI_CUDA_STANDIN ON)
else()
  set(TUTTI_CUDA_STANDIN OFF)
endif()

function(tutti_gpu_test name)
  cmake_parse_arguments(GPU "NO_STANDIN" "TIMEOUT" "ARGS" ${ARGN})
  if(NOT GPU_TIMEOUT)
    set(GPU_TIMEOUT 120)
  endif()
  tutti_test(${name} ${GPU_UNPARSED_ARGUMENTS} LABEL gpu TIMEOUT ${GPU_TIMEOUT} ARGS ${GPU_ARGS})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  if(TUTTI_CUDA_STANDIN AND NOT GPU_NO_STANDIN)
    string(REPLACE "." "_" target test_${name})
    math(EXPR timeout "${GPU_TIMEOUT} * ${TUTTI_TIMEOUT_FACTOR}")
    add_dependencies(${target} cuda_standin)
    add_test(NAME ${name}.standin COMMAND ${target} ${GPU_ARGS})
    set_tests_properties(${name}.standin PROPERTIES TIMEOUT ${timeout}
      ENVIRONMENT "TUTTI_CUDA_DRIVER=$<TARGET_FILE:cuda_standin>")
  endif()
endfunction()
