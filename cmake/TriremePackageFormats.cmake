# Read by CPack before each format. Debian's packages name the system's libraries as dependencies; the tarball has them.
set(CPACK_COMPONENTS_ALL launcher library)
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY OFF)
else()
  list(APPEND CPACK_COMPONENTS_ALL launcher_system library_system)
endif()
