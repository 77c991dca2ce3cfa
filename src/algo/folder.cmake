# SPDX-License-Identifier: BSD-3-Clause
# libtutti_algo.a is pure (S10): it imports tutti_emit_* alone, and the test house.purity holds it to that. The table of
# algorithms registers itself with src/sched, so it is a library of its own, which comes along with the pure one.
if(EXISTS ${dir}/table.c)
  list(REMOVE_ITEM sources ${dir}/table.c)
  set_target_properties(tutti_algo PROPERTIES SOURCES "${sources}")
  add_library(tutti_algo_table STATIC ${dir}/table.c)
  target_compile_options(tutti_algo_table PRIVATE ${TUTTI_WARNINGS})
  target_include_directories(tutti_algo_table PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(tutti_algo_table PUBLIC tutti_algo tutti_sched)
  target_link_libraries(tutti_algo INTERFACE tutti_algo_table)
  set_property(GLOBAL APPEND PROPERTY TUTTI_FOLDERS tutti_algo_table)
endif()
