# SPDX-License-Identifier: BSD-3-Clause
# What Debian wants in packages beside the files that are installed: cpack runs this on the folders of the components,
# before it packs them. Man pages are compressed; each package has its licence and its changelog.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
find_program(gzip gzip REQUIRED)
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(READ ${CPACK_RESOURCE_FILE_LICENSE} licence)
string(REGEX MATCH "Copyright \\(c\\) ([^\n]*)" holder "${licence}")
set(holder "${CMAKE_MATCH_1}")
string(REGEX REPLACE "\n\n" "\n.\n" licence "${licence}")
string(REGEX REPLACE "\n(.)" "\n \\1" licence "${licence}")
string(STRIP "${licence}" licence)
foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} name)
  set(package ${CPACK_DEBIAN_${name}_PACKAGE_NAME})
  set(share ${CPACK_TEMPORARY_DIRECTORY}/${component}${CPACK_PACKAGING_INSTALL_PREFIX}/share)
  file(REMOVE ${share}/doc/tutti/LICENSE) # the same words as in copyright
  if(EXISTS ${share}/doc/tutti)
    file(RENAME ${share}/doc/tutti ${share}/doc/${package})
  endif()
  file(WRITE ${share}/doc/${package}/copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: tutti

Files: *
Copyright: ${holder}
License: BSD-3-Clause
 ${licence}
")
  file(WRITE ${share}/doc/${package}/changelog "tutti (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * What changed is told by CHANGELOG.md of the package ${CPACK_DEBIAN_RUNTIME_PACKAGE_NAME}.

 -- ${CPACK_PACKAGE_CONTACT}  ${now}
")
  file(GLOB pages ${share}/man/man*/*.[1-9])
  foreach(file ${pages} ${share}/doc/${package}/changelog)
    execute_process(COMMAND ${gzip} -9n ${file} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endforeach()
