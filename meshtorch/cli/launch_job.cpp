// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/launch_job.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <list>
#include <optional>

#include <meshtorch/base/error.h>
#include <meshtorch/cli/launch_channel.h>
#include <meshtorch/cli/line_tagger.h>
#include <meshtorch/cli/subprocess.h>

namespace meshtorch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::milliseconds(1200);  // more than a helper's grace

struct Stream {
  Fd fd;
  LineTagger tagger;
  int target;      // STDOUT_FILENO or STDERR_FILENO
  bool of_a_rank;  // else mpirun's own words
};

struct Rank {
  LaunchChannel channel;
  int number = -1;  // -1: it has not said
  bool ended = false;
};

class Job {
 public:
  Job() : signals_({SIGCHLD, SIGINT, SIGTERM, SIGHUP}) {
    std::signal(SIGPIPE, SIG_IGN);
    adopt_orphans();
  }

  int run(std::vector<std::string> command, int processes,
          const std::vector<std::string>& program) {
    processes_ = processes;
    start(std::move(command), program);
    while (mpirun_ || !streams_.empty() || !ranks_.empty()) {
      wait_and_serve();
      if (deadline_ && Clock::now() >= *deadline_) insist();
    }
    return tell_end();
  }

 private:
  void start(std::vector<std::string> command, const std::vector<std::string>& program) {
    const auto self = std::filesystem::read_symlink("/proc/self/exe").string();
    command.insert(command.end(), {self, "launch-rank", listener_.address(), "--"});
    command.insert(command.end(), program.begin(), program.end());
    const Fd out = add_stream("[mpirun] ", STDOUT_FILENO, false);
    const Fd err = add_stream("[mpirun] ", STDERR_FILENO, false);
    mpirun_ = spawn({.command = command,
                     .in = null_.get(),
                     .out = out.get(),
                     .err = err.get(),
                     .death_signal = SIGTERM});
  }

  // The end to write to.
  Fd add_stream(std::string tag, int target, bool of_a_rank) {
    Pipe pipe = make_pipe();
    streams_.push_back({std::move(pipe.read), LineTagger(std::move(tag)), target, of_a_rank});
    return std::move(pipe.write);
  }

