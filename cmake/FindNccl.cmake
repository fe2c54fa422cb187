# SPDX-License-Identifier: Apache-2.0
#
# Nccl::Nccl: NCCL, the CUDA runtime and the CUDA part of the libtorch that FindLibtorch found.
# Nothing is downloaded. Looked for in the NVIDIA wheels beside an installed torch package, the CUDA
# toolkit and the usual prefixes; headers also beside the torch that the benchmarks compare with.
#
# Nccl_HEADERS_FOUND where the headers are there and a library may be missing: enough to compile.

if(DEFINED ENV{XDG_CACHE_HOME})
  set(_cache $ENV{XDG_CACHE_HOME})
else()
  set(_cache $ENV{HOME}/.cache)
endif()
get_filename_component(_torch_lib ${Libtorch_CPU_LIBRARY} DIRECTORY)
find_library(Nccl_C10_CUDA_LIBRARY c10_cuda HINTS ${_torch_lib} NO_DEFAULT_PATH)
find_library(Nccl_TORCH_CUDA_LIBRARY torch_cuda HINTS ${_torch_lib} NO_DEFAULT_PATH)
find_package(CUDAToolkit QUIET)
# Wheels beside torch come first: the libraries that it loads itself.
file(GLOB _beside ${_torch_lib}/../../nvidia/nccl ${_torch_lib}/../../nvidia/cu*)
set(_peers ${_cache}/meshtorch/peers/lib/python3*/site-packages/nvidia)
file(GLOB _headers ${_peers}/nccl/include ${_peers}/cu[0-9]*/include)

find_path(Nccl_INCLUDE_DIR nccl.h PATH_SUFFIXES include
  HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} ${_beside} ${CUDAToolkit_INCLUDE_DIRS} PATHS ${_headers})
find_path(Nccl_CUDA_INCLUDE_DIR cuda_runtime_api.h PATH_SUFFIXES include
  HINTS ${_beside} ${CUDAToolkit_INCLUDE_DIRS} PATHS ${_headers})
# Wheels have the libraries by their full names only.
find_library(Nccl_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR PATH_SUFFIXES lib lib64
  HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} ${_beside} ${CUDAToolkit_LIBRARY_DIR})
find_library(Nccl_CUDART_LIBRARY NAMES cudart libcudart.so.13 libcudart.so.12 NAMES_PER_DIR
  PATH_SUFFIXES lib lib64 HINTS ${_beside} ${CUDAToolkit_LIBRARY_DIR})
mark_as_advanced(Nccl_C10_CUDA_LIBRARY Nccl_TORCH_CUDA_LIBRARY Nccl_INCLUDE_DIR
  Nccl_CUDA_INCLUDE_DIR Nccl_LIBRARY Nccl_CUDART_LIBRARY)

set(Nccl_HEADERS_FOUND FALSE)
if(Nccl_INCLUDE_DIR AND Nccl_CUDA_INCLUDE_DIR AND EXISTS ${Libtorch_INCLUDE_DIR}/c10/cuda/CUDAStream.h)
  file(STRINGS ${Nccl_INCLUDE_DIR}/nccl.h _numbers REGEX "define NCCL_(MAJOR|MINOR) ")
  string(REGEX REPLACE "[^0-9;]" "" _numbers "${_numbers}")
  string(REPLACE ";" "." Nccl_VERSION "${_numbers}")
  if(Nccl_VERSION VERSION_GREATER_EQUAL "${Nccl_FIND_VERSION}")
    set(Nccl_HEADERS_FOUND TRUE)
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Nccl
  REQUIRED_VARS Nccl_C10_CUDA_LIBRARY Nccl_TORCH_CUDA_LIBRARY Nccl_LIBRARY Nccl_CUDART_LIBRARY
    Nccl_HEADERS_FOUND
  VERSION_VAR Nccl_VERSION)

if(Nccl_HEADERS_FOUND AND NOT TARGET Nccl::Headers)
  add_library(Nccl::Headers INTERFACE IMPORTED)
  target_include_directories(Nccl::Headers SYSTEM INTERFACE
    ${Nccl_INCLUDE_DIR} ${Nccl_CUDA_INCLUDE_DIR})
endif()
if(Nccl_FOUND AND NOT TARGET Nccl::Nccl)
  add_library(Nccl::Nccl INTERFACE IMPORTED)
  # Nothing calls into torch_cuda by name: its ops register themselves when it is loaded.
  target_link_libraries(Nccl::Nccl INTERFACE Nccl::Headers ${Nccl_LIBRARY} ${Nccl_CUDART_LIBRARY}
    ${Nccl_C10_CUDA_LIBRARY}
    "-Wl,--push-state,--no-as-needed,${Nccl_TORCH_CUDA_LIBRARY},--pop-state")
endif()
