# trireme_find_cuda_headers(RESULT NVIDIA): the folder with cuda_runtime_api.h, as a cache variable. An installed toolkit
# (CUDAToolkit_ROOT, CUDA_HOME, CUDA_PATH, /usr/local/cuda) goes before the wheels' folder NVIDIA/cu*/include, which lacks
# crt/host_defines.h unless the wheel nvidia-cuda-crt is there too. A folder without that file is never taken.
function(trireme_find_cuda_headers result nvidia)
  file(GLOB wheels ${nvidia}/cu*)
  find_path(${result} crt/host_defines.h NO_DEFAULT_PATH PATH_SUFFIXES include targets/x86_64-linux/include
    DOC "Folder with cuda_runtime_api.h and crt/host_defines.h"
    PATHS ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda ${wheels})
  find_path(${result} crt/host_defines.h)  # a toolkit of the distribution
endfunction()
