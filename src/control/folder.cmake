# SPDX-License-Identifier: BSD-3-Clause
# cipher.c, or cipher_none.c without OpenSSL. ipsec-mb's header alone is needed here: the library is opened at run time.
# Without it gcm_mb_none.c stands for gcm_mb.c.
if(TUTTI_IPSEC_MB_INCLUDE)
  set(gcm_mb_unused gcm_mb_none.c)
  target_include_directories(tutti_control SYSTEM PRIVATE ${TUTTI_IPSEC_MB_INCLUDE})
else()
  set(gcm_mb_unused gcm_mb.c)
endif()
if(TUTTI_OPENSSL AND TARGET OpenSSL::SSL)
  set(cipher_unused cipher_none.c ${gcm_mb_unused})
else()
  set(cipher_unused cipher.c gcm_openssl.c gcm_mb.c gcm_mb_none.c)
endif()
list(TRANSFORM cipher_unused PREPEND ${dir}/net/)
set_source_files_properties(${cipher_unused} PROPERTIES HEADER_FILE_ONLY ON)
# A test of meetings puts its own recvmsg in front of the system's.
if(TUTTI_BUILD_TESTS)
  function(control_tests)
    target_link_options(test_control_meeting_test PRIVATE -Wl,--wrap=recvmsg)
  endfunction()
  cmake_language(DEFER CALL control_tests)
endif()
