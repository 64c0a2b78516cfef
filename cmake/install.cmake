# What `cmake --install` puts where; programs and libraries are installed beside their targets.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/unet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

file(GLOB UNET_PAGES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.[1-8])
foreach(page ${UNET_PAGES})
  string(REGEX MATCH "[1-8]$" section ${page})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()

# The package moves with its prefix: all paths in it are relative to itself.
file(RELATIVE_PATH UNET_PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${PROJECT_SOURCE_DIR}/cmake/unet.pc.in ${PROJECT_BINARY_DIR}/unet.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/unet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
