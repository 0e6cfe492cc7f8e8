# What every target of the project is compiled with.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Otherwise ccache does not cache files that use a precompiled header (torch's).
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

add_library(trireme_options INTERFACE)
target_compile_options(trireme_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(trireme_options INTERFACE -Wno-restrict)  # GCC bug 105651: false alarms on std::string
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # False alarms: on std::vector<bool> inside of torch::autograd::Function, and on functions that return a member.
  target_compile_options(trireme_options INTERFACE -Wno-array-bounds -Wno-stringop-overflow -Wno-dangling-reference)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_UNITY_BUILD)
  # A unity build includes the source files, and GCC takes them for headers.
  target_compile_options(trireme_options INTERFACE -Wno-subobject-linkage)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(trireme_options INTERFACE -Wthread-safety)  # core/thread_annotations.h
endif()
# Not in a release build: what a compiler warns of when it optimizes differs from one to the next, and what builds for
# us must build for everyone.
if(TRIREME_DEVELOPER AND NOT CMAKE_BUILD_TYPE STREQUAL Release)
  target_compile_options(trireme_options INTERFACE -Werror)
endif()
if(TRIREME_SANITIZE)
  # The vptr check opens a file descriptor; it gives a false alarm in a process that has none left.
  set(flags -fsanitize=${TRIREME_SANITIZE} -fno-sanitize=vptr -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_compile_options(trireme_options INTERFACE ${flags} -g1)
  target_link_options(trireme_options INTERFACE ${flags})
endif()
