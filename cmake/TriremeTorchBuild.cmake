# libtorch for the build of Trireme itself: Trireme::torch, its precompiled header, and its place below the prefix.
#
# TRIREME_TORCH_DIR (variable or environment) names an unpacked libtorch zip, a Python's torch folder, or the folder that
# contains it. The default is the one that setup/setup.sh has fetched.
include(TriremeTorch)
set(TRIREME_TORCH_DIR "$ENV{TRIREME_TORCH_DIR}" CACHE PATH "Your own libtorch; empty: the one that setup.sh has fetched")

function(_trireme_torch_for_build result)
  set(dir ${TRIREME_TORCH_DIR})
  if(NOT dir)
    set(setup ${PROJECT_SOURCE_DIR}/setup)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${setup}/versions.lock)
    execute_process(COMMAND ${setup}/setup.sh where libtorch OUTPUT_VARIABLE dir OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  trireme_torch_root(root "${dir}")
  if(NOT root)
    message(FATAL_ERROR "No libtorch in '${dir}' (looked for lib/libtorch_cpu.so). Run setup/setup.sh build, or set "
      "TRIREME_TORCH_DIR to your own libtorch, or build without it: -DTRIREME_WITH_TORCH=OFF")
  endif()
  set(${result} ${root} PARENT_SCOPE)
endfunction()

# Copies libtorch, with its headers, for programs that are compiled against an installed Trireme.
function(_trireme_install_torch root)
  set(without PATTERN "libtorch_python*" EXCLUDE PATTERN "libshm*" EXCLUDE)
  file(GLOB cudnn ${root}/../nvidia/cudnn/lib/* ${root}/lib/libcudnn*)
  if(NOT cudnn)  # libtorch's CUDA part cannot be loaded then
    list(APPEND without PATTERN "libtorch_cuda*" EXCLUDE PATTERN "libtorch_nvshmem*" EXCLUDE)
  endif()
  trireme_install_libraries(${root}/lib torch/lib ${without})
  install(DIRECTORY ${root}/include DESTINATION ${TRIREME_LIBRARY_DIR}/torch)
  file(GLOB folders RELATIVE ${root}/.. ${root}/../nvidia/*/lib)  # where libtorch looks for them, seen from itself
  foreach(folder ${folders})
    trireme_install_libraries(${root}/../${folder} ${folder})
  endforeach()
endfunction()

# Links the target with libtorch. <torch/torch.h> takes 45 s to compile; it is compiled once, into a header that all
# targets share. The compiler takes that header only from code compiled with equal options, hence -fPIC everywhere.
#
# GCC spends another 7 s on that header in every file that uses it (templates are instantiated at the end of a file), so
# unity builds put up to 16 files of a target into one. The sanitizers' builds always do.
#
#   trireme_use_torch(target PRIVATE [UNOPTIMIZED])
#
# UNOPTIMIZED is for tests: a release build compiles them with -O0 and a precompiled header of their own, in 40 % of the
# time. The tested modules stay optimized.
function(trireme_use_torch target scope)
  set(header trireme_torch_pch)
  if("UNOPTIMIZED" IN_LIST ARGN AND TARGET trireme_torch_test_pch)
    set(header trireme_torch_test_pch)
    target_compile_options(${target} PRIVATE -O0)
  endif()
  target_link_libraries(${target} ${scope} Trireme::torch)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE 16)
  if(TRIREME_SANITIZE)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON)
    get_target_property(tidy ${target} CXX_CLANG_TIDY)
    if(tidy)  # a unity build includes .cc files, and torch numbers its devices with signed char
      set_target_properties(${target} PROPERTIES
        CXX_CLANG_TIDY "${tidy};--checks=-bugprone-suspicious-include,-bugprone-signed-char-misuse")
    endif()
  endif()
  # libtorch is compiled with NDEBUG: without it, its headers would check members that the library does not set.
  target_compile_definitions(${target} PRIVATE $<$<NOT:$<CONFIG:Release>>:NDEBUG>)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # the latter for ccache
  get_target_property(visibility ${target} CXX_VISIBILITY_PRESET)
  if(target STREQUAL header)
    target_precompile_headers(${target} PRIVATE <torch/torch.h>)
  elseif(NOT visibility OR CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # clang counts it among the options
    target_precompile_headers(${target} REUSE_FROM ${header})
  endif()
endfunction()

function(_trireme_torch_precompiled_header target)
  set(source ${PROJECT_BINARY_DIR}/torch_pch.cc)
  file(WRITE ${source}.new "// Carries the precompiled header.\n")
  configure_file(${source}.new ${source} COPYONLY)
  add_library(${target} OBJECT ${source})
  set_target_properties(${target} PROPERTIES CXX_CLANG_TIDY "")
  target_link_libraries(${target} PRIVATE trireme_options)
  trireme_use_torch(${target} PRIVATE ${ARGN})
endfunction()

_trireme_torch_for_build(TRIREME_TORCH_ROOT)
trireme_torch_version(TRIREME_TORCH_VERSION ${TRIREME_TORCH_ROOT})
message(STATUS "libtorch ${TRIREME_TORCH_VERSION}: ${TRIREME_TORCH_ROOT}")
trireme_add_torch(${TRIREME_TORCH_ROOT})
trireme_installs_library(TRIREME_INSTALLS_TORCH "${TRIREME_TORCH_DIR}")
if(TRIREME_INSTALLS_TORCH)
  _trireme_install_torch(${TRIREME_TORCH_ROOT})
endif()
_trireme_torch_precompiled_header(trireme_torch_pch)
if(TRIREME_DEVELOPER AND CMAKE_BUILD_TYPE STREQUAL Release AND NOT TRIREME_SANITIZE)
  _trireme_torch_precompiled_header(trireme_torch_test_pch UNOPTIMIZED)
endif()
