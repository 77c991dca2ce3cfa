# SPDX-License-Identifier: BSD-3-Clause
# Kernels of Intel GPUs: each .cl under src/device/level_zero/kernels becomes SPIR-V by clang and llvm-spirv (Debian:
# clang-15, llvm-spirv-15), and all of them part of the library, with a table (xpu_images.c). Without these programs the
# table is empty: calls on such devices go through the host.
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

# tutti_opencl_kernels(TARGET DIR): compiles DIR/*.cl and embeds them, with the table of device/level_zero/driver.h.
function(tutti_opencl_kernels target dir)
  file(GLOB kernels CONFIGURE_DEPENDS ${dir}/*.cl)
  tutti_opencl_find(why)
  set(images)
  set(IMAGES_FOR "")
  if(TUTTI_CLANG)
    set(IMAGES_FOR "SPIR-V 1.2")
    message(STATUS "Kernels for Intel GPUs: SPIR-V 1.2, by ${TUTTI_CLANG}")
    foreach(kernel ${kernels})
      tutti_spirv(${kernel} image)
      list(APPEND images ${image})
    endforeach()
  else()
    message(STATUS "Kernels for Intel GPUs: none (${why})")
  endif()
  tutti_opencl_table(table ${images})
  target_sources(${target} PRIVATE ${table})
endfunction()

# No newer SPIR-V than any driver takes. Nothing is optimised here, which is the matter of the driver's compiler: what
# LLVM makes of loops, SPIR-V refuses. No product and sum is to become one operation.
function(tutti_spirv source image)
  get_filename_component(stem ${source} NAME_WE)
  set(out ${PROJECT_BINARY_DIR}/opencl/${stem})
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/opencl)
  add_custom_command(OUTPUT ${out}.spv
    COMMAND ${TUTTI_CLANG} -target spir64 -x cl -cl-std=CL1.2 -Xclang -finclude-default-header -ffreestanding
            -O2 -Xclang -disable-llvm-passes -fno-strict-aliasing -Wall -Wextra -Wno-unused-function
            -Wno-constant-logical-operand -I ${PROJECT_SOURCE_DIR}/src -I ${PROJECT_SOURCE_DIR}/include -MD -MT ${out}.spv -MF ${out}.d -emit-llvm -c ${source} -o ${out}.bc
    COMMAND ${TUTTI_LLVM_SPIRV} --spirv-max-version=1.2 --spirv-fp-contract=off ${out}.bc -o ${out}.spv
    DEPENDS ${source} DEPFILE ${out}.d COMMENT "Building OpenCL kernels ${stem}" VERBATIM)
  set(${image} ${out}.spv PARENT_SCOPE)
endfunction()

# The table as C, rewritten only when it changes.
function(tutti_opencl_table out)
  tutti_embed(declarations xpu_image ${ARGN})
  set(rows "")
  foreach(image ${ARGN})
    get_filename_component(stem ${image} NAME_WE)
    string(APPEND rows "    {\"${stem}\", xpu_image_${stem}, xpu_image_end_${stem}},\n")
  endforeach()
  list(LENGTH ARGN n)
  set(path ${PROJECT_BINARY_DIR}/opencl/xpu_images.c)
  file(CONFIGURE OUTPUT ${path} @ONLY CONTENT "/* SPDX-License-Identifier: BSD-3-Clause */\n
/* What the compilers made of the kernels. Written by device/level_zero/folder.cmake. */\n
#include \"device/level_zero/driver.h\"\n
@declarations@
const struct xpu_image xpu_images[] = {
@rows@    {NULL, NULL, NULL},
};
const size_t xpu_n_images = @n@;
const char xpu_images_for[] = \"@IMAGES_FOR@\";
")
  set_source_files_properties(${path} PROPERTIES OBJECT_DEPENDS "${ARGN}")
  set(${out} ${path} PARENT_SCOPE)
endfunction()

tutti_opencl_kernels(tutti_device ${CMAKE_CURRENT_LIST_DIR}/kernels)
