// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/subprocess.h>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

[[noreturn]] void fail_system(const std::string& call) {
  fail({.op = "launch", .where = call, .what = std::strerror(errno)});
}

// Between fork and exec: nothing that allocates.
[[noreturn]] void become(const Spawn& what, char* const* arguments, pid_t parent) {
  setpgid(0, 0);
  if (what.death_signal) prctl(PR_SET_PDEATHSIG, what.death_signal);
  if (getppid() != parent) _exit(127);  // it died before the line above
  const int streams[] = {what.in, what.out, what.err};
  for (int i = 0; i < 3; ++i)
    if (streams[i] >= 0) dup2(streams[i], i);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  execvp(arguments[0], arguments);
  const char* reason = std::strerror(errno);
  for (const char* part : {"[launch] ", static_cast<const char*>(arguments[0]), ": ", reason, "\n"})
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  _exit(127);
}

std::vector<pid_t> children() {
  const std::string self = std::to_string(getpid());
  std::ifstream list("/proc/" + self + "/task/" + self + "/children");
  std::vector<pid_t> result;
  for (pid_t child; list >> child;) result.push_back(child);
  return result;
}

bool executable(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

void Fd::reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail_system("pipe");
  return {Fd(ends[0]), Fd(ends[1])};
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) bytes.remove_prefix(written);
  }
  return true;
}

Signals::Signals(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : signals) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  fd_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) fail_system("signalfd");
}

int Signals::take() {
  signalfd_siginfo info;
  return read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

pid_t spawn(const Spawn& what) {
  std::vector<char*> arguments;
  for (const auto& argument : what.command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) fail_system("fork");
  if (child == 0) become(what, arguments.data(), parent);
  setpgid(child, child);  // here too: whoever comes first
  return child;
}

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

void kill_children_except(pid_t spared) {
  for (pid_t child : children())
    if (child != spared) kill(child, SIGKILL);
}

void end_descendants() {
  // The children of a killed one become ours: until none is left.
  for (auto living = children(); !living.empty(); living = children()) {
    kill_children_except(0);
    while (waitpid(-1, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

std::optional<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos)
    return executable(name) ? std::optional(name) : std::nullopt;
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (executable(candidate)) return candidate;
  }
  return std::nullopt;
}

std::string describe_signal(int signal) {
  return text("signal ", signal, " (", strsignal(signal), ")");
}

std::string describe_status(int status) {
  if (WIFSIGNALED(status)) return "was ended by " + describe_signal(WTERMSIG(status));
  return text("exited with status ", WEXITSTATUS(status));
}

int exit_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace meshtorch
