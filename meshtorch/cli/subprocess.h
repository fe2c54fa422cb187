// SPDX-License-Identifier: Apache-2.0
//
// Processes that don't outlive the one that started them, and the few file descriptors they need.
#pragma once

#include <sys/types.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meshtorch {

// A file descriptor, closed when it goes.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

struct Pipe {
  Fd read, write;
};
Pipe make_pipe();  // closed on exec

// Writes all of it; false if no one reads any more.
bool write_all(int fd, std::string_view bytes);

// Blocks the signals for this process (not for those that `spawn` starts) and collects them.
class Signals {
 public:
  explicit Signals(std::initializer_list<int> signals);
  int fd() const { return fd_.get(); }  // readable when one is pending
  int take();                           // the next, 0 if none is pending

 private:
  Fd fd_;
};

struct Spawn {
  std::vector<std::string> command;  // the first is searched for in PATH
  // Become its standard streams; -1: this process's own.
  int in = -1;
  int out = -1;
  int err = -1;
  int death_signal = 0;  // what it gets when this process dies
};

// Starts it as the leader of a process group of its own. A command that cannot be executed says so
// on its standard error and exits with 127. Throws Error: no more processes.
pid_t spawn(const Spawn& what);

// Makes this process the parent of descendants whose parent has died.
void adopt_orphans();

void kill_children_except(pid_t spared);  // and doesn't wait for them

// Kills all descendants, those that moved to another group or session included, and waits for them.
void end_descendants();

// The path that execvp would take, none if there is no such program.
std::optional<std::string> find_program(const std::string& name);

// Of a status that waitpid gave: "exited with status 3", "was ended by signal 9 (Killed)".
std::string describe_status(int status);
std::string describe_signal(int signal);  // "signal 9 (Killed)"
int exit_code(int status);                // as a shell has it: 3, or 128 + the signal

}  // namespace meshtorch
