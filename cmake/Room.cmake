# SPDX-License-Identifier: Apache-2.0
#
# meshtorch_room(name [TORCH] [DEPENDS room...] [WITHOUT file...])
#
# One library per room from all its sources (but those WITHOUT), and one test program from its
# *_test.cpp files. Rooms that know torch share one precompiled header.

function(meshtorch_room name)
  cmake_parse_arguments(ROOM "TORCH" "" "DEPENDS;WITHOUT" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  list(TRANSFORM ROOM_WITHOUT PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/${name}/)
  list(REMOVE_ITEM sources ${ROOM_WITHOUT} "")
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  set(mains ${sources})
  list(FILTER mains INCLUDE REGEX "/main\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "(_test|/main)\\.cpp$")
  list(TRANSFORM ROOM_DEPENDS PREPEND meshtorch_)

  if(sources)
    add_library(meshtorch_${name} STATIC ${sources})
    set(scope PUBLIC)
    target_link_libraries(meshtorch_${name} PRIVATE $<BUILD_INTERFACE:meshtorch_warnings>)
    if(ROOM_TORCH)
      meshtorch_precompile(meshtorch_${name})
    endif()
  else()
    add_library(meshtorch_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(meshtorch_${name} ${scope} meshtorch_options ${ROOM_DEPENDS})
  if(ROOM_TORCH)
    target_link_libraries(meshtorch_${name} ${scope} Libtorch::Libtorch nlohmann_json::nlohmann_json)
  endif()
  add_library(meshtorch::${name} ALIAS meshtorch_${name})

  if(mains)
    add_executable(meshtorch_${name}_main ${mains})
    target_link_libraries(meshtorch_${name}_main PRIVATE meshtorch_${name} meshtorch_warnings CLI11::CLI11)
    set_target_properties(meshtorch_${name}_main PROPERTIES OUTPUT_NAME meshtorch
      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
    meshtorch_precompile(meshtorch_${name}_main)
  endif()

  if(tests AND MESHTORCH_TESTS)
    set(torch "")
    if(ROOM_TORCH)
      set(torch TORCH)
    endif()
    meshtorch_test(${name}_test SOURCES ${tests} LINK meshtorch_${name} ${torch})
  endif()
endfunction()

# meshtorch_test(name SOURCES file... LINK target... [TORCH])
function(meshtorch_test name)
  cmake_parse_arguments(TEST "TORCH" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${TEST_SOURCES})
  target_link_libraries(${name} PRIVATE ${TEST_LINK} meshtorch_warnings GTest::gtest GTest::gmock
    GTest::gtest_main)
  if(TEST_TORCH)
    meshtorch_precompile(${name})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  # Small tensors: threads would only wait for each other.
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "OMP_NUM_THREADS=1")
endfunction()

# meshtorch_mpi_test(program processes... [FILTER pattern])
#
# Runs a test program once more under mpirun, for each number of processes. FILTER is GoogleTest's.
function(meshtorch_mpi_test program)
  cmake_parse_arguments(TEST "" "FILTER" "" ${ARGN})
  if(NOT MPI_CXX_FOUND)
    return()
  endif()
  if(NOT TEST_FILTER)
    set(TEST_FILTER "*")
  endif()
  foreach(processes ${TEST_UNPARSED_ARGUMENTS})
    set(name ${program}_np${processes})
    add_test(NAME ${name} COMMAND meshtorch_cli_main launch -n ${processes} --
      ${PROJECT_SOURCE_DIR}/tests/support/rank ${name} $<TARGET_FILE:${program}>
      --gtest_filter=${TEST_FILTER})
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "OMP_NUM_THREADS=1;MESHTORCH_TIMEOUT=60"
      PROCESSORS ${processes} TIMEOUT 600)
  endforeach()
endfunction()

# The one precompiled header of torch: built once, reused by every target.
function(meshtorch_precompile target)
  if(NOT TARGET meshtorch_torch_pch)
    file(WRITE ${PROJECT_BINARY_DIR}/torch_pch.cpp "")
    add_library(meshtorch_torch_pch OBJECT ${PROJECT_BINARY_DIR}/torch_pch.cpp)
    target_link_libraries(meshtorch_torch_pch PRIVATE Libtorch::Libtorch meshtorch_warnings)
    target_precompile_headers(meshtorch_torch_pch PRIVATE <torch/torch.h> <torch/library.h>)
  endif()
  target_link_libraries(${target} PRIVATE Libtorch::Libtorch)
  target_precompile_headers(${target} REUSE_FROM meshtorch_torch_pch)
endfunction()
