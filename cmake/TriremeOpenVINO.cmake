# Defines OpenVINO as the imported target Trireme::openvino, from the Python package's folder, which has headers and
# libraries. Its own find_package(OpenVINO) also requires TBB's CMake package, which we do not need.
#
# TRIREME_OPENVINO_DIR (variable or environment) names the folder with include/ and libs/ (a wheel's `openvino`), or the
# `runtime` folder of an OpenVINO archive. The default is the one that setup/setup.sh has fetched. If there is none, the
# target is not defined.
set(TRIREME_OPENVINO_DIR "$ENV{TRIREME_OPENVINO_DIR}" CACHE PATH "Your own OpenVINO; empty: the one that setup.sh has fetched")

function(_trireme_openvino_target)
  set(dir ${TRIREME_OPENVINO_DIR})
  if(NOT dir)
    set(setup ${PROJECT_SOURCE_DIR}/setup)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${setup}/versions.lock)
    execute_process(COMMAND ${setup}/setup.sh where openvino OUTPUT_VARIABLE dir OUTPUT_STRIP_TRAILING_WHITESPACE
      ERROR_QUIET)
  endif()
  # A wheel has only the versioned name: libopenvino.so.2641.
  file(GLOB library ${dir}/libs/libopenvino.so* ${dir}/lib/intel64/libopenvino.so ${dir}/lib/aarch64/libopenvino.so)
  if(NOT library OR NOT EXISTS ${dir}/include/openvino/openvino.hpp)
    if(TRIREME_OPENVINO_DIR)
      message(FATAL_ERROR "No OpenVINO in TRIREME_OPENVINO_DIR '${dir}' (looked for include/openvino/openvino.hpp and "
        "libs/libopenvino.so*)")
    endif()
    message(STATUS "OpenVINO: none (setup/setup.sh build fetches it); the engine openvino is not built")
    return()
  endif()
  list(GET library 0 library)
  get_filename_component(folder ${library} DIRECTORY)
  message(STATUS "OpenVINO: ${library}")
  add_library(Trireme::openvino SHARED IMPORTED GLOBAL)
  set_target_properties(Trireme::openvino PROPERTIES IMPORTED_LOCATION ${library})
  target_include_directories(Trireme::openvino SYSTEM INTERFACE ${dir}/include)
  set(TRIREME_OPENVINO_LIBRARIES ${folder} PARENT_SCOPE)
  trireme_installs_library(copied "${TRIREME_OPENVINO_DIR}")
  if(copied)  # without what computes on other devices: the engine openvino computes on the CPU
    trireme_install_libraries(${folder} openvino PATTERN "*_gpu_plugin*" EXCLUDE PATTERN "*_npu_plugin*" EXCLUDE)
  endif()
endfunction()

_trireme_openvino_target()
