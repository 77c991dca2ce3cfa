# SPDX-License-Identifier: BSD-3-Clause
# One of hwloc.c and hwloc_none.c, by what this machine has. The other stays listed, but is not compiled.
option(TUTTI_HWLOC "Read the host's topology with hwloc where it is found" ON)
if(TUTTI_HWLOC AND TARGET PkgConfig::HWLOC)
  set_source_files_properties(${dir}/hwloc_none.c PROPERTIES HEADER_FILE_ONLY ON)
  target_link_libraries(tutti_topo PUBLIC PkgConfig::HWLOC)
else()
  set_source_files_properties(${dir}/hwloc.c PROPERTIES HEADER_FILE_ONLY ON)
endif()
