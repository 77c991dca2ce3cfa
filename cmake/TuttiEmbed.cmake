# SPDX-License-Identifier: BSD-3-Clause
# tutti_embed(OUT PREFIX FILE...): C declarations of files that stand in the library as they are, by the assembler's
# .incbin: PREFIX_STEM and PREFIX_end_STEM for each.
function(tutti_embed out prefix)
  set(declarations "")
  foreach(file ${ARGN})
    get_filename_component(stem ${file} NAME_WE)
    set(begin ${prefix}_${stem})
    set(end ${prefix}_end_${stem})
    string(APPEND declarations "__asm__(\".pushsection .rodata\\n.balign 64\\n.hidden ${begin}, ${end}\\n\"\n"
           "        \".global ${begin}, ${end}\\n${begin}:\\n.incbin \\\"${file}\\\"\\n\"\n"
           "        \"${end}:\\n.popsection\");\n"
           "extern const unsigned char ${begin}[], ${end}[];\n")
  endforeach()
  set(${out} "${declarations}" PARENT_SCOPE)
endfunction()
