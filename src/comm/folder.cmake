# SPDX-License-Identifier: BSD-3-Clause
set_source_files_properties(${dir}/call/run.c PROPERTIES COMPILE_OPTIONS "${TUTTI_CLEARS}")
# The tests of this folder run many ranks (tests/ranks.h).
if(TUTTI_BUILD_TESTS)
  add_library(tutti_test_ranks STATIC EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/ranks.c)
  target_compile_options(tutti_test_ranks PRIVATE ${TUTTI_WARNINGS})
  target_include_directories(tutti_test_ranks PUBLIC ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(tutti_test_ranks PUBLIC tutti_comm)
  set(test_libraries tutti_test_ranks tutti_reference)
  # 10^5 collectives, and every allocation of a creation: more than the usual two minutes on a busy machine.
  function(comm_tests)
    math(EXPR timeout "400 * ${TUTTI_TIMEOUT_FACTOR}")
    set_tests_properties(comm.scale_test comm.alloc_test PROPERTIES TIMEOUT ${timeout})
    set_target_properties(test_comm_loaded_test PROPERTIES ENABLE_EXPORTS ON) # for what it loads
    if(TARGET tutti_command)
      add_dependencies(test_comm_loaded_test tutti_command) # proves it
    endif()
    # They come between a call and what it uses.
    target_link_options(test_comm_refused_start_test PRIVATE
      -Wl,--wrap=tutti_device_before,--wrap=tutti_cache_get,--wrap=tutti_cache_release)
    target_link_options(test_comm_ending_test PRIVATE
      -Wl,--wrap=tutti_work_past,--wrap=tutti_work_finish,--wrap=tutti_team_destroy)
  endfunction()
  cmake_language(DEFER CALL comm_tests)
endif()
