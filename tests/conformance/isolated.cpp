// SPDX-License-Identifier: Apache-2.0
#include "isolated.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <sstream>

#include <meshtorch/base/error.h>

namespace meshtorch::conformance {
namespace {

[[noreturn]] void run_child(const std::function<std::vector<std::string>()>& body, int out,
                            unsigned seconds) {
  alarm(seconds);
  int status = 0;
  try {
    std::string all;
    for (const std::string& line : body()) all += line + "\n";
    for (std::size_t sent = 0; sent < all.size();) {
      const ssize_t written = write(out, all.data() + sent, all.size() - sent);
      if (written < 0) _exit(2);
      sent += static_cast<std::size_t>(written);
    }
  } catch (const std::exception& error) {
    std::cout << error.what() << "\n";
    status = 1;
  }
  std::cout << std::flush;
  _exit(status);  // no destructors: what they would end is the parent's
}

std::string read_all(int in) {
  std::string all;
  char buffer[4096];
  while (true) {
    const ssize_t got = read(in, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return all;
    all.append(buffer, static_cast<std::size_t>(got));
  }
}

}  // namespace

Isolated isolated_lines(const std::function<std::vector<std::string>()>& body, unsigned seconds) {
  int ends[2];
  if (pipe(ends) != 0) fail({"conformance", "pipe", std::strerror(errno), ""});
  std::cout << std::flush;
  const pid_t child = fork();
  if (child < 0) fail({"conformance", "fork", std::strerror(errno), ""});
  if (child == 0) {
    close(ends[0]);
    run_child(body, ends[1], seconds);
  }
  close(ends[1]);
  Isolated result;
  std::istringstream all(read_all(ends[0]));
  close(ends[0]);
  for (std::string line; std::getline(all, line);) result.lines.push_back(line);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) {
    result.problem = WTERMSIG(status) == SIGALRM ? text("took more than ", seconds, " s")
                                                 : text("crashed with signal ", WTERMSIG(status));
  } else if (WEXITSTATUS(status) != 0) {
    result.problem = "ended with an exception";
  }
  return result;
}

}  // namespace meshtorch::conformance
