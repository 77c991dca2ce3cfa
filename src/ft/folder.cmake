# SPDX-License-Identifier: BSD-3-Clause
# HTTP/2 is nghttp2's, messages are protobuf-c's, which makes their code from torchft.proto. Without them none.c stands
# for servers and clients; without libmicrohttpd http_none.c for the page. What is not compiled stays listed.
option(TUTTI_FT "Servers for fault tolerance, where nghttp2 and protobuf-c are found" ON)
file(GLOB served CONFIGURE_DEPENDS ${dir}/rpc/*.c ${dir}/serve/*.c ${dir}/client/*.c)
list(FILTER served EXCLUDE REGEX "_test\\.c$")
set(serve_none ${dir}/serve/none.c)
list(REMOVE_ITEM served ${serve_none} ${dir}/rpc/wire.c ${dir}/serve/text.c) # the last two need neither
if(TUTTI_FT AND TARGET PkgConfig::NGHTTP2 AND TARGET PkgConfig::PROTOBUF_C AND TUTTI_PROTOC_C)
  set_source_files_properties(${serve_none} PROPERTIES HEADER_FILE_ONLY ON)
  set(made ${PROJECT_BINARY_DIR}/ft)
  file(MAKE_DIRECTORY ${made})
  add_custom_command(OUTPUT ${made}/torchft.pb-c.c ${made}/torchft.pb-c.h
    COMMAND ${TUTTI_PROTOC_C} --c_out=${made} --proto_path=${dir}/rpc torchft.proto
    DEPENDS ${dir}/rpc/torchft.proto VERBATIM)
  add_custom_command(OUTPUT ${made}/tutti.pb-c.c ${made}/tutti.pb-c.h
    COMMAND ${TUTTI_PROTOC_C} --c_out=${made} --proto_path=${dir}/rpc tutti.proto
    DEPENDS ${dir}/rpc/tutti.proto VERBATIM)
  set_source_files_properties(${made}/torchft.pb-c.c ${made}/tutti.pb-c.c PROPERTIES COMPILE_OPTIONS -w)
  target_sources(tutti_ft PRIVATE ${made}/torchft.pb-c.c ${made}/tutti.pb-c.c)
  target_include_directories(tutti_ft SYSTEM PUBLIC ${made})
  target_link_libraries(tutti_ft PUBLIC PkgConfig::NGHTTP2 PkgConfig::PROTOBUF_C)
  set_target_properties(tutti_ft PROPERTIES TUTTI_SERVES ON) # tools ask
  set(page ${dir}/serve/page.html ${dir}/serve/style.css ${dir}/serve/script.js)
  tutti_embed(declarations serve ${page})
  file(CONFIGURE OUTPUT ${made}/lighthouse_page.h CONTENT "${declarations}" @ONLY)
  set_source_files_properties(${dir}/serve/http.c PROPERTIES OBJECT_DEPENDS "${page}")
  set(without_page ${dir}/serve/http.c)
  if(TARGET PkgConfig::MICROHTTPD)
    set(without_page ${dir}/serve/http_none.c)
    target_link_libraries(tutti_ft PUBLIC PkgConfig::MICROHTTPD)
  endif()
  set_source_files_properties(${without_page} PROPERTIES HEADER_FILE_ONLY ON)
else()
  set_source_files_properties(${served} PROPERTIES HEADER_FILE_ONLY ON)
  set(wire_test ${dir}/rpc/wire_test.c)
  list(FILTER tests EXCLUDE REGEX "/(rpc|serve|client)/[a-z_]+\\.c$") # the caller's
  list(APPEND tests ${wire_test})
endif()
