# SPDX-License-Identifier: Apache-2.0
#
# Libtorch::Libtorch: the CPU part of a libtorch. Looked for in Torch_DIR and CMAKE_PREFIX_PATH (a
# libtorch folder or an installed torch package), else where script/setup unpacked the pinned wheel.
# Torch's own CMake package is not used: for a CUDA build it demands the CUDA toolkit, and nothing
# here links a CUDA library.

if(DEFINED ENV{XDG_CACHE_HOME})
  set(_cache $ENV{XDG_CACHE_HOME})
else()
  set(_cache $ENV{HOME}/.cache)
endif()
set(_hints ${Torch_DIR}/../../.. ${Torch_ROOT} $ENV{Torch_DIR}/../../..
    ${_cache}/meshtorch/libtorch-2.15.0/torch)

find_path(Libtorch_INCLUDE_DIR ATen/ATen.h HINTS ${_hints} PATH_SUFFIXES include)
find_path(Libtorch_API_INCLUDE_DIR torch/torch.h HINTS ${_hints}
  PATH_SUFFIXES include/torch/csrc/api/include)
find_library(Libtorch_CPU_LIBRARY torch_cpu HINTS ${_hints} PATH_SUFFIXES lib)
find_library(Libtorch_C10_LIBRARY c10 HINTS ${_hints} PATH_SUFFIXES lib)

if(Libtorch_INCLUDE_DIR)
  # Since 2.9 the numbers are in torch/headeronly; before, in the API's own header.
  file(GLOB _version_header ${Libtorch_INCLUDE_DIR}/torch/headeronly/version.h)
  if(NOT _version_header)
    set(_version_header ${Libtorch_API_INCLUDE_DIR}/torch/version.h)
  endif()
  file(READ ${_version_header} _version)
  string(REGEX MATCH "define TORCH_VERSION_MAJOR ([0-9]+)" _ "${_version}")
  set(_major ${CMAKE_MATCH_1})
  string(REGEX MATCH "define TORCH_VERSION_MINOR ([0-9]+)" _ "${_version}")
  set(Libtorch_VERSION ${_major}.${CMAKE_MATCH_1})
  if(Libtorch_VERSION VERSION_LESS 2.13)
    message(FATAL_ERROR "[cmake] Libtorch: found ${Libtorch_VERSION} in ${Libtorch_INCLUDE_DIR}, need at "
      "least 2.13; run script/setup, or point CMAKE_PREFIX_PATH to a newer libtorch")
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch
  REQUIRED_VARS Libtorch_CPU_LIBRARY Libtorch_C10_LIBRARY Libtorch_INCLUDE_DIR Libtorch_API_INCLUDE_DIR
  VERSION_VAR Libtorch_VERSION
  REASON_FAILURE_MESSAGE "run script/setup, or point CMAKE_PREFIX_PATH to a libtorch")

if(Libtorch_FOUND AND NOT TARGET Libtorch::Libtorch)
  add_library(Libtorch::Libtorch INTERFACE IMPORTED)
  target_include_directories(Libtorch::Libtorch SYSTEM INTERFACE
    ${Libtorch_INCLUDE_DIR} ${Libtorch_API_INCLUDE_DIR})
  get_filename_component(_lib ${Libtorch_CPU_LIBRARY} DIRECTORY)
  find_package(Threads REQUIRED)
  # libgomp is the wheel's own: two OpenMP runtimes in one process would fight over the cores.
  find_library(Libtorch_GOMP_LIBRARY NAMES gomp libgomp.so.1 HINTS ${_lib} NO_DEFAULT_PATH)
  target_link_libraries(Libtorch::Libtorch INTERFACE ${Libtorch_CPU_LIBRARY} ${Libtorch_C10_LIBRARY}
    Threads::Threads)
  target_link_options(Libtorch::Libtorch INTERFACE -Wl,-rpath,${_lib}
    -Wl,--disable-new-dtags -Wl,--allow-shlib-undefined)
endif()
