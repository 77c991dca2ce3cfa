# SPDX-License-Identifier: BSD-3-Clause
# Compiler settings and optional dependencies, found once for all folders.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON) # _GNU_SOURCE interfaces of Linux
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

set(TUTTI_SANITIZE "" CACHE STRING "address, undefined or thread")
set(TUTTI_WARNINGS -Wall -Wextra -Wconversion -Wshadow -Wvla -Wstrict-prototypes -Wundef -Wno-sign-conversion)
add_compile_definitions(_GNU_SOURCE TUTTI_VERSION_MAJOR=${PROJECT_VERSION_MAJOR}
                        TUTTI_VERSION_MINOR=${PROJECT_VERSION_MINOR} TUTTI_VERSION_PATCH=${PROJECT_VERSION_PATCH})
set(TUTTI_FUZZ OFF CACHE BOOL "Build tests/fuzz for libFuzzer (clang)")
set(TUTTI_TIMEOUT_FACTOR 1) # of the tests' time limits
if(TUTTI_SANITIZE)
  set(TUTTI_TIMEOUT_FACTOR 5)
  add_compile_options(-fsanitize=${TUTTI_SANITIZE} -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${TUTTI_SANITIZE})
  if(TUTTI_SANITIZE STREQUAL undefined)
    add_compile_options(-fno-sanitize-recover=all)
  endif()
endif()
if(TUTTI_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
if(CMAKE_BUILD_TYPE STREQUAL Debug)
  set(TUTTI_TIMEOUT_FACTOR 3)
endif()
if(CMAKE_CROSSCOMPILING)
  set(TUTTI_TIMEOUT_FACTOR 10) # under an emulator
endif()

# Every call clears records of some hundred bytes. gcc does that with "rep stos", which takes as long as a third of a
# short call; folders name the files for which that matters.
set(TUTTI_CLEARS -mmemset-strategy=vector_loop:512:noalign,libcall:-1:noalign)
include(CheckCCompilerFlag)
check_c_compiler_flag(${TUTTI_CLEARS} TUTTI_CLEARS_KNOWN)
if(NOT TUTTI_CLEARS_KNOWN)
  set(TUTTI_CLEARS "")
endif()

find_package(Threads REQUIRED)
find_package(OpenSSL 3 QUIET COMPONENTS Crypto SSL)
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(CMOCKA QUIET IMPORTED_TARGET cmocka)
  pkg_check_modules(HWLOC QUIET IMPORTED_TARGET hwloc>=2.1)
endif()
find_path(TUTTI_FABRIC_INCLUDE rdma/fi_tagged.h DOC "libfabric's header, for transport ofi")
