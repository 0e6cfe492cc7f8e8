# Everything that is installed: libraries and programs, not tests. Programs add themselves with add_dependencies.
add_custom_target(trireme_products)

# One folder is one module and one library target.
#
#   trireme_module(store
#     SOURCES tcp_server.cc tcp_client.cc
#     TESTS   tcp_test.cc
#     DEPENDS core OpenSSL::Crypto
#     PACKAGES libcrypto)
#
# makes the library `trireme_store` (alias Trireme::store) out of the folder's sources and, for developers, the test
# program `store_test`, whose cases ctest runs with the label `unit`.
# DEPENDS takes module names and ordinary targets; Trireme::torch adds the precompiled header. PACKAGES are pkg-config's
# names of the libraries that a program needs besides.
function(trireme_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;TESTS;DEPENDS;PRIVATE_DEPENDS;PACKAGES" ${ARGN})
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
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set_property(GLOBAL APPEND PROPERTY TRIREME_MODULES ${name})
  set_property(GLOBAL APPEND PROPERTY TRIREME_FOLDERS ${folder})
  set_property(GLOBAL PROPERTY TRIREME_PACKAGES_${name} ${ARG_PACKAGES})
  if(Trireme::torch IN_LIST ARG_DEPENDS)
    set_property(GLOBAL APPEND PROPERTY TRIREME_TORCH_MODULES ${name})
  endif()
  trireme_modules_below(below ${ARG_DEPENDS})
  set_property(GLOBAL PROPERTY TRIREME_MODULES_OF_${name} ${below} ${name})
  add_dependencies(trireme_products trireme_${name})
  if(TRIREME_DEVELOPER AND ARG_TESTS)
    set(torch ${ARG_DEPENDS})
    list(FILTER torch INCLUDE REGEX "^Trireme::torch$")
    trireme_test(${name}_test SOURCES ${ARG_TESTS} DEPENDS ${name} ${torch} LABEL unit)
  endif()
endfunction()

# The modules among these names, and all that they use.
function(trireme_modules_below result)
  set(all)
  foreach(name ${ARGN})
    get_property(modules GLOBAL PROPERTY TRIREME_MODULES_OF_${name})
    list(APPEND all ${modules})
  endforeach()
  list(REMOVE_DUPLICATES all)
  set(${result} ${all} PARENT_SCOPE)
endfunction()

# A GoogleTest program whose cases ctest finds: trireme_test(name SOURCES … DEPENDS … LABEL unit [TIMEOUT 120])
# ctest lists one entry per case. A program with libtorch takes 0.25 s to start and has one entry per file:
# data_test.loader.
function(trireme_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  # No clang-tidy: GoogleTest's macros fail its checks. A unity build in every preset: test files instantiate the same
  # templates, and a missing include matters in the modules only.
  set_target_properties(${name} PROPERTIES CXX_CLANG_TIDY "" UNITY_BUILD ON)
  target_link_libraries(${name} PRIVATE trireme_options GTest::gmock GTest::gtest_main)
  foreach(dependency IN LISTS ARG_DEPENDS)
    _trireme_link(${name} PRIVATE ${dependency} UNOPTIMIZED)
  endforeach()
  set(properties LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
  set(single)
  if(Trireme::torch IN_LIST ARG_DEPENDS)
    # Tests run in parallel; with one libtorch thread per core in each of them, the threads would wait for each other.
    list(APPEND properties ENVIRONMENT OMP_NUM_THREADS=1)
    if(TRIREME_SANITIZE)  # tests of how much memory grows: ASan keeps less of what is freed
      list(APPEND properties ENVIRONMENT_MODIFICATION
        "ASAN_OPTIONS=string_append::quarantine_size_mb=16:thread_local_quarantine_size_kb=64")
    endif()
    _trireme_file_entries(${name} single "${ARG_SOURCES}" "${properties}")
  else()
    # Halves the compile time. The tested module stays optimized. Tests with libtorch: trireme_use_torch().
    target_compile_options(${name} PRIVATE -O0)
  endif()
  include(GoogleTest)
  gtest_discover_tests(${name} ${single} PROPERTIES ${properties} DISCOVERY_TIMEOUT 30)
endfunction()

# Adds one ctest entry per file. `result` gets the filter with which gtest_discover_tests finds all other cases: those of
# files that call GTEST_SKIP, so that ctest shows the skip, and those added since CMake ran.
function(_trireme_file_entries name result sources properties)
  set(covered)
  foreach(source IN LISTS sources)
    file(STRINGS ${source} lines REGEX "^TEST(_F|_P)?\\(|GTEST_SKIP")
    if(lines AND NOT lines MATCHES "GTEST_SKIP")
      list(FILTER lines INCLUDE REGEX "^TEST")  # not what follows a semicolon of theirs
      list(TRANSFORM lines REPLACE "^[A-Z_]+\\(([A-Za-z0-9_]+).*" "\\1")
      list(REMOVE_DUPLICATES lines)
      list(TRANSFORM lines REPLACE "(.+)" "\\1.*:*/\\1.*")
      list(JOIN lines ":" filter)
      list(APPEND covered ${filter})
      get_filename_component(stem ${source} NAME_WE)
      string(REGEX REPLACE "_test$" "" stem ${stem})
      add_test(NAME ${name}.${stem} COMMAND ${name} --gtest_filter=${filter})
      set_tests_properties(${name}.${stem} PROPERTIES ${properties})
    endif()
  endforeach()
  if(covered)
    list(JOIN covered ":" covered)
    set(${result} TEST_FILTER "-${covered}" PARENT_SCOPE)
  endif()
endfunction()

function(_trireme_link target scope dependency)
  if(dependency STREQUAL Trireme::torch)
    trireme_use_torch(${target} ${scope} ${ARGN})
  elseif(TARGET trireme_${dependency})
    target_link_libraries(${target} ${scope} trireme_${dependency})
  else()
    target_link_libraries(${target} ${scope} ${dependency})
  endif()
endfunction()

# A libFuzzer program for input that modules read from outside, and a short run of it under ctest (label fuzz):
#   trireme_fuzz(store_fuzz MODULE store SOURCES fuzz/store_fuzz.cc CORPUS fuzz/corpus)
# TRIREME_FUZZ_SECONDS in ctest's environment sets the length (`make soak`); 20 s by default.
function(trireme_fuzz name)
  cmake_parse_arguments(ARG "" "CORPUS" "MODULE;SOURCES" ${ARGN})
  list(TRANSFORM ARG_MODULE PREPEND trireme_)
  foreach(module IN LISTS ARG_MODULE)
    target_compile_options(${module} PRIVATE -fsanitize=fuzzer-no-link)
  endforeach()
  add_executable(${name} ${ARG_SOURCES})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE trireme_options ${ARG_MODULE})
  set(found ${CMAKE_CURRENT_BINARY_DIR}/${name}-found)
  file(MAKE_DIRECTORY ${found})
  add_test(NAME fuzz.${name} COMMAND sh -c
    "exec $<TARGET_FILE:${name}> -max_total_time=\${TRIREME_FUZZ_SECONDS:-20} -print_final_stats=1 ${found} ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_CORPUS}")
  set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz TIMEOUT 3600)
endfunction()
