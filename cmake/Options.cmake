# SPDX-License-Identifier: Apache-2.0
#
# Flags that every target of the project shares.

if(NOT CMAKE_BUILD_TYPE AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()

add_library(meshtorch_options INTERFACE)
target_include_directories(meshtorch_options INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
target_compile_features(meshtorch_options INTERFACE cxx_std_20)

# -Wrestrict: g++ 12 warns falsely on "literal" + std::string (GCC bug 105329).
add_library(meshtorch_warnings INTERFACE)
target_compile_options(meshtorch_warnings INTERFACE -Wall -Wextra -Wno-unknown-pragmas
  -Wno-missing-field-initializers -Wno-restrict -fpch-preprocess)

if(MESHTORCH_SANITIZE)
  # Instrumented, g++ 12 sees uninitialized values in <regex> that are none.
  add_compile_options(-fsanitize=${MESHTORCH_SANITIZE} -fno-omit-frame-pointer -Wno-maybe-uninitialized
    -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=${MESHTORCH_SANITIZE})
endif()
