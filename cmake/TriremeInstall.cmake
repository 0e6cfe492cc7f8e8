# `cmake --install`: programs, static libraries, headers, CMake packages and pkg-config files. All paths in them are
# relative, so the installed folder can be moved. Include this file after all modules are added.
include(CMakePackageConfigHelpers)

get_property(modules GLOBAL PROPERTY TRIREME_MODULES)
get_property(folders GLOBAL PROPERTY TRIREME_FOLDERS)
get_property(torch_modules GLOBAL PROPERTY TRIREME_TORCH_MODULES)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Trireme)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/trireme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "test_*.h" EXCLUDE PATTERN "*_impl.h" EXCLUDE)

install(FILES LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/trireme COMPONENT launcher)

# --- find_package(Trireme) ---
# What needs libtorch is a file of its own, which is read only when libtorch is there.
set(plain_targets job ${modules})
set(torch_targets)
if(TRIREME_WITH_TORCH)
  list(REMOVE_ITEM plain_targets ${torch_modules})
  set(torch_targets trireme ${torch_modules})
else()
  list(PREPEND plain_targets trireme)
endif()

function(_trireme_install_targets export names)
  list(TRANSFORM names PREPEND trireme_)
  list(TRANSFORM names REPLACE "^trireme_trireme$" trireme)
  install(TARGETS ${names} EXPORT ${export} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT ${export} NAMESPACE Trireme:: DESTINATION ${package_dir})
endfunction()

_trireme_install_targets(TriremeTargets "${plain_targets}")
if(TRIREME_WITH_TORCH)
  _trireme_install_targets(TriremeTorchTargets "${torch_targets}")
  install(FILES cmake/TriremeTorch.cmake DESTINATION ${package_dir})
endif()

# libtorch, as it is seen from TriremeConfig.cmake and from trireme.pc.
set(config_torch ${TRIREME_TORCH_ROOT})
set(pc_torch ${TRIREME_TORCH_ROOT})
if(TRIREME_INSTALLS_TORCH)
  set(config_torch "\${_trireme_prefix}/${TRIREME_LIBRARY_DIR}/torch")
  set(pc_torch "\${libdir}/trireme/torch")
endif()
set(config_limit)
if(NOT TRIREME_WITH_TORCH)
  set(config_limit " in a Trireme that was built without libtorch")
endif()
set(config_packages)  # that are linked as targets of pkg-config
foreach(module store launch nn)
  get_property(packages GLOBAL PROPERTY TRIREME_PACKAGES_${module})
  list(APPEND config_packages ${packages})
endforeach()
configure_package_config_file(cmake/TriremeConfig.cmake.in TriremeConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(TriremeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TriremeConfig.cmake ${PROJECT_BINARY_DIR}/TriremeConfigVersion.cmake
  DESTINATION ${package_dir})

# --- pkg-config ---
# _trireme_pkg_config(NAME DESCRIPTION MODULES…): NAME.pc, for these modules and all that they use.
function(_trireme_pkg_config pc_name pc_description)
  trireme_modules_below(used ${ARGN})
  set(pc_libraries)
  set(pc_packages)
  foreach(module ${modules})
    if(module IN_LIST used)
      list(PREPEND pc_libraries -ltrireme_${module})  # on a static link line a library precedes those that it uses
      get_property(packages GLOBAL PROPERTY TRIREME_PACKAGES_${module})
      list(APPEND pc_packages ${packages})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES pc_packages)
  list(JOIN pc_libraries " " pc_libraries)
  list(JOIN pc_packages " " pc_packages)
  configure_file(cmake/trireme.pc.in ${pc_name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${pc_name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(pc_torch_cflags)
set(pc_torch_libs)
_trireme_pkg_config(trireme-job "The launcher and the store of Trireme, for programs without tensors" launch store)
_trireme_pkg_config(trireme-infer "Inference with models that Trireme has exported" infer)
set(pc_torch_cflags " -DTRIREME_WITHOUT_TORCH")
if(TRIREME_WITH_TORCH)
  # The same options as Trireme::torch. --as-needed: a program without tensors does not load libtorch.
  set(pc_torch_cflags " -DUSE_DISTRIBUTED -DUSE_C10D_GLOO -DFMT_HEADER_ONLY")
  string(APPEND pc_torch_cflags " -isystem ${pc_torch}/include -isystem ${pc_torch}/include/torch/csrc/api/include")
  set(pc_torch_libs " -Wl,--push-state,--as-needed,${pc_torch}/lib/libtorch_cpu.so,${pc_torch}/lib/libc10.so,--pop-state")
  string(APPEND pc_torch_libs " -Wl,-rpath,${pc_torch}/lib")
  file(GLOB cuda RELATIVE ${TRIREME_TORCH_ROOT} ${TRIREME_TORCH_ROOT}/../nvidia/cu*/lib)
  foreach(dir ${cuda})
    string(APPEND pc_torch_libs " -Wl,-rpath-link,${pc_torch}/${dir}")
  endforeach()
endif()
_trireme_pkg_config(trireme ${PROJECT_DESCRIPTION} ${modules})
