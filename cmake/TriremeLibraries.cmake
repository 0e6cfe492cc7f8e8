# libtorch and OpenVINO below the prefix. What setup.sh has fetched lies in its user's private cache, so `cmake --install`
# copies it into <prefix>/lib/trireme, where every user of the machine finds it. A library that you have named yourself
# (TRIREME_TORCH_DIR, TRIREME_OPENVINO_DIR) is used where it is.
set(TRIREME_INSTALL_LIBRARIES fetched CACHE STRING
  "Which of libtorch and OpenVINO to copy into the prefix: fetched (by setup.sh), all, none")
set_property(CACHE TRIREME_INSTALL_LIBRARIES PROPERTY STRINGS fetched all none)
if(NOT TRIREME_INSTALL_LIBRARIES MATCHES "^(fetched|all|none)$")
  message(FATAL_ERROR "TRIREME_INSTALL_LIBRARIES is '${TRIREME_INSTALL_LIBRARIES}'; it must be fetched, all or none")
endif()
set(TRIREME_LIBRARY_DIR ${CMAKE_INSTALL_LIBDIR}/trireme)  # below the prefix
set(TRIREME_SYSTEM_LIBRARIES ${TRIREME_LIBRARY_DIR}/system)

# Whether a library is copied. `own` is the folder that the user has named for it, or empty.
function(trireme_installs_library result own)
  set(${result} OFF PARENT_SCOPE)
  if(TRIREME_INSTALL_LIBRARIES STREQUAL all OR (TRIREME_INSTALL_LIBRARIES STREQUAL fetched AND NOT own))
    set(${result} ON PARENT_SCOPE)
  endif()
endfunction()

# Copies the shared libraries of a folder: trireme_install_libraries(FOLDER NAME-BELOW-lib/trireme [PATTERN x EXCLUDE]…)
function(trireme_install_libraries folder name)
  install(DIRECTORY ${folder}/ DESTINATION ${TRIREME_LIBRARY_DIR}/${name} FILES_MATCHING PATTERN "*.so*" ${ARGN})
  get_filename_component(folder ${folder} ABSOLUTE)
  set_property(GLOBAL PROPERTY "TRIREME_INSTALLED_AT ${folder}" ${TRIREME_LIBRARY_DIR}/${name})
endfunction()

# Sets INSTALL_RPATH of a target that is installed into `destination`, for our plugins and for these folders of
# libraries: relative to the target where they are copied too, so that the prefix can be moved.
function(trireme_install_rpath target destination)
  file(RELATIVE_PATH plugins /${destination} /${CMAKE_INSTALL_LIBDIR})
  set(path $ORIGIN/${plugins})
  foreach(folder ${ARGN})
    get_filename_component(folder ${folder} ABSOLUTE)
    get_property(installed GLOBAL PROPERTY "TRIREME_INSTALLED_AT ${folder}")
    if(installed)
      file(RELATIVE_PATH way /${destination} /${installed})
      set(folder $ORIGIN/${way})
    endif()
    list(APPEND path ${folder})
  endforeach()
  # Where packages bring the system's libraries along (TriremePackage.cmake).
  file(RELATIVE_PATH system /${destination} /${TRIREME_SYSTEM_LIBRARIES})
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${path};$ORIGIN/${system}")
endfunction()
