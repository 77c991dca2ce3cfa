# SPDX-License-Identifier: BSD-3-Clause
# All ranks must choose alike, so products and sums are rounded one by one on every machine.
target_compile_options(tutti_backend PRIVATE -ffp-contract=off)
if(TUTTI_BUILD_TESTS)
  set(test_libraries tutti_reference)
endif()