  void wait_and_serve() {
    std::vector<pollfd> polled = {{signals_.fd(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
    for (const auto& stream : streams_) polled.push_back({stream.fd.get(), POLLIN, 0});
    for (const auto& rank : ranks_) polled.push_back({rank.channel.fd(), POLLIN, 0});
    poll(polled.data(), polled.size(), deadline_ ? 100 : -1);
    auto next = polled.begin() + 2;
    // What was said before an end is passed on before the end is acted on.
    std::erase_if(streams_, [&](Stream& stream) { return (next++)->revents && !pass_on(stream); });
    std::erase_if(ranks_, [&](Rank& rank) { return (next++)->revents && !serve(rank); });
    if (polled[1].revents) accept();
    if (polled[0].revents) on_signals();
  }

  // False: the stream has ended.
  bool pass_on(Stream& stream) {
    char bytes[1 << 16];
    const ssize_t got = read(stream.fd.get(), bytes, sizeof bytes);
    const bool open = got > 0;
    const auto lines =
        open ? stream.tagger.feed({bytes, std::size_t(got)}) : stream.tagger.finish();
    // When the reason is known, mpirun only laments that the job ends.
    if (!stream.of_a_rank && (failed_ || signal_)) return open;
    if (!write_all(stream.target, lines) && !ending_) {
      reader_gone_ = true;
      end_job();
    }
    return open;
  }

  void accept() {
    auto channel = listener_.accept();
    if (!channel) return;
    if (ending_) return channel->end();
    ranks_.push_back({std::move(*channel)});
  }

  // False: the rank's helper has ended.
  bool serve(Rank& rank) {
    const auto message = rank.channel.receive();
    if (!message) {
      if (rank.ended || ending_) return false;
      lost_ = rank.number;
      end_job();
      return false;
    }
    if (message->kind == LaunchMessage::kHello) start(rank, message->value);
    if (message->kind == LaunchMessage::kExit) on_exit(rank, *message);
    return true;
  }

  void start(Rank& rank, int number) {
    rank.number = number;
    ++started_;
    const std::string tag = text("[", number, "] ");
    const Fd out = add_stream(tag, STDOUT_FILENO, true);
    const Fd err = add_stream(tag, STDERR_FILENO, true);
    const bool reads = number == 0 && !isatty(STDIN_FILENO);
    rank.channel.send({LaunchMessage::kStart},
                      {reads ? STDIN_FILENO : null_.get(), out.get(), err.get()});
  }

  void on_exit(Rank& rank, const LaunchMessage& exit) {
    rank.ended = true;
    if (exit.value == 0 || exit.asked || failed_) return;
    failed_ = {rank.number, exit.value};
    end_job();
  }

  void on_signals() {
    while (const int signal = signals_.take()) {
      if (signal == SIGCHLD)
        reap();
      else
        forward(signal);
    }
  }

  void reap() {
    int status = 0;
    for (pid_t child; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (child != mpirun_) continue;
      mpirun_ = 0;
      mpirun_status_ = status;
      if (!deadline_) deadline_ = Clock::now() + kPatience;
    }
  }

  // Not all have started, or it is the second: then there is nothing to wait for.
  void forward(int signal) {
    if (signal_ || started_ < processes_) end_job();
    signal_ = signal;
    for (auto& rank : ranks_) rank.channel.send({LaunchMessage::kSignal, signal});
  }

  void end_job() {
    if (ending_) return;
    ending_ = true;
    deadline_ = Clock::now() + kPatience;
    for (auto& rank : ranks_) rank.channel.end();
    if (started_ < processes_ && mpirun_) kill(mpirun_, SIGTERM);
  }

  // Whoever should have ended has not, for example the orphans of a helper that was killed. mpirun
  // comes later: told twice, that of Open MPI crashes.
  void insist() {
    deadline_ = Clock::now() + kPatience;
    switch (insisted_++) {
      case 0:
        return kill_children_except(mpirun_);
      case 1:
        if (mpirun_) kill(mpirun_, SIGTERM);
        return;
      default:
        end_descendants();
        if (mpirun_) mpirun_status_ = SIGKILL;
        mpirun_ = 0;
    }
  }

  int tell_end() {
    end_descendants();
    if (failed_) return tell(text("rank ", failed_->first), failed_->second);
    if (reader_gone_) return tell("output", "has no reader any more", 128 + SIGPIPE);
    if (signal_ && ending_) return tell(describe_signal(signal_), "was sent", 128 + signal_);
    if (lost_) return tell_lost();
    if (mpirun_status_ != 0) return tell("mpirun", mpirun_status_);
    return 0;
  }

  // MPICH's mpiexec kills the helpers after an MPI_Abort, and knows its code.
  int tell_lost() const {
    const bool known = mpirun_status_ != 0 && insisted_ < 2;
    return tell(text("rank ", *lost_),
                "was killed by mpirun or from outside; mpirun " + describe_status(mpirun_status_),
                exit_code(known ? mpirun_status_ : SIGKILL));
  }

  static int tell(const std::string& who, int status) {
    return tell(who, describe_status(status), exit_code(status));
  }
  static int tell(const std::string& who, const std::string& what, int status) {
    std::cerr << format({.op = "launch",
                         .where = who,
                         .what = what,
                         .remedy = "all processes of the job were ended"})
              << std::endl;
    return status;
  }

  Signals signals_;
  LaunchListener listener_;
  Fd null_{open("/dev/null", O_RDWR | O_CLOEXEC)};
  std::list<Stream> streams_;
  std::list<Rank> ranks_;
  int processes_ = 0;
  int started_ = 0;
  pid_t mpirun_ = 0;  // 0: it has ended
  int mpirun_status_ = 0;
  std::optional<std::pair<int, int>> failed_;  // the first: its rank and status
  std::optional<int> lost_;                    // the first whose helper ended without a word
  int signal_ = 0;                             // passed on
  bool reader_gone_ = false;
  bool ending_ = false;
  int insisted_ = 0;  // times
  std::optional<Clock::time_point> deadline_;
};

}  // namespace

int run_job(std::vector<std::string> mpiexec, int processes,
            const std::vector<std::string>& program) {
  return Job().run(std::move(mpiexec), processes, program);
}

}  // namespace meshtorch
