// SPDX-License-Identifier: Apache-2.0
#include "job.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include <meshtorch/base/error.h>
#include <meshtorch/cli/mpiexec.h>
#include <meshtorch/cli/subprocess.h>
#include <meshtorch/cli/testing.h>

namespace meshtorch {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> lines_of(const fs::path& path) {
  std::istringstream in(read_file(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

Fd open_to_write(const fs::path& path) {
  return Fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
}

std::string next_mark() {
  static int jobs = 0;
  return text("job ", getpid(), ".", ++jobs);
}

std::vector<std::string> command_of(const JobOptions& options) {
  std::vector<std::string> command;
  if (options.launch) {
    command = {MESHTORCH_EXECUTABLE, "launch", "-n", std::to_string(options.processes), "--"};
  } else {
    command = mpiexec_command(find_mpiexec("", MPIEXEC), options.processes, geteuid() == 0);
  }
  command.push_back(JOB_EXECUTABLE);
  command.insert(command.end(), options.arguments.begin(), options.arguments.end());
  return command;
}

// Of this job, alive, running the program: what watches over it has the same environment.
bool is_program(const fs::path& process, const std::string& mark) {
  std::error_code gone;
  const fs::path program = fs::read_symlink(process / "exe", gone);
  return !gone && program == fs::canonical(JOB_EXECUTABLE) &&
         read_file(process / "environ").find("MESHTORCH_TEST_JOB=" + mark + '\0') !=
             std::string::npos;
}

}  // namespace

std::string Outcome::err_of(int rank) const {
  const std::string tag = text("[", rank, "] ");
  std::string result;
  for (const std::string& line : err) {
    if (line.starts_with(tag)) result += line.substr(tag.size()) + "\n";
  }
  return result;
}

std::string Outcome::all() const {
  return text("status ", status, " after ", seconds, " s\n", join(out, "\n"), "\n",
              join(err, "\n"));
}

Job::Job(const JobOptions& options) : mark_(next_mark()), begin_(std::chrono::steady_clock::now()) {
  folder_ = fs::temp_directory_path() / ("meshtorch " + mark_);
  fs::create_directories(folder_);
  const Fd out = open_to_write(folder_ / "out"), err = open_to_write(folder_ / "err");
  const Fd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  setenv("MESHTORCH_TEST_JOB", mark_.c_str(), 1);
  setenv("MESHTORCH_TIMEOUT", std::to_string(options.timeout).c_str(), 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  pid_ = spawn({.command = command_of(options),
                .in = null.get(),
                .out = out.get(),
                .err = err.get(),
                .death_signal = SIGKILL});
}

Job::~Job() {
  if (running()) finish(0);
  fs::remove_all(folder_);
}

std::optional<pid_t> Job::process(int rank) const {
  const std::string ranks[] = {text("OMPI_COMM_WORLD_RANK=", rank), text("PMI_RANK=", rank)};
  for (const pid_t pid : left_over()) {
    std::istringstream environment(read_file(text("/proc/", pid, "/environ")));
    for (std::string entry; std::getline(environment, entry, '\0');) {
      if (entry == ranks[0] || entry == ranks[1]) return pid;
    }
  }
  return std::nullopt;
}

std::vector<pid_t> Job::left_over() const {
  std::vector<pid_t> result;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") == name.npos && is_program(entry.path(), mark_))
      result.push_back(std::stoi(name));
  }
  return result;
}

bool Job::running() {
  if (pid_ != 0 && waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = 0;
  return pid_ != 0;
}

double Job::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

Outcome Job::finish(double limit) {
  while (running() && seconds() < limit) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const double took = seconds();
  const bool late = running();
  if (late) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
    pid_ = 0;
    for (const pid_t pid : left_over()) kill(pid, SIGKILL);
  }
  return {.status = late ? -1 : exit_code(status_),
          .seconds = took,
          .out = lines_of(folder_ / "out"),
          .err = lines_of(folder_ / "err")};
}

}  // namespace meshtorch
