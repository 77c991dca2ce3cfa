# SPDX-License-Identifier: BSD-3-Clause
# A test of meetings puts its own recvmsg in front of the system's.
if(TUTTI_BUILD_TESTS)
  function(control_tests)
    target_link_options(test_control_meeting_test PRIVATE -Wl,--wrap=recvmsg)
  endfunction()
  cmake_language(DEFER CALL control_tests)
endif()
