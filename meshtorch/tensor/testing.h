// SPDX-License-Identifier: Apache-2.0
//
// For tests only.
#pragma once

#include <exception>
#include <string>

namespace meshtorch {

// What `f` throws, ours or libtorch's; empty where it throws nothing.
template <class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace meshtorch
