# SPDX-License-Identifier: BSD-3-Clause
# What a file of the user is compiled or traced with stands in the library: the public headers, and the Python module.
file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/tutti/*.h)
tutti_embed(declarations tutti_header ${headers})
set(module ${PROJECT_SOURCE_DIR}/bindings/python/tutti/tracer.py)
tutti_embed(python tutti_python ${module})
set(rows "")
foreach(header ${headers})
  get_filename_component(stem ${header} NAME_WE)
  string(APPEND rows "    {\"${stem}.h\", tutti_header_${stem}, tutti_header_end_${stem}},\n")
endforeach()
set(made ${PROJECT_BINARY_DIR}/load)
file(CONFIGURE OUTPUT ${made}/load_headers.h CONTENT
     "${declarations}static const struct {\n    const char *name;\n    const unsigned char *begin, *end;\n} headers[] = {\n${rows}};\n" @ONLY)
target_include_directories(tutti_load PRIVATE ${made})
file(CONFIGURE OUTPUT ${made}/load_python.h CONTENT "${python}" @ONLY)
set_property(SOURCE ${dir}/python.c APPEND PROPERTY OBJECT_DEPENDS ${module})
set_property(SOURCE ${dir}/compile.c APPEND PROPERTY OBJECT_DEPENDS ${headers})
