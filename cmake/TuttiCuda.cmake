# SPDX-License-Identifier: BSD-3-Clause
# nvcc, which makes fatbins of kernels of NVIDIA devices (src/device/cuda/folder.cmake) and programs of users. CMake's own
# language CUDA is not used: it would link the toolkit's run time, and the tree must build without one. nvcc is slow:
# trees that test other things than kernels turn it off.
set(TUTTI_CUDA auto CACHE STRING
    "Kernels for CUDA devices: auto (where nvcc is there and nothing is instrumented), on, off")
set(tutti_cuda_all 80 90 100)
set(TUTTI_CUDA_ARCHITECTURES "${tutti_cuda_all}" CACHE STRING
    "Compute capabilities to build kernels for, or native: those of this machine's GPUs; PTX of the last serves later ones")
set_property(CACHE TUTTI_CUDA PROPERTY STRINGS auto on off)

# Sets TUTTI_NVCC, TUTTI_NVCC_VERSION and TUTTI_NVCC_ARCHITECTURES in the caller's scope; TUTTI_NVCC is empty where
# there are to be no kernels, and *why says so.
function(tutti_cuda_find why)
  set(TUTTI_NVCC "" PARENT_SCOPE)
  string(TOLOWER "${TUTTI_CUDA}" wanted)
  if(NOT wanted MATCHES "^(auto|on|off)$")
    message(FATAL_ERROR "TUTTI_CUDA is '${TUTTI_CUDA}'; it can be auto, on or off")
  endif()
  if(wanted STREQUAL "off")
    set(${why} "TUTTI_CUDA is off" PARENT_SCOPE)
    return()
  endif()
  if(wanted STREQUAL "auto" AND (TUTTI_SANITIZE OR TUTTI_FUZZ OR CMAKE_CROSSCOMPILING))
    set(${why} "instrumented and cross builds have none" PARENT_SCOPE)
    return()
  endif()
  find_program(TUTTI_NVCC_PROGRAM nvcc HINTS $ENV{CUDA_HOME} $ENV{CUDA_PATH} PATHS /usr/local/cuda PATH_SUFFIXES bin)
  tutti_nvcc_try("${TUTTI_NVCC_PROGRAM}" problem version architectures)
  if(problem)
    if(wanted STREQUAL "on")
      message(FATAL_ERROR "TUTTI_CUDA is on, but ${problem}")
    endif()
    set(${why} "${problem}" PARENT_SCOPE)
    return()
  endif()
  set(TUTTI_NVCC "${TUTTI_NVCC_PROGRAM}" PARENT_SCOPE)
  set(TUTTI_NVCC_VERSION "${version}" PARENT_SCOPE)
  set(TUTTI_NVCC_ARCHITECTURES "${architectures}" PARENT_SCOPE)
endfunction()

