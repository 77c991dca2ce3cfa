# SPDX-License-Identifier: BSD-3-Clause
# Kernels of Intel's GPUs: SPIR-V by clang's C++ for OpenCL and llvm-spirv (Debian: clang-15, llvm-spirv-15). Without them
# calls on such devices go through the host.
set(TUTTI_OPENCL auto CACHE STRING "Kernels for Intel GPUs: auto (where clang and llvm-spirv of one version are there), off")
set_property(CACHE TUTTI_OPENCL PROPERTY STRINGS auto off)

# Sets TUTTI_CLANG and TUTTI_LLVM_SPIRV in the caller's scope, empty where there are to be no kernels; *why says so.
function(tutti_opencl_find why)
  set(TUTTI_CLANG "" PARENT_SCOPE)
  set(${why} "TUTTI_OPENCL is off" PARENT_SCOPE)
  if(TUTTI_OPENCL STREQUAL "off")
    return()
  endif()
  set(${why} "there are no clang and llvm-spirv of one version from 15 on" PARENT_SCOPE)
  foreach(version 15 16 17 18 19 20)
    find_program(TUTTI_CLANG_${version} clang-${version})
    find_program(TUTTI_LLVM_SPIRV_${version} NAMES llvm-spirv-${version} PATHS /usr/lib/llvm-${version}/bin)
    mark_as_advanced(TUTTI_CLANG_${version} TUTTI_LLVM_SPIRV_${version})
    if(TUTTI_CLANG_${version} AND TUTTI_LLVM_SPIRV_${version})
      set(TUTTI_CLANG ${TUTTI_CLANG_${version}} PARENT_SCOPE)
      set(TUTTI_LLVM_SPIRV ${TUTTI_LLVM_SPIRV_${version}} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# tutti_spirv(MODULE IMAGE). No newer SPIR-V than any driver takes. No -O here: the driver's compiler optimises, and what
# LLVM makes of loops, SPIR-V refuses. No product and sum is to become one operation.
function(tutti_spirv module image)
  set(out ${PROJECT_BINARY_DIR}/opencl/${module})
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/opencl)
  add_custom_command(OUTPUT ${out}.spv
    COMMAND ${TUTTI_CLANG} -target spir64 -x cl -cl-std=clc++1.0 -Xclang -finclude-default-header -ffreestanding
            -O2 -Xclang -disable-llvm-passes -fno-strict-aliasing -Wall -Wextra -Wno-unused-function
            -Wno-unused-const-variable -Wno-constant-logical-operand -DMODULE_${module} -I ${PROJECT_SOURCE_DIR}/src
            -I ${PROJECT_SOURCE_DIR}/include -MD -MT ${out}.spv -MF ${out}.d -emit-llvm -c ${tutti_kernels} -o ${out}.bc
    COMMAND ${TUTTI_LLVM_SPIRV} --spirv-max-version=1.2 --spirv-fp-contract=off ${out}.bc -o ${out}.spv
    DEPENDS ${tutti_kernels} DEPFILE ${out}.d COMMENT "Building OpenCL kernels ${module}" VERBATIM)
  set(${image} ${out}.spv PARENT_SCOPE)
endfunction()

tutti_opencl_find(why)
set(images)
set(targets "")
if(TUTTI_CLANG)
  set(targets "SPIR-V 1.2")
  message(STATUS "Kernels for Intel GPUs: ${targets}, by ${TUTTI_CLANG}")
  tutti_kernel_modules(modules blocks)
  foreach(module ${modules})
    tutti_spirv(${module} image)
    list(APPEND images ${image})
  endforeach()
else()
  message(STATUS "Kernels for Intel GPUs: none (${why})")
endif()
tutti_kernel_images(tutti_device xpu "${targets}" "" ${images})
