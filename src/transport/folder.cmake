# SPDX-License-Identifier: BSD-3-Clause
# libfabric's header alone is needed here: the library is opened at run time. Without it ofi_none.c stands for the room;
# what is not compiled stays listed.
option(TUTTI_OFI "Transport ofi, where libfabric's header is found" ON)
file(GLOB ofi_sources ${dir}/ofi/*.c)
list(FILTER ofi_sources EXCLUDE REGEX "_test\\.c$")
set(ofi_none ${dir}/ofi/ofi_none.c)
list(REMOVE_ITEM ofi_sources ${ofi_none})
if(TUTTI_OFI AND TUTTI_FABRIC_INCLUDE)
  set_source_files_properties(${ofi_none} PROPERTIES HEADER_FILE_ONLY ON)
  target_include_directories(tutti_transport SYSTEM PRIVATE ${TUTTI_FABRIC_INCLUDE})
  target_link_libraries(tutti_transport PUBLIC ${CMAKE_DL_LIBS})
else()
  set_source_files_properties(${ofi_sources} PROPERTIES HEADER_FILE_ONLY ON)
endif()
