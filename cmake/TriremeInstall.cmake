# `cmake --install`: programs, static libraries, headers, a CMake package and a pkg-config file. All paths in them are
# relative, so the installed folder can be moved. Include this file after all modules are added.
include(CMakePackageConfigHelpers)

get_property(modules GLOBAL PROPERTY TRIREME_MODULES)
get_property(folders GLOBAL PROPERTY TRIREME_FOLDERS)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Trireme)

list(TRANSFORM modules PREPEND trireme_ OUTPUT_VARIABLE libraries)
install(TARGETS trireme ${libraries} EXPORT TriremeTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT TriremeTargets NAMESPACE Trireme:: DESTINATION ${package_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/trireme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "test_*.h" EXCLUDE PATTERN "*_impl.h" EXCLUDE)
install(TARGETS trireme_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
add_dependencies(trireme_products trireme_cli)

configure_package_config_file(cmake/TriremeConfig.cmake.in TriremeConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(TriremeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TriremeConfig.cmake ${PROJECT_BINARY_DIR}/TriremeConfigVersion.cmake
  DESTINATION ${package_dir})
if(TRIREME_WITH_TORCH)
  install(FILES cmake/TriremeTorch.cmake DESTINATION ${package_dir})
endif()

# pkg-config: on a static link line a library precedes those that it uses.
set(pc_libraries ${libraries})
list(REVERSE pc_libraries)
list(TRANSFORM pc_libraries PREPEND -l)
list(JOIN pc_libraries " " pc_libraries)
set(pc_torch_cflags -DTRIREME_WITHOUT_TORCH)
if(TRIREME_WITH_TORCH)
  # The same options as Trireme::torch. --as-needed: a program without tensors does not load libtorch.
  set(torch ${TRIREME_TORCH_ROOT})
  set(pc_torch_cflags "-DUSE_DISTRIBUTED -DUSE_C10D_GLOO -DFMT_HEADER_ONLY")
  string(APPEND pc_torch_cflags " -isystem ${torch}/include -isystem ${torch}/include/torch/csrc/api/include")
  set(pc_torch_libs "-Wl,--push-state,--as-needed,${torch}/lib/libtorch_cpu.so,${torch}/lib/libc10.so,--pop-state")
  file(GLOB cuda ${torch}/../nvidia/cu*/lib)
  foreach(dir ${torch}/lib ${cuda})
    string(APPEND pc_torch_libs " -Wl,-rpath,${dir}")
  endforeach()
endif()
if(TRIREME_WITH_PNG AND spng_FOUND)
  set(pc_png " spng")
endif()
file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/trireme.pc.in trireme.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/trireme.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
