# Defines libtorch as the imported target Trireme::torch. The wheel's own find_package(Torch) requires a CUDA toolkit, even
# on a machine without a GPU.
#
# TRIREME_TORCH_DIR (variable or environment) names an unpacked libtorch zip, a Python's torch folder, or the folder that
# contains it. The default is the one that setup/setup.sh has fetched.
set(TRIREME_TORCH_DIR "$ENV{TRIREME_TORCH_DIR}" CACHE PATH "Your own libtorch; empty: the one that setup.sh has fetched")

function(_trireme_torch_root result)
  set(dir ${TRIREME_TORCH_DIR})
  if(NOT dir AND TRIREME_TORCH_DEFAULT_DIR)
    set(dir ${TRIREME_TORCH_DEFAULT_DIR})
  elseif(NOT dir)
    set(setup ${PROJECT_SOURCE_DIR}/setup)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${setup}/versions.lock)
    execute_process(COMMAND ${setup}/setup.sh where libtorch OUTPUT_VARIABLE dir OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  foreach(root ${dir} ${dir}/torch ${dir}/libtorch)
    if(EXISTS ${root}/lib/libtorch_cpu.so)
      set(${result} ${root} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "No libtorch in '${dir}' (looked for lib/libtorch_cpu.so). Run setup/setup.sh build, or set "
    "TRIREME_TORCH_DIR to your own libtorch, or build without it: -DTRIREME_WITH_TORCH=OFF")
endfunction()

function(_trireme_torch_version root result)
  file(STRINGS ${root}/include/torch/headeronly/version.h lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  list(TRANSFORM lines REPLACE ".* " "")
  list(JOIN lines "." version)
  set(${result} ${version} PARENT_SCOPE)
endfunction()

function(_trireme_torch_target root)
  set(include ${root}/include ${root}/include/torch/csrc/api/include)
  add_library(trireme_c10 SHARED IMPORTED GLOBAL)
  set_target_properties(trireme_c10 PROPERTIES IMPORTED_LOCATION ${root}/lib/libc10.so)
  add_library(Trireme::torch SHARED IMPORTED GLOBAL)
  set_target_properties(Trireme::torch PROPERTIES IMPORTED_LOCATION ${root}/lib/libtorch_cpu.so)
  target_include_directories(Trireme::torch SYSTEM INTERFACE ${include})
  # libtorch's include folder has its own fmt, which is newer than the system's library.
  target_compile_definitions(Trireme::torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO FMT_HEADER_ONLY)
  target_link_libraries(Trireme::torch INTERFACE trireme_c10)
  target_link_options(Trireme::torch INTERFACE LINKER:--no-as-needed)
  # A wheel has the CUDA run time, which libtorch_cpu needs to start, in a folder beside torch.
  file(GLOB cuda ${root}/../nvidia/cu*/lib)
  foreach(dir ${cuda})
    target_link_options(Trireme::torch INTERFACE LINKER:-rpath,${dir})
  endforeach()
endfunction()

# Links the target with libtorch. <torch/torch.h> takes 45 s to compile; it is compiled once, into a header that all
# targets share. The compiler takes that header only from code compiled with equal options, hence -fPIC everywhere.
#
# GCC spends another 7 s on that header in every file that uses it (templates are instantiated at the end of a file), so
# unity builds put up to 16 files of a target into one. The sanitizers' builds always do.
function(trireme_use_torch target scope)
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
  if(target STREQUAL trireme_torch_pch)
    target_precompile_headers(${target} PRIVATE <torch/torch.h>)
  else()
    target_precompile_headers(${target} REUSE_FROM trireme_torch_pch)
  endif()
endfunction()

function(_trireme_torch_precompiled_header)
  set(source ${PROJECT_BINARY_DIR}/torch_pch.cc)
  file(WRITE ${source}.new "// Carries the precompiled header.\n")
  configure_file(${source}.new ${source} COPYONLY)
  add_library(trireme_torch_pch OBJECT ${source})
  set_target_properties(trireme_torch_pch PROPERTIES CXX_CLANG_TIDY "")
  target_link_libraries(trireme_torch_pch PRIVATE trireme_options)
  trireme_use_torch(trireme_torch_pch PRIVATE)
endfunction()

if(NOT TARGET Trireme::torch)
  _trireme_torch_root(TRIREME_TORCH_ROOT)
  _trireme_torch_version(${TRIREME_TORCH_ROOT} TRIREME_TORCH_VERSION)
  message(STATUS "libtorch ${TRIREME_TORCH_VERSION}: ${TRIREME_TORCH_ROOT}")
  _trireme_torch_target(${TRIREME_TORCH_ROOT})
endif()
if(TARGET trireme_options)  # not defined in an installed copy
  _trireme_torch_precompiled_header()
endif()
