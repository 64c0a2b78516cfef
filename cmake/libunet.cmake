# libunet.so: what cmake/libunet.map names is exported, nothing else.
find_package(Threads REQUIRED)
add_library(libunet SHARED
  ${SOCK_OBJECTS}
  $<TARGET_OBJECTS:unet_core>
  $<TARGET_OBJECTS:unet_shm>
  $<TARGET_OBJECTS:unet_wrap>
  $<TARGET_OBJECTS:unet_xdp_ni>
  $<TARGET_OBJECTS:unet_verbs>
  $<TARGET_OBJECTS:unet_emul>
  $<TARGET_OBJECTS:am>)
target_link_libraries(libunet PRIVATE netstack unetd_client Threads::Threads)
set_target_properties(libunet PROPERTIES OUTPUT_NAME unet EXPORT_NAME unet VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  LINKER_LANGUAGE C)
target_link_options(libunet PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/libunet.map)
set_property(TARGET libunet APPEND PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/libunet.map)
target_include_directories(libunet INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS libunet EXPORT unet-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
