# SPDX-License-Identifier: BSD-3-Clause
# libtutti.so from all folders but the checker and the simulator: only the names of cmake/libtutti.map leave it. Install rules, tutti.pc and
# tuttiConfig.cmake work from any prefix, also when the installed tree is moved.
include(CMakePackageConfigHelpers)
get_property(folders GLOBAL PROPERTY TUTTI_FOLDERS)
list(REMOVE_ITEM folders tutti_verify tutti_sim) # they are for tools and tests: what is loaded was proved before
if(NOT folders)
  return()
endif()

set(map ${PROJECT_SOURCE_DIR}/cmake/libtutti.map)
list(TRANSFORM folders PREPEND "$<TARGET_OBJECTS:" OUTPUT_VARIABLE objects)
list(TRANSFORM objects APPEND ">")
add_library(tutti SHARED ${objects}) # whole folders, not only what something refers to
add_library(tutti::tutti ALIAS tutti)
set_target_properties(tutti PROPERTIES LINKER_LANGUAGE C VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  LINK_DEPENDS ${map})
target_include_directories(tutti INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(tutti PRIVATE ${folders}) # for what the folders themselves link
target_link_options(tutti PRIVATE -Wl,--version-script=${map})
if(NOT TUTTI_SANITIZE AND NOT TUTTI_FUZZ) # clang leaves the sanitizers' run time undefined in shared libraries
  target_link_options(tutti PRIVATE -Wl,-z,defs)
endif()

# Components: what runs, what programs are built with, and the command (cmake/TuttiPackage.cmake).
install(TARGETS tutti EXPORT tuttiTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
  NAMELINK_COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/man/tutti.1 ${PROJECT_SOURCE_DIR}/man/tutti-sched.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
  COMPONENT tools)
install(FILES ${PROJECT_SOURCE_DIR}/man/tutti.3 DESTINATION ${CMAKE_INSTALL_MANDIR}/man3 COMPONENT development)
find_program(TUTTI_PYTHON3 python3)
if(TUTTI_PYTHON3) # a page for each public function
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/tutti/*.h)
  add_custom_command(OUTPUT man/stamp DEPENDS ${headers} ${map} ${PROJECT_SOURCE_DIR}/man/pages.py VERBATIM
    COMMAND ${TUTTI_PYTHON3} ${PROJECT_SOURCE_DIR}/man/pages.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/man/man3
    COMMAND ${CMAKE_COMMAND} -E touch man/stamp)
  add_custom_target(tutti_man ALL DEPENDS man/stamp)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/man/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT development OPTIONAL)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/man/tutti.7 DESTINATION ${CMAKE_INSTALL_MANDIR}/man7 COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/completions/tutti.bash RENAME tutti
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT tools)
install(FILES ${PROJECT_SOURCE_DIR}/completions/_tutti DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions
  COMPONENT tools)

# pkg-config and CMake: how far up the prefix is depends on where libdir is.
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
  OUTPUT_VARIABLE TUTTI_PC_PREFIX)
string(REGEX REPLACE "/$" "" TUTTI_PC_PREFIX "${TUTTI_PC_PREFIX}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/tutti.pc.in ${PROJECT_BINARY_DIR}/tutti.pc @ONLY)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tuttiConfig.cmake.in ${PROJECT_BINARY_DIR}/tuttiConfig.cmake
  INSTALL_DESTINATION ${config_dir})
# Before 1.0 a minor version may break: 0.1 does not stand in for 0.2.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tutti.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
install(FILES ${PROJECT_BINARY_DIR}/tuttiConfig.cmake ${PROJECT_BINARY_DIR}/tuttiConfigVersion.cmake
  DESTINATION ${config_dir} COMPONENT development)
install(EXPORT tuttiTargets NAMESPACE tutti:: DESTINATION ${config_dir} COMPONENT development)
