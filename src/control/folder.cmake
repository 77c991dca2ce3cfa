# SPDX-License-Identifier: BSD-3-Clause
# tls_openssl.c, or tls_none.c, as with the HMACs of src/base.
if(TUTTI_OPENSSL AND TARGET OpenSSL::SSL)
  set_source_files_properties(${dir}/net/tls_none.c PROPERTIES HEADER_FILE_ONLY ON)
  target_link_libraries(tutti_control PUBLIC OpenSSL::SSL)
else()
  set_source_files_properties(${dir}/net/tls_openssl.c PROPERTIES HEADER_FILE_ONLY ON)
endif()
# A test of meetings puts its own recvmsg in front of the system's.
if(TUTTI_BUILD_TESTS)
  function(control_tests)
    target_link_options(test_control_meeting_test PRIVATE -Wl,--wrap=recvmsg)
  endfunction()
  cmake_language(DEFER CALL control_tests)
endif()
