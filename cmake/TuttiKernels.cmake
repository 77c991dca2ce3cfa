# SPDX-License-Identifier: BSD-3-Clause
# Kernels of GPUs. Each module of src/device/kernels/kernels.inc is compiled by itself for each maker whose compiler is
# there; what comes of it becomes part of the library, with a table (struct tutti_gpu_image). A maker's folder.cmake finds
# its compiler, compiles modules, and calls tutti_kernel_images. Without a compiler the table is empty.
set(tutti_kernels ${PROJECT_SOURCE_DIR}/src/device/kernels/kernels.inc)

# tutti_kernel_modules(OUT warps|blocks): the names of the modules for such architectures (device/kernels/machine.h).
function(tutti_kernel_modules out kind)
  file(STRINGS ${tutti_kernels} lines REGEX "^#ifdef MODULE_[a-z0-9_]+ /[*] (both|${kind}) [*]/")
  list(TRANSFORM lines REPLACE "^#ifdef MODULE_([a-z0-9_]+) .*" "\\1")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tutti_kernels})
  set(${out} ${lines} PARENT_SCOPE)
endfunction()

# tutti_kernel_images(TARGET MAKER FOR BY FILES...): puts the files into the target, with the table MAKER_images.
function(tutti_kernel_images target maker IMAGES_FOR IMAGES_BY)
  tutti_embed(declarations ${maker}_image ${ARGN})
  set(rows "")
  foreach(file ${ARGN})
    get_filename_component(stem ${file} NAME_WE)
    string(APPEND rows "    {\"${stem}\", ${maker}_image_${stem}, ${maker}_image_end_${stem}},\n")
  endforeach()
  list(LENGTH ARGN n)
  set(path ${PROJECT_BINARY_DIR}/kernels/${maker}_images.c)
  file(CONFIGURE OUTPUT ${path} @ONLY CONTENT "/* SPDX-License-Identifier: BSD-3-Clause */\n
/* What a compiler made of the kernels. Written by cmake/TuttiKernels.cmake. */\n
#include \"device/gpu.h\"\n
TUTTI_GPU_IMAGES(@maker@)\n
@declarations@
const struct tutti_gpu_image @maker@_images[] = {
@rows@    {NULL, NULL, NULL},
};
const size_t @maker@_n_images = @n@;
const char @maker@_images_for[] = \"@IMAGES_FOR@\", @maker@_images_by[] = \"@IMAGES_BY@\";
")
  set_source_files_properties(${path} PROPERTIES OBJECT_DEPENDS "${ARGN}")
  target_sources(${target} PRIVATE ${path})
endfunction()

# tutti_kernel_sources(OUT warps|blocks): a C++ source for each module, for the stand-ins of drivers.
function(tutti_kernel_sources out kind)
  tutti_kernel_modules(modules ${kind})
  set(sources)
  foreach(module ${modules})
    set(path ${PROJECT_BINARY_DIR}/kernels/${kind}/${module}.cpp)
    file(CONFIGURE OUTPUT ${path} CONTENT "#define MODULE_${module}\n#include \"device/kernels/kernels.inc\"\n")
    list(APPEND sources ${path})
  endforeach()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()
