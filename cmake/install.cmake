# What `cmake --install` puts where; programs and libraries are installed beside their targets. `install_manifest.txt` of the
# build folder lists all of it: xargs rm -f < install_manifest.txt takes it away again.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/unet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.[ch]")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

file(GLOB UNET_PAGES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.[1-8])
foreach(page ${UNET_PAGES})
  string(REGEX MATCH "[1-8]$" section ${page})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()

# The unit names its program by where it is installed. A relative folder is below the prefix.
set(UNET_UNITDIR lib/systemd/system CACHE STRING "where systemd's units are installed")
install(CODE "
  set(UNET_LIBEXEC \${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBEXECDIR}/unet)
  configure_file(${PROJECT_SOURCE_DIR}/packaging/unetd.service.in ${PROJECT_BINARY_DIR}/unetd.service @ONLY)")
install(FILES ${PROJECT_BINARY_DIR}/unetd.service DESTINATION ${UNET_UNITDIR})
install(FILES ${PROJECT_SOURCE_DIR}/packaging/unet.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME unet)
install(FILES ${PROJECT_SOURCE_DIR}/packaging/unet.conf DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)

# Each function of a header has the page of its header: man unet_connect.
foreach(pair sock:unet_sock flow:unet_flow unet:unet_ep am:unet_am splitc:unet_splitc)
  string(REGEX MATCH "^[a-z]+" name ${pair})
  string(REGEX MATCH "[a-z_]+$" page ${pair})
  set(header ${PROJECT_SOURCE_DIR}/include/unet/${name}.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  file(STRINGS ${header} lines REGEX "^UNET_API ")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "(unet|uam|sc)_[a-z0-9_]+\\(" function "${line}")
    string(REPLACE "(" ".3" file "${function}")
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/man/${file} CONTENT ".so man3/${page}.3\n")
    install(FILES ${PROJECT_BINARY_DIR}/man/${file} DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
  endforeach()
endforeach()

# The packages move with their prefix: all paths in them are relative to themselves.
file(RELATIVE_PATH UNET_PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${PROJECT_SOURCE_DIR}/cmake/unet.pc.in ${PROJECT_BINARY_DIR}/unet.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/unet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

include(CMakePackageConfigHelpers)
set(UNET_CMAKEDIR ${CMAKE_INSTALL_LIBDIR}/cmake/unet)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/unet-config-version.cmake COMPATIBILITY SameMinorVersion)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/unet-config.cmake @ONLY CONTENT
  "include(\${CMAKE_CURRENT_LIST_DIR}/unet-targets.cmake)\n")
install(FILES ${PROJECT_BINARY_DIR}/unet-config.cmake ${PROJECT_BINARY_DIR}/unet-config-version.cmake
  DESTINATION ${UNET_CMAKEDIR})
install(EXPORT unet-targets NAMESPACE unet:: DESTINATION ${UNET_CMAKEDIR})
