// SPDX-License-Identifier: Apache-2.0
//
// A job of several processes of ./disagree, as a user starts one.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace meshtorch {

struct Outcome {
  int status = 0;  // as a shell has it
  double seconds = 0;
  std::vector<std::string> out, err;  // lines

  // What process `rank` said on its standard error: of `meshtorch launch`, whose tags are cut off.
  std::string err_of(int rank) const;
  std::string all() const;  // for messages of the test
};

struct JobOptions {
  int processes = 2;
  std::vector<std::string> arguments;  // of disagree
  double timeout = 4;                  // MESHTORCH_TIMEOUT
  bool launch = true;                  // by `meshtorch launch`; else by mpiexec alone
};

class Job {
 public:
  explicit Job(const JobOptions& options);
  ~Job();  // ends what is left
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // The program itself, not what watches over it; none where it does not run.
  std::optional<pid_t> process(int rank) const;
  // Of the program, alive.
  std::vector<pid_t> left_over() const;
  bool running();
  double seconds() const;  // since it was started

  // Waits for it. A job that takes longer than `limit` seconds is killed, its status is then -1.
  Outcome finish(double limit);

 private:
  std::filesystem::path folder_;
  std::string mark_;  // in the environment of its processes, and no others
  pid_t pid_ = 0;
  int status_ = 0;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace meshtorch
