# SPDX-License-Identifier: BSD-3-Clause
# Each instruction set has one file and its flags; which one runs is decided on the machine that runs it. Optimised in
# every build type, since the vectors of unoptimised code live in memory. No contraction: a fused multiply-add would
# round otherwise than its neighbours on other machines.
set(kernel_flags -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math)
if(CMAKE_C_COMPILER_ID MATCHES Clang)
  list(APPEND kernel_flags -Wno-pass-failed) # sanitizers keep loops from being vectorised, which is no warning's matter
endif()
set_source_files_properties(${dir}/cpu/cpu_scalar.c ${dir}/cpu/cpu_neon.c ${dir}/cpu/factor.c PROPERTIES COMPILE_OPTIONS "${kernel_flags}")
set_source_files_properties(${dir}/cpu/cpu_avx2.c PROPERTIES COMPILE_OPTIONS "${kernel_flags}")
set_source_files_properties(${dir}/cpu/cpu_avx512.c PROPERTIES COMPILE_OPTIONS "${kernel_flags}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  set_property(SOURCE ${dir}/cpu/cpu_avx2.c APPEND PROPERTY COMPILE_OPTIONS -mavx2 -mf16c)
  set_property(SOURCE ${dir}/cpu/cpu_avx512.c APPEND PROPERTY COMPILE_OPTIONS
               -mavx512f -mavx512bw -mavx512dq -mavx512vl -mf16c)
  if(CMAKE_C_COMPILER_ID STREQUAL GNU) # AddressSanitizer's frames for use after return hold no vectors of 64 bytes (PR 110027)
    set_property(SOURCE ${dir}/cpu/cpu_avx512.c APPEND PROPERTY COMPILE_OPTIONS --param=asan-use-after-return=0)
  endif()
endif()

file(GLOB makers CONFIGURE_DEPENDS ${dir}/*/folder.cmake) # kernels of each maker's GPUs
foreach(maker ${makers})
  include(${maker})
endforeach()

if(TUTTI_BUILD_TESTS)
  # The reference against which kernels and collectives are tested; shares no code with the library.
  add_library(tutti_reference STATIC ${PROJECT_SOURCE_DIR}/tests/reference.c
              ${PROJECT_SOURCE_DIR}/tests/reference_fill.c)
  target_compile_options(tutti_reference PRIVATE ${TUTTI_WARNINGS} -O2 -ffp-contract=off) # slow enough as it is
  target_include_directories(tutti_reference PUBLIC ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(tutti_reference PUBLIC m)
  # A third device, for tests.
  add_library(tutti_fake_device STATIC ${PROJECT_SOURCE_DIR}/tests/fake_device.c
              ${PROJECT_SOURCE_DIR}/tests/fake_memory.c)
  target_compile_options(tutti_fake_device PRIVATE ${TUTTI_WARNINGS})
  target_include_directories(tutti_fake_device PUBLIC ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(tutti_fake_device PUBLIC tutti_device)
  set(test_libraries tutti_reference tutti_fake_device)
endif()
