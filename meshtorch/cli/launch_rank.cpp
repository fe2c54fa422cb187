// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/launch_rank.h>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>

#include <meshtorch/cli/launch_channel.h>
#include <meshtorch/cli/subprocess.h>

namespace meshtorch {
namespace {

using Clock = std::chrono::steady_clock;

// Between being asked to end and being killed. mpirun kills the helper a second after it asked.
constexpr auto kGrace = std::chrono::milliseconds(800);

int rank_of_environment() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
    if (const char* value = std::getenv(variable)) return std::atoi(value);
  return 0;
}

class RankHelper {
 public:
  RankHelper(LaunchChannel launcher, Signals& signals)
      : launcher_(std::move(launcher)), signals_(signals) {}

  // False: the job has ended before it began.
  bool start(const std::vector<std::string>& program) {
    launcher_.send({LaunchMessage::kHello, rank_of_environment()});
    if (!launcher_.receive()) return false;
    const auto streams = launcher_.take_fds();
    if (streams.size() != 3) return false;
    program_ = spawn({.command = program,
                      .in = streams[0].get(),
                      .out = streams[1].get(),
                      .err = streams[2].get(),
                      .death_signal = SIGKILL});
    return true;
  }

  void watch() {
    while (!ended_) {
      pollfd sources[] = {{signals_.fd(), POLLIN, 0}, {asked_ ? -1 : launcher_.fd(), POLLIN, 0}};
      poll(sources, 2, patience());
      if (sources[0].revents) on_signal();
      if (sources[1].revents) on_message();
      if (asked_ && Clock::now() >= deadline_) kill(-program_, SIGKILL);
    }
    end_descendants();
  }

 private:
  int patience() const {
    if (!asked_) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
    return std::max<int>(10, left.count());
  }

  void on_message() {
    const auto message = launcher_.receive();
    if (!message) return ask_to_end();
    if (message->kind == LaunchMessage::kSignal) kill(-program_, message->value);
  }

  void on_signal() {
    while (const int signal = signals_.take()) {
      if (signal != SIGCHLD) ask_to_end();
    }
    int status = 0;
    // Adopted orphans are among them.
    for (pid_t child; (child = waitpid(-1, &status, WNOHANG)) > 0;)
      if (child == program_) tell(status);
  }

  void tell(int status) {
    ended_ = true;
    launcher_.send({LaunchMessage::kExit, status, asked_});
  }

  void ask_to_end() {
    if (asked_) return;
    asked_ = true;
    deadline_ = Clock::now() + kGrace;
    kill(-program_, SIGTERM);
    kill(-program_, SIGCONT);
  }

  LaunchChannel launcher_;
  Signals& signals_;
  pid_t program_ = 0;
  bool ended_ = false;
  bool asked_ = false;
  Clock::time_point deadline_;
};

}  // namespace

int run_rank(const std::string& address, const std::vector<std::string>& program) {
  Signals signals({SIGCHLD, SIGINT, SIGTERM, SIGHUP});
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // when mpirun, or its helper, is killed
  adopt_orphans();
  RankHelper helper(connect_to_launcher(address), signals);
  if (helper.start(program)) helper.watch();
  return 0;
}

}  // namespace meshtorch
