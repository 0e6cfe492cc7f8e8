# `make package`: build/packages gets
#   trireme-VERSION-SYSTEM.tar.gz   all that `make install` installs, and the system's libraries that it needs: runs from any folder
#   trireme-launcher_*.deb          the program `trireme`
#   trireme_*.deb                   everything else: libraries, headers, libtorch, `trireme train` and the like
#   trireme-*.whl                   the program `trireme` for `pip install`, with the libraries that it needs
# Include this file after TriremeInstall, in which every file has got its component: launcher or library.
# --- the system's libraries, for where they are not installed
# Only packages have them (EXCLUDE_FROM_ALL): after `make install` programs use those of the system. libc and its parts are
# never copied: they belong to the loader of programs. libtorch and OpenVINO are in the package anyway.
function(_trireme_bundle component runtime_set)
  install(RUNTIME_DEPENDENCY_SET ${runtime_set}
    PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|util|pthread|resolv)\\.so" "^lib(torch|c10|cuda|nv|openvino)"
    LIBRARY DESTINATION ${TRIREME_SYSTEM_LIBRARIES} COMPONENT ${component} EXCLUDE_FROM_ALL)
  # They look for each other in the system's folders, and their licences want their notices beside them.
  install(CODE "set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
    file(MAKE_DIRECTORY \"\${prefix}/${CMAKE_INSTALL_DATADIR}/doc/trireme\")
    file(GLOB libraries \"\${prefix}/${TRIREME_SYSTEM_LIBRARIES}/*.so*\")
    foreach(library IN LISTS libraries)
      execute_process(COMMAND ${TRIREME_PATCHELF} --set-rpath \$ORIGIN \${library} COMMAND_ERROR_IS_FATAL ANY)
      get_filename_component(name \${library} NAME)
      execute_process(COMMAND dpkg-query --search \"*/\${name}\" OUTPUT_VARIABLE owner COMMAND_ERROR_IS_FATAL ANY)
      string(REGEX REPLACE \"[:,].*\" \"\" owner \"\${owner}\")
      file(COPY_FILE /usr/share/doc/\${owner}/copyright \"\${prefix}/${CMAKE_INSTALL_DATADIR}/doc/trireme/\${owner}.copyright\")
    endforeach()" COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

find_program(TRIREME_PATCHELF patchelf)
find_program(TRIREME_DPKG_SHLIBDEPS dpkg-shlibdeps)
if(NOT TRIREME_PATCHELF OR NOT TRIREME_DPKG_SHLIBDEPS)
  message(STATUS "Trireme: no packages (make package): patchelf or dpkg-shlibdeps is missing")
  return()
endif()
_trireme_bundle(launcher_system trireme_launcher_needs)
_trireme_bundle(library_system trireme_library_needs)

# --- tarball and Debian packages
set(CPACK_PACKAGE_VENDOR "The Trireme authors")
set(CPACK_PACKAGE_CONTACT "The Trireme authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
string(TOLOWER "trireme-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}" CPACK_PACKAGE_FILE_NAME)
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)  # else it would lack what is EXCLUDE_FROM_ALL
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/TriremePackageFormats.cmake)

# Of the second package: what compiles and links with the installed libraries needs the same packages as Trireme itself.
file(STRINGS ${PROJECT_SOURCE_DIR}/setup/packages-build.txt needed REGEX "^(lib|nlohmann|zlib)[^ ]*-dev")
list(FILTER needed EXCLUDE REGEX "gtest|gmock|gloo")
list(TRANSFORM needed REPLACE " .*" "")
list(JOIN needed ", " needed)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)  # xz takes ten minutes for libtorch
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_LAUNCHER_PACKAGE_NAME trireme-launcher)
set(CPACK_DEBIAN_LAUNCHER_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME trireme)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS "trireme-launcher (= ${PROJECT_VERSION}), g++, pkg-config, python3, ${needed}")
set(CPACK_COMPONENT_LAUNCHER_DESCRIPTION
  "Starts a program as many processes, on one machine or several, watches it, and says why it failed.")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION
  "Libraries and headers for training on many devices from C++, with libtorch, and the programs that train, export and infer.")
include(CPack)

# --- wheel
find_package(Python3 COMPONENTS Interpreter)
set(wheel_stage ${PROJECT_BINARY_DIR}/packages/wheel)
get_property(pages GLOBAL PROPERTY TRIREME_PAGES_OF_launcher)
add_custom_target(trireme_wheel DEPENDS trireme_cli
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${wheel_stage}
  COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --component launcher --prefix ${wheel_stage}
  COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --component launcher_system --prefix ${wheel_stage}
  COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/setup/wheel.py ${wheel_stage} ${PROJECT_VERSION}
    ${PROJECT_BINARY_DIR}/packages
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${wheel_stage}
  VERBATIM)
add_dependencies(trireme_wheel ${pages})
add_custom_target(trireme_packages
  COMMAND ${CMAKE_CPACK_COMMAND} --config ${PROJECT_BINARY_DIR}/CPackConfig.cmake
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${PROJECT_BINARY_DIR}/packages/_CPack_Packages
  VERBATIM)
add_dependencies(trireme_packages trireme_products trireme_wheel)