# TUTTI_CUDA_ARCHITECTURES, with what `native` means here: all, where there is no GPU.
function(tutti_cuda_wanted out)
  set(${out} "${TUTTI_CUDA_ARCHITECTURES}" PARENT_SCOPE)
  if(NOT TUTTI_CUDA_ARCHITECTURES STREQUAL "native")
    return()
  endif()
  find_program(TUTTI_NVIDIA_SMI nvidia-smi)
  set(native)
  if(TUTTI_NVIDIA_SMI)
    execute_process(COMMAND ${TUTTI_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE text ERROR_QUIET)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" native "${text}")
    list(TRANSFORM native REPLACE "\\." "")
    list(REMOVE_DUPLICATES native)
    list(SORT native COMPARE NATURAL)
  endif()
  if(NOT native)
    set(native ${tutti_cuda_all})
  endif()
  set(${out} "${native}" PARENT_SCOPE)
endfunction()

# Appends to the list the highest architecture from 80 on that nvcc knows below this one.
function(tutti_nvcc_below arch known list)
  string(REGEX MATCHALL "compute_[0-9]+" names "${known}")
  list(TRANSFORM names REPLACE "compute_" "")
  set(best 0)
  foreach(name ${names})
    if(name GREATER best AND name LESS arch AND name GREATER_EQUAL 80)
      set(best ${name})
    endif()
  endforeach()
  if(best)
    set(${list} ${${list}} ${best} PARENT_SCOPE)
  endif()
endfunction()

# Whether the program works, with a host compiler behind it, and which of the architectures it knows. *problem is empty
# when it does.
function(tutti_nvcc_try program problem version architectures)
  set(${problem} "there is no nvcc" PARENT_SCOPE)
  if(NOT program)
    return()
  endif()
  execute_process(COMMAND ${program} --version OUTPUT_VARIABLE text ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" found "${text}")
  set(${version} "${CMAKE_MATCH_1}" PARENT_SCOPE)
  set(${problem} "${program} does not run" PARENT_SCOPE)
  if(NOT found)
    return()
  endif()
  set(${problem} "${program} is older than CUDA 12.0" PARENT_SCOPE)
  if(CMAKE_MATCH_1 VERSION_LESS 12.0)
    return()
  endif()
  execute_process(COMMAND ${program} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
  set(usable)
  tutti_cuda_wanted(wanted)
  foreach(arch ${wanted})
    if("${known}" MATCHES "compute_${arch}[^0-9]")
      list(APPEND usable ${arch})
    elseif(TUTTI_CUDA_ARCHITECTURES STREQUAL "native") # newer than nvcc: by PTX of the highest below it
      tutti_nvcc_below(${arch} "${known}" usable)
    endif()
  endforeach()
  list(REMOVE_DUPLICATES usable)
  set(${problem} "${program} knows none of the architectures ${TUTTI_CUDA_ARCHITECTURES}" PARENT_SCOPE)
  if(NOT usable)
    return()
  endif()
  list(GET usable 0 first)
  set(probe ${PROJECT_BINARY_DIR}/cuda/probe)
  file(WRITE ${probe}.cu "extern \"C\" __global__ void probe(int *out) { *out = 1; }\n")
  execute_process(COMMAND ${program} -std=c++17 -arch=sm_${first} -fatbin ${probe}.cu -o ${probe}.fatbin
                  RESULT_VARIABLE status OUTPUT_VARIABLE words ERROR_VARIABLE words)
  string(REGEX REPLACE "\n.*" "" words "${words}")
  set(${problem} "${program} can not compile: ${words}" PARENT_SCOPE)
  if(status EQUAL 0)
    set(${problem} "" PARENT_SCOPE)
    set(${architectures} "${usable}" PARENT_SCOPE)
  endif()
endfunction()

# What nvcc compiles for, as arguments: all architectures into one file, with PTX of the last.
function(tutti_nvcc_targets out)
  set(targets)
  foreach(arch ${TUTTI_NVCC_ARCHITECTURES})
    list(APPEND targets -gencode arch=compute_${arch},code=sm_${arch})
  endforeach()
  set(${out} ${targets} PARENT_SCOPE)
endfunction()

# tutti_fatbin(SOURCE STEM FATBIN ...): compiles a source, with more arguments. Optimised in every build type: nothing
# debugs kernels, and unoptimised ones are others.
function(tutti_fatbin source stem fatbin)
  set(out ${PROJECT_BINARY_DIR}/cuda/${stem}.fatbin)
  tutti_nvcc_targets(targets)
  list(GET TUTTI_NVCC_ARCHITECTURES -1 last)
  list(APPEND targets -gencode arch=compute_${last},code=compute_${last})
  list(LENGTH TUTTI_NVCC_ARCHITECTURES n) # one thread each: the longest file bounds the build
  add_custom_command(OUTPUT ${out}
    COMMAND ${TUTTI_NVCC} -std=c++17 -O3 --threads ${n} -fatbin ${targets} -I ${PROJECT_SOURCE_DIR}/src
            -I ${PROJECT_SOURCE_DIR}/include ${ARGN} -MD -MF ${out}.d -o ${out} ${source}
    DEPENDS ${source} DEPFILE ${out}.d COMMENT "Building CUDA kernels ${stem}" VERBATIM)
  set(${fatbin} ${out} PARENT_SCOPE)
endfunction()

# tutti_cuda_program(NAME SOURCE): a program of users of the CUDA toolkit, over the shared library, as bin/NAME.
function(tutti_cuda_program name source)
  set(out ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${name})
  if(NOT CMAKE_RUNTIME_OUTPUT_DIRECTORY)
    set(out ${CMAKE_CURRENT_BINARY_DIR}/${name})
  endif()
  tutti_nvcc_targets(targets)
  add_custom_command(OUTPUT ${out}
    COMMAND ${TUTTI_NVCC} -std=c++17 -O3 ${targets} -I ${PROJECT_SOURCE_DIR}/include -MD -MF ${out}.d -o ${out} ${source}
            -L $<TARGET_FILE_DIR:tutti> -ltutti -Xlinker -rpath,$<TARGET_FILE_DIR:tutti>
    DEPENDS ${source} tutti DEPFILE ${out}.d COMMENT "Building ${name}" VERBATIM)
  add_custom_target(${name} ALL DEPENDS ${out})
  set_property(TARGET ${name} PROPERTY TUTTI_PROGRAM ${out})
endfunction()
