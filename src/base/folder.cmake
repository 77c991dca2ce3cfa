# SPDX-License-Identifier: BSD-3-Clause
# One of hmac_openssl.c and hmac_none.c, by what this machine has. The other stays listed, but is not compiled.
option(TUTTI_OPENSSL "Authenticate with OpenSSL's HMAC-SHA256 where it is found" ON)
if(TUTTI_OPENSSL AND TARGET OpenSSL::Crypto)
  set_source_files_properties(${dir}/hmac_none.c PROPERTIES HEADER_FILE_ONLY ON)
  target_link_libraries(tutti_base PUBLIC OpenSSL::Crypto)
else()
  set_source_files_properties(${dir}/hmac_openssl.c PROPERTIES HEADER_FILE_ONLY ON)
endif()
target_link_libraries(tutti_base PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
