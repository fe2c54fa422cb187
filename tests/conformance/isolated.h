// SPDX-License-Identifier: Apache-2.0
//
// A case runs in a process of its own: plain libtorch itself crashes on some calls (empty tensors in
// fused ops), and a crash must be that case's failure, not the end of the table.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace meshtorch::conformance {

struct Isolated {
  std::vector<std::string> lines;
  std::string problem;  // "crashed with signal 11"; empty where it came back
};

// Runs `body` in a child process and brings back the lines that it returns (none may hold a newline).
// What the child prints is printed, nothing else of it is kept. It is ended after `seconds`.
Isolated isolated_lines(const std::function<std::vector<std::string>()>& body, unsigned seconds);

}  // namespace meshtorch::conformance
