// SPDX-License-Identifier: Apache-2.0
//
// Real jobs, by every mpiexec that is here. This program is the launcher and the helper as well:
// its `main` below takes the place of GoogleTest's.
#include <meshtorch/cli/launch.h>

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <meshtorch/base/error.h>
#include <meshtorch/cli/launch_rank.h>
#include <meshtorch/cli/mpiexec.h>
#include <meshtorch/cli/subprocess.h>
#include <meshtorch/cli/testing.h>

namespace meshtorch {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::vector<std::string> lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> result;
  for (std::string line; std::getline(in, line);) result.push_back(line);
  return result;
}

int count(const std::string& text, const std::string& word) {
  int result = 0;
  for (auto at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++result;
  return result;
}

template <class Condition>
bool wait_until(Condition condition, double seconds = 10) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (!condition() && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return condition();
}

// Living processes whose command line contains `word`.
std::vector<pid_t> processes_with(const std::string& word) {
  std::vector<pid_t> result;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    std::string command = read_file(entry.path() / "cmdline");
    std::replace(command.begin(), command.end(), '\0', ' ');
    if (command.find(word) != command.npos) result.push_back(std::stoi(name));
  }
  return result;
}

struct Outcome {
  int status = 0;
  std::string out, err;
};

// A running launcher.
class Job {
 public:
  Job(const std::vector<std::string>& options, const std::string& script, int in = -1)
      : folder_(testing::TempDir() + "meshtorch_launch_" + std::to_string(getpid())) {
    fs::create_directories(folder_);
    const Fd out(open((folder_ / "out").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    const Fd err(open((folder_ / "err").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    const Fd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
    std::vector<std::string> command = {fs::read_symlink("/proc/self/exe"), "launch-test"};
    command.insert(command.end(), options.begin(), options.end());
    command.insert(command.end(), {"--", "sh", "-c", script});
    pid_ = spawn({.command = command,
                  .in = in < 0 ? null.get() : in,
                  .out = out.get(),
                  .err = err.get(),
                  .death_signal = SIGKILL});
  }
  ~Job() {
    if (pid_) finish(SIGKILL);
    fs::remove_all(folder_);
  }

  pid_t pid() const { return pid_; }
  std::string out() const { return read_file(folder_ / "out"); }
  bool wait_for(const std::string& word, int times) const {
    return wait_until([&] { return count(out(), word) == times; });
  }
  void signal(int signal) const { kill(pid_, signal); }

  Outcome finish(int with_signal = 0) {
    if (with_signal) signal(with_signal);
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return {exit_code(status), out(), read_file(folder_ / "err")};
  }

 private:
  fs::path folder_;
  pid_t pid_ = 0;
};

std::string mpiexec_of(MpiexecKind kind) {
  for (const char* name : {"mpiexec", "mpiexec.openmpi", "mpiexec.mpich", "mpiexec.hydra"})
    if (find_program(name) && find_mpiexec(name, "").kind == kind) return name;
  return "";
}

class Launch : public testing::TestWithParam<MpiexecKind> {
 protected:
  void SetUp() override {
    mpiexec_ = mpiexec_of(GetParam());
    if (mpiexec_.empty()) GTEST_SKIP() << "no mpiexec of this kind on this machine";
    unsetenv("OMP_NUM_THREADS");
  }

  std::vector<std::string> options(int processes, int threads = 0) const {
    return {std::to_string(processes), mpiexec_, std::to_string(threads)};
  }
  Outcome run(int processes, const std::string& script, int in = -1) const {
    return Job(options(processes), kRank + script, in).finish();
  }

  inline static const std::string kRank = "r=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; ";
  // Seconds of sleep that no other process sleeps; they mark the processes of this test.
  const std::string sleep_ = "sleep 3333." + std::to_string(getpid());
  std::string mpiexec_;
};

TEST_P(Launch, TagsLinesOnTheirStream) {
  const auto done = run(3, "echo a; echo b >&2; echo; printf 'no end'");
  EXPECT_EQ(done.status, 0);
  EXPECT_THAT(lines(done.out), UnorderedElementsAre("[0] a", "[0] ", "[0] no end", "[1] a", "[1] ",
                                                    "[1] no end", "[2] a", "[2] ", "[2] no end"));
  EXPECT_THAT(lines(done.err), UnorderedElementsAre("[0] b", "[1] b", "[2] b"));
}

TEST_P(Launch, LinesStayWhole) {
  const auto done = run(2, "head -c 300000 /dev/zero | tr '\\0' $r; echo; seq 20000");
  EXPECT_EQ(done.status, 0);
  const auto got = lines(done.out);
  EXPECT_EQ(got.size(), 2 * 20001u);
  for (const char* rank : {"0", "1"}) {
    const auto tag = "[" + std::string(rank) + "] ";
    EXPECT_EQ(std::count(got.begin(), got.end(), tag + std::string(300000, rank[0])), 1);
    EXPECT_EQ(std::count(got.begin(), got.end(), tag + "20000"), 1);
  }
}

TEST_P(Launch, OneProcess) {
  const auto done = run(1, "echo $r");
  EXPECT_EQ(done.status, 0);
  EXPECT_EQ(done.out, "[0] 0\n");
  EXPECT_EQ(done.err, "");
}

TEST_P(Launch, MoreProcessesThanCores) {
  const int processes = static_cast<int>(std::thread::hardware_concurrency()) + 2;
  EXPECT_EQ(count(run(processes, "echo here").out, "] here\n"), processes);
}

TEST_P(Launch, TheFirstFailureEndsAllAndIsTheResult) {
  Job job(options(3),
          kRank + "echo started; [ $r = 1 ] && { sleep 0.5; echo why >&2; exit 3; }; " + sleep_);
  ASSERT_TRUE(job.wait_for("started", 3));
  const auto before = Clock::now();
  const auto done = job.finish();
  EXPECT_LT(Clock::now() - before, std::chrono::milliseconds(500 + 2000));
  EXPECT_EQ(done.status, 3);
  EXPECT_EQ(done.err,
            "[1] why\n[launch] rank 1: exited with status 3; all processes of the job were "
            "ended\n");
  EXPECT_THAT(processes_with(sleep_), testing::IsEmpty());
}

TEST_P(Launch, OthersThatIgnoreTheEndAreKilled) {
  Job job(options(2), kRank + "trap '' TERM; echo started; [ $r = 0 ] && { sleep 0.5; exit 4; }; " +
                          sleep_ + "; " + sleep_);
  ASSERT_TRUE(job.wait_for("started", 2));
  const auto before = Clock::now();
  EXPECT_EQ(job.finish().status, 4);
  EXPECT_LT(Clock::now() - before, std::chrono::milliseconds(500 + 2000));
  EXPECT_THAT(processes_with(sleep_), testing::IsEmpty());
}

TEST_P(Launch, DeathByASignalIsItsResult) {
  const auto done = run(2, "[ $r = 1 ] && kill -KILL $$; " + sleep_);
  EXPECT_EQ(done.status, 128 + SIGKILL);
  EXPECT_EQ(done.err,
            "[launch] rank 1: was ended by signal 9 (Killed); all processes of the job were "
            "ended\n");
}

TEST_P(Launch, ForwardsSignals) {
  for (const auto& [signal, name] :
       {std::pair{SIGINT, "INT"}, {SIGTERM, "TERM"}, {SIGHUP, "HUP"}}) {
    Job job(options(2), text("trap 'echo got ", name, "; exit 0' ", name,
                             "; echo ready; while :; do sleep 0.02; done"));
    ASSERT_TRUE(job.wait_for("ready", 2)) << name;
    const auto done = job.finish(signal);
    EXPECT_EQ(done.status, 0) << name << done.err;
    EXPECT_EQ(count(done.out, text("got ", name)), 2) << done.out;
  }
}

TEST_P(Launch, ASignalThatEndsTheProgramIsTheResult) {
  Job job(options(2), "echo ready; exec " + sleep_);
  ASSERT_TRUE(job.wait_for("ready", 2));
  const auto done = job.finish(SIGTERM);
  EXPECT_EQ(done.status, 128 + SIGTERM);
  EXPECT_THAT(done.err, HasSubstr("was ended by signal 15 (Terminated)"));
}

TEST_P(Launch, ASecondSignalEndsTheJob) {
  Job job(options(2), "trap 'echo got' INT; echo ready; while :; do sleep 0.02; done");
  ASSERT_TRUE(job.wait_for("ready", 2));
  job.signal(SIGINT);
  ASSERT_TRUE(job.wait_for("got", 2));
  const auto done = job.finish(SIGINT);
  EXPECT_EQ(done.status, 128 + SIGINT);
  EXPECT_THAT(done.err, HasSubstr("[launch] signal 2 (Interrupt): was sent"));
}

TEST_P(Launch, SetsThreads) {
  const std::string print = "echo $OMP_NUM_THREADS";
  cpu_set_t cores;
  ASSERT_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
  const int all = CPU_COUNT(&cores);
  EXPECT_EQ(run(1, print).out, text("[0] ", all, "\n"));
  EXPECT_EQ(count(run(2, print).out, text("] ", std::max(1, all / 2), "\n")), 2);
  setenv("OMP_NUM_THREADS", "5", 1);
  EXPECT_EQ(run(1, print).out, "[0] 5\n");
  EXPECT_EQ(Job(options(1, 7), print).finish().out, "[0] 7\n");
  unsetenv("OMP_NUM_THREADS");
}

TEST_P(Launch, PassesTheEnvironmentOn) {
  setenv("MESHTORCH_TEST_VARIABLE", "a b", 1);
  EXPECT_THAT(lines(run(2, "echo $MESHTORCH_TEST_VARIABLE").out),
              UnorderedElementsAre("[0] a b", "[1] a b"));
  unsetenv("MESHTORCH_TEST_VARIABLE");
}

TEST_P(Launch, StandardInputIsRankZerosAndNothingElseReadsIt) {
  Pipe pipe = make_pipe();
  write_all(pipe.write.get(), "one\ntwo\n");
  pipe.write.reset();
  EXPECT_THAT(lines(run(2, "read x; echo got $x", pipe.read.get()).out),
              UnorderedElementsAre("[0] got one", "[1] got"));
  char left[16];
  EXPECT_EQ(read(pipe.read.get(), left, sizeof left), 4);  // "two\n"
}

TEST_P(Launch, OutputWithoutAReaderEndsTheJob) {
  const std::string mpiexec = mpiexec_;
  Pipe pipe = make_pipe();
  const pid_t child = spawn({.command = {fs::read_symlink("/proc/self/exe"), "launch-test", "2",
                                         mpiexec, "0", "--", "sh", "-c", "yes & " + sleep_},
                             .out = pipe.write.get(),
                             .death_signal = SIGKILL});
  char some[64];
  EXPECT_GT(read(pipe.read.get(), some, sizeof some), 0);
  pipe.write.reset();
  pipe.read.reset();
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(exit_code(status), 128 + SIGPIPE);
  EXPECT_THAT(processes_with(sleep_), testing::IsEmpty());
}

// What a job of two leaves when `victim` of it is killed: every rank has a child of its own, one in
// a session of its own, and ignores requests.
template <class Victim>
void expect_no_orphans(Job& job, const std::string& sleep, Victim victim) {
  ASSERT_TRUE(job.wait_for("ready", 2));
  ASSERT_TRUE(wait_until([&] { return processes_with(sleep).size() >= 6; }));
  kill(victim(), SIGKILL);
  EXPECT_NE(job.finish().status, 0);
  EXPECT_TRUE(wait_until([&] { return processes_with(sleep).empty(); }, 3));
}

std::string stubborn(const std::string& sleep) {
  return "trap '' TERM INT HUP; " + sleep + " & setsid " + sleep + " & echo ready; " + sleep +
         "; " + sleep;
}

pid_t child_of(pid_t parent) {
  std::istringstream children(read_file(text("/proc/", parent, "/task/", parent, "/children")));
  pid_t child = 0;
  children >> child;
  return child;
}

TEST_P(Launch, LeavesNothingWhenTheLauncherIsKilled) {
  Job job(options(2), stubborn(sleep_));
  expect_no_orphans(job, sleep_, [&] { return job.pid(); });
}

TEST_P(Launch, LeavesNothingWhenMpirunIsKilled) {
  Job job(options(2), stubborn(sleep_));
  expect_no_orphans(job, sleep_, [&] { return child_of(job.pid()); });
}

TEST_P(Launch, LeavesNothingWhenAHelperIsKilled) {
  Job job(options(2), stubborn(sleep_));
  expect_no_orphans(job, sleep_, [&] {
    auto at = child_of(job.pid());
    while (fs::path(read_file(text("/proc/", at, "/cmdline")).c_str()) !=
           fs::read_symlink("/proc/self/exe"))
      at = child_of(at);
    return at;
  });
}

// A program of MPI, compiled by the compiler that comes with this mpiexec.
class LaunchMpi : public Launch {
 protected:
  void SetUp() override {
    Launch::SetUp();
    if (IsSkipped()) return;
    const auto compiler = std::string("mpicc") + mpiexec_.substr(std::string("mpiexec").size());
    if (!find_program(compiler)) GTEST_SKIP() << "no " << compiler << " on this machine";
    std::ofstream(program_ + ".c") << R"(
#include <mpi.h>
#include <stdio.h>
int main(int count, char** arguments) {
  int rank, size, sum;
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("of %d sum %d\n", size, sum);
  fflush(stdout);
  if (count > 1 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 5);
  MPI_Barrier(MPI_COMM_WORLD);
  return MPI_Finalize();
})";
    ASSERT_EQ(std::system((compiler + " " + program_ + ".c -o " + program_).c_str()), 0);
  }
  void TearDown() override {
    fs::remove(program_ + ".c");
    fs::remove(program_);
  }

  const std::string program_ = testing::TempDir() + "meshtorch_mpi_" + std::to_string(getpid());
};

TEST_P(LaunchMpi, IsOneWorld) {
  const auto done = run(3, "exec " + program_);
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(lines(done.out),
              UnorderedElementsAre("[0] of 3 sum 3", "[1] of 3 sum 3", "[2] of 3 sum 3"));
}

TEST_P(LaunchMpi, AnAbortIsTheResult) {
  const auto done = run(2, "exec " + program_ + " abort");
  EXPECT_EQ(done.status, 5);
  EXPECT_THAT(done.err, HasSubstr("[launch] "));
}

const auto kKinds = testing::Values(MpiexecKind::open_mpi, MpiexecKind::hydra);
const auto kName = [](const auto& kind) {
  return kind.param == MpiexecKind::open_mpi ? "OpenMpi" : "Hydra";
};
INSTANTIATE_TEST_SUITE_P(Mpiexec, Launch, kKinds, kName);
INSTANTIATE_TEST_SUITE_P(Mpiexec, LaunchMpi, kKinds, kName);

std::string complaint(const LaunchOptions& options) {
  try {
    launch(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "did not throw";
}

TEST(LaunchErrors, NameWhatIsWrong) {
  EXPECT_EQ(complaint({.processes = 0, .program = {"true"}}),
            "[launch] -n: got 0, expected at least 1 process; say `meshtorch launch -n 4 -- "
            "program arguments`");
  EXPECT_EQ(complaint({.processes = 2}),
            "[launch] program: there is none; say `meshtorch launch -n 4 -- program arguments`");
  EXPECT_EQ(complaint({.processes = 2, .program = {"no-such-program"}}),
            "[launch] no-such-program: there is no such program, or it may not be executed; check "
            "PATH and the file's permissions");
  EXPECT_THAT(complaint({.processes = 2, .program = {"/"}}), HasSubstr("[launch] /: there is no"));
  EXPECT_THAT(complaint({.processes = 2, .program = {"true"}, .threads = -1}),
              HasSubstr("[launch] --threads: got -1, expected at least 1"));
  EXPECT_THAT(complaint({.processes = 2, .program = {"true"}, .mpiexec = "no-such-mpiexec"}),
              HasSubstr("[launch] no-such-mpiexec: there is no such program"));
}

TEST(LaunchErrors, AHelperWithoutALauncherSaysSo) {
  try {
    run_rank("nowhere", {"true"});
    FAIL() << "did not throw";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("cannot reach the launcher"),
                                    HasSubstr("meshtorch launch is for one machine")));
  }
}

TEST(LaunchOptions, SplitAtTheFirstDashes) {
  std::vector<std::string> arguments = {"launch", "-n", "2", "--", "program", "--", "-x"};
  EXPECT_THAT(split_program(arguments), testing::ElementsAre("program", "--", "-x"));
  EXPECT_THAT(arguments, testing::ElementsAre("launch", "-n", "2"));
  EXPECT_THAT(split_program(arguments), testing::IsEmpty());
}

TEST(LaunchOptions, ThreadsAreAShareOfTheCores) {
  EXPECT_EQ(threads_of_process(8, 2), 4);
  EXPECT_EQ(threads_of_process(8, 3), 2);
  EXPECT_EQ(threads_of_process(2, 4), 1);
}

int launch_for_a_test(std::vector<std::string> arguments) {
  const auto program = split_program(arguments);
  if (arguments.at(0) == "launch-rank") return run_rank(arguments.at(1), program);
  return launch({.processes = std::stoi(arguments.at(1)),
                 .program = program,
                 .threads = std::stoi(arguments.at(3)),
                 .mpiexec = arguments.at(2)});
}

}  // namespace
}  // namespace meshtorch

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]).starts_with("launch-"))
    return meshtorch::launch_for_a_test({argv + 1, argv + argc});
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
