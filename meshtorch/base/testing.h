// SPDX-License-Identifier: Apache-2.0
//
// For tests only.
#pragma once

#include <string>

#include <meshtorch/base/error.h>

namespace meshtorch {

// The message of the Error that `call` throws.
template <class Call>
std::string message(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "did not throw";
}

}  // namespace meshtorch
