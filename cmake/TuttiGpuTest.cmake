# SPDX-License-Identifier: BSD-3-Clause
# tutti_gpu_test(NAME ... as tutti_test [NO_STANDIN] [NCCL] [SAMPLED]): a program that needs a CUDA device. It runs as NAME with the label
# gpu on the real one, or says "skipped: no CUDA device" and returns 77; and as NAME.standin on the stand-in
# (tests/standin/cuda), which needs a C++ compiler, unless that would take too long. TIMEOUT is the stand-in's, which is
# slow; on devices tests run one by one and have four minutes each (LONG: TIMEOUT). The target gpu_tests builds them all,
# without the stand-in, which takes longer than they do. With NCCL it runs once more by that back end (TUTTI_GPU), as
# NAME.nccl and, by the stand-in of tests/standin/nccl on a machine of four devices, NAME.nccl.standin. SAMPLED programs
# take a sample of their products on the stand-in (test_is_sampled), and all of them in NAME.standin_long (./dev check --long);
# those of TUTTI_STANDIN_LONG, whose sample takes half a minute of a CPU there, run there in the latter alone.
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER AND NOT TUTTI_FUZZ AND NOT CMAKE_CROSSCOMPILING) # its compiler for C++ is the host's
  set(TUTTI_CUDA_STANDIN ON)
else()
  set(TUTTI_CUDA_STANDIN OFF)
endif()

add_custom_target(gpu_tests)
set(TUTTI_GPU_TIMEOUT 240)
set(TUTTI_STANDIN_LONG cuda.batches cuda.direct cuda.dynamic cuda.kernels cuda.large cuda.lists cuda.messages
  cuda.share_comm)

function(tutti_gpu_test name)
  cmake_parse_arguments(GPU "NO_STANDIN;LONG;NCCL;SAMPLED" "TIMEOUT" "ARGS" ${ARGN})
  if(NOT GPU_TIMEOUT)
    set(GPU_TIMEOUT 120)
  endif()
  set(limit ${TUTTI_GPU_TIMEOUT})
  if(GPU_LONG)
    set(limit ${GPU_TIMEOUT})
  endif()
  tutti_test(${name} ${GPU_UNPARSED_ARGUMENTS} LABEL gpu TIMEOUT ${limit} ARGS ${GPU_ARGS})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 RESOURCE_LOCK gpu
    ENVIRONMENT CUDA_DEVICE_MAX_CONNECTIONS=32) # a queue for each stream of the ranks that share a process
  string(REPLACE "." "_" target test_${name})
  add_dependencies(gpu_tests ${target})
  math(EXPR timeout "${GPU_TIMEOUT} * ${TUTTI_TIMEOUT_FACTOR}")
  if(TUTTI_CUDA_STANDIN AND NOT GPU_NO_STANDIN)
    set(environment TUTTI_CUDA_DRIVER=$<TARGET_FILE:cuda_standin>)
    add_test(NAME ${name}.standin COMMAND ${target} ${GPU_ARGS})
    if(GPU_SAMPLED)
      add_test(NAME ${name}.standin_long COMMAND ${target} ${GPU_ARGS})
      set_tests_properties(${name}.standin_long PROPERTIES TIMEOUT ${timeout} LABELS long ENVIRONMENT "${environment}")
      list(APPEND environment TUTTI_TEST_SAMPLE=1)
    endif()
    set_tests_properties(${name}.standin PROPERTIES TIMEOUT ${timeout} ENVIRONMENT "${environment}")
    if(name IN_LIST TUTTI_STANDIN_LONG)
      set_tests_properties(${name}.standin PROPERTIES LABELS long)
    endif()
  endif()
  if(GPU_NCCL)
    tutti_nccl_test(${name} ${target} ${limit} ${timeout})
  endif()
endfunction()

function(tutti_nccl_test name target limit timeout)
  add_test(NAME ${name}.nccl COMMAND ${target})
  set_tests_properties(${name}.nccl PROPERTIES LABELS gpu TIMEOUT ${limit} SKIP_RETURN_CODE 77 RESOURCE_LOCK gpu
    ENVIRONMENT "TUTTI_GPU=nccl;CUDA_DEVICE_MAX_CONNECTIONS=32")
  tutti_nccl_standin_test(${name}.nccl ${target} ${timeout})
endfunction()

function(tutti_nccl_standin_test name target timeout)
  if(TUTTI_CUDA_STANDIN)
    set(driver TUTTI_CUDA_DRIVER=$<TARGET_FILE:cuda_standin> TUTTI_STANDIN_DEVICES=4)
    add_test(NAME ${name}.standin COMMAND ${target})
    set_tests_properties(${name}.standin PROPERTIES TIMEOUT ${timeout}
      ENVIRONMENT "TUTTI_GPU=nccl;TUTTI_NCCL_LIBRARY=$<TARGET_FILE:nccl_standin>;${driver}")
  endif()
endfunction()
