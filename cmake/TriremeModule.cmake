# Everything that is installed: libraries and programs, no tests. Programs add themselves by add_dependencies.
add_custom_target(trireme_products)
add_custom_target(trireme_headers)

# One folder = one module = one library target.
#
#   trireme_module(store
#     SOURCES tcp_server.cc tcp_client.cc
#     TESTS   tcp_test.cc
#     DEPENDS core OpenSSL::Crypto)
#
# makes the library `trireme_store` (alias Trireme::store) out of the folder's sources and, for developers, the test
# program `store_test`, whose cases ctest runs with the label `unit`.
# DEPENDS takes module names and ordinary targets alike; Trireme::torch brings its precompiled header along.
# For developers, `${name}_headers` compiles each header of the folder alone.
function(trireme_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;TESTS;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(trireme_${name} STATIC ${ARG_SOURCES})
  add_library(Trireme::${name} ALIAS trireme_${name})
  set_target_properties(trireme_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(trireme_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(trireme_${name} PUBLIC cxx_std_20)
  target_link_libraries(trireme_${name} PRIVATE $<BUILD_INTERFACE:trireme_options>)
  foreach(dependency IN LISTS ARG_DEPENDS)
    _trireme_link(trireme_${name} PUBLIC ${dependency})
  endforeach()
  foreach(dependency IN LISTS ARG_PRIVATE_DEPENDS)
    _trireme_link(trireme_${name} PRIVATE ${dependency})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY TRIREME_MODULES ${name})
  add_dependencies(trireme_products trireme_${name})
  if(TRIREME_DEVELOPER)
    _trireme_headers(${name} ${ARG_DEPENDS})
  endif()
  if(TRIREME_DEVELOPER AND ARG_TESTS)
    set(torch ${ARG_DEPENDS})
    list(FILTER torch INCLUDE REGEX "^Trireme::torch$")
    trireme_test(${name}_test SOURCES ${ARG_TESTS} DEPENDS ${name} ${torch} LABEL unit)
  endif()
endfunction()

# A GoogleTest program whose cases are found by ctest: trireme_test(name SOURCES … DEPENDS … LABEL unit [TIMEOUT 60])
function(trireme_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES CXX_CLANG_TIDY "")  # GoogleTest's macros are not ours to tidy
  target_link_libraries(${name} PRIVATE trireme_options GTest::gmock GTest::gtest_main)
  foreach(dependency IN LISTS ARG_DEPENDS)
    _trireme_link(${name} PRIVATE ${dependency})
  endforeach()
  include(GoogleTest)
  gtest_discover_tests(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT} DISCOVERY_TIMEOUT 30)
endfunction()

# Every header of the module is included by a file of its own, so that each must bring all it needs. Not part of the
# normal build: the test `headers_compile_alone` builds it.
function(_trireme_headers name)
  file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} *.h)
  list(FILTER headers EXCLUDE REGEX "/test_[^/]*$")
  set(sources)
  foreach(header ${headers})
    set(source ${CMAKE_CURRENT_BINARY_DIR}/headers/${header}.cc)
    configure_file(${PROJECT_SOURCE_DIR}/cmake/header_alone.cc.in ${source} @ONLY)
    list(APPEND sources ${source})
  endforeach()
  if(sources)
    add_library(${name}_headers OBJECT EXCLUDE_FROM_ALL ${sources})
    set_target_properties(${name}_headers PROPERTIES CXX_CLANG_TIDY "")
    target_link_libraries(${name}_headers PRIVATE trireme_${name} trireme_options)
    if(Trireme::torch IN_LIST ARGN)
      trireme_use_torch(${name}_headers PRIVATE)  # half a minute less a header; only a forgotten torch include slips by
    endif()
    add_dependencies(trireme_headers ${name}_headers)
  endif()
endfunction()

function(_trireme_link target scope dependency)
  if(dependency STREQUAL Trireme::torch)
    trireme_use_torch(${target} ${scope})
  elseif(TARGET trireme_${dependency})
    target_link_libraries(${target} ${scope} trireme_${dependency})
  else()
    target_link_libraries(${target} ${scope} ${dependency})
  endif()
endfunction()

# A libFuzzer program for what a module reads from outside, and a short run of it under ctest (label fuzz):
#   trireme_fuzz(store_fuzz MODULE store SOURCES fuzz/store_fuzz.cc CORPUS fuzz/corpus)
# TRIREME_FUZZ_SECONDS in the environment of ctest makes it longer (`make soak`).
function(trireme_fuzz name)
  cmake_parse_arguments(ARG "" "MODULE;CORPUS" "SOURCES" ${ARGN})
  target_compile_options(trireme_${ARG_MODULE} PRIVATE -fsanitize=fuzzer-no-link)
  add_executable(${name} ${ARG_SOURCES})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE trireme_options trireme_${ARG_MODULE})
  set(found ${CMAKE_CURRENT_BINARY_DIR}/${name}-found)
  file(MAKE_DIRECTORY ${found})
  add_test(NAME fuzz.${name} COMMAND sh -c
    "exec $<TARGET_FILE:${name}> -max_total_time=\${TRIREME_FUZZ_SECONDS:-20} -print_final_stats=1 ${found} ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_CORPUS}")
  set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz TIMEOUT 3600)
endfunction()
