// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/environment.h>

#include <sched.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

constexpr auto kOp = "launch";

class Reader {
 public:
  explicit Reader(const Getenv& get) : get_(get) {}

  bool has(const char* variable) const { return get_(variable) != nullptr; }
  std::string text_of(const char* variable) const {
    const char* value = get_(variable);
    return value ? value : "";
  }

  // Throws Error: not a number of at least `least`.
  std::optional<int> number(const char* variable, int least) const {
    if (!has(variable)) return std::nullopt;
    const std::string value = text_of(variable);
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < least)
      fail({.op = kOp,
            .where = variable,
            .what = text("got \"", value, "\", expected a number of at least ", least),
            .remedy = "unset it, or let the launcher set it"});
    return number;
  }

  // The pair of a size and a rank below it; a rank without its size, and the reverse, throw.
  std::optional<std::pair<int, int>> size_and_rank(const char* size, const char* rank) const {
    const auto processes = number(size, 1);
    const auto process = number(rank, 0);
    if (!processes && !process) return std::nullopt;
    if (!processes || !process)
      fail({.op = kOp,
            .where = process ? rank : size,
            .what = text("is set, ", process ? size : rank, " is not"),
            .remedy = "a launcher sets both; unset it"});
    if (*process >= *processes)
      fail({.op = kOp,
            .where = rank,
            .what = text("got ", *process, ", expected less than ", size, "=", *processes),
            .remedy = "unset both, or let the launcher set them"});
    return std::pair{*processes, *process};
  }

 private:
  const Getenv& get_;
};

LaunchEnvironment with_local(LaunchEnvironment result,
                             const std::optional<std::pair<int, int>>& local) {
  std::tie(result.local_processes, result.local_process) = local.value_or(std::pair{0, 0});
  return result;
}

std::optional<LaunchEnvironment> open_mpi(const Reader& read) {
  const auto world = read.size_and_rank("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK");
  if (!world) return std::nullopt;
  if (world->first > 1 && !read.has("PMIX_RANK"))
    fail({.op = kOp,
          .where = text("OMPI_COMM_WORLD_SIZE=", world->first),
          .what = "there is no PMIX_RANK, so no mpirun of Open MPI to join",
          .remedy = "start the program by mpirun, or unset OMPI_COMM_WORLD_*"});
  return with_local({ProcessManager::open_mpi, world->first, world->second},
                    read.size_and_rank("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"));
}

std::optional<LaunchEnvironment> hydra(const Reader& read) {
  const auto world = read.size_and_rank("PMI_SIZE", "PMI_RANK");
  if (!world) return std::nullopt;
  return with_local({ProcessManager::hydra, world->first, world->second},
                    read.size_and_rank("MPI_LOCALNRANKS", "MPI_LOCALRANKID"));
}

// The count of node `node` in Slurm's run-length text: "2(x3),1" is 2, 2, 2, 1.
int tasks_of_node(const std::string& counts, int node) {
  const char* at = counts.data();
  const char* end = at + counts.size();
  while (at < end) {
    int tasks = 0, nodes = 1;
    at = std::from_chars(at, end, tasks).ptr;
    if (end - at > 2 && at[0] == '(') at = std::from_chars(at + 2, end, nodes).ptr + 1;
    if (node < nodes) return tasks;
    node -= nodes;
    ++at;  // the comma
  }
  return 0;
}

// The step that srun made, whether MPI can join it or not.
std::optional<LaunchEnvironment> slurm_step(const Reader& read) {
  if (!read.has("SLURM_STEP_NUM_TASKS")) return std::nullopt;
  const auto world = read.size_and_rank("SLURM_STEP_NUM_TASKS", "SLURM_PROCID");
  LaunchEnvironment step{ProcessManager::slurm, world->first, world->second};
  step.local_processes = tasks_of_node(read.text_of("SLURM_STEP_TASKS_PER_NODE"),
                                       read.number("SLURM_NODEID", 0).value_or(0));
  step.local_process = step.local_processes ? read.number("SLURM_LOCALID", 0).value_or(0) : 0;
  return step;
}

// srun starts the helpers of an mpirun too, hence the order; MPI_LOCALNRANKS is Hydra's alone.
std::optional<LaunchEnvironment> managed(const Reader& read) {
  if (const auto found = open_mpi(read)) return found;
  const auto step = slurm_step(read);
  if (step && !read.has("MPI_LOCALNRANKS") && (read.has("PMI_RANK") || read.has("PMIX_RANK")))
    return step;
  return hydra(read);
}

[[noreturn]] void fail_torchrun(const std::pair<int, int>& world, const std::string& what) {
  fail({.op = kOp,
        .where = text("RANK=", world.second, ", WORLD_SIZE=", world.first),
        .what = what,
        .remedy = text("start it by `mpirun -n ", world.first, " program` or `meshtorch launch -n ",
                       world.first, " -- program`, or unset both")});
}

void check_torchrun(const Reader& read, const std::optional<LaunchEnvironment>& found) {
  if (read.number("WORLD_SIZE", 1).value_or(1) == 1) return;
  const auto world = read.size_and_rank("WORLD_SIZE", "RANK");
  if (!found)
    fail_torchrun(*world,
                  "a launcher that is no process manager of MPI set them (torchrun does): each "
                  "process would train alone");
  if (found->processes != world->first)
    fail_torchrun(*world, text("but ", name(found->manager), " started ", found->processes,
                               found->processes == 1 ? " process" : " processes"));
}

void check_slurm(const Reader& read) {
  const auto step = slurm_step(read);
  if (!step || step->processes == 1) return;
  fail({.op = kOp,
        .where = text("SLURM_PROCID=", step->process, ", SLURM_STEP_NUM_TASKS=", step->processes),
        .what = "srun started several tasks without a PMI: each would train alone",
        .remedy = text("use `srun --mpi=pmix -n ", step->processes,
                       " program` (--mpi=pmi2 for MPICH), or `mpirun` in the batch script")});
}

}  // namespace

std::string_view name(ProcessManager manager) {
  switch (manager) {
    case ProcessManager::open_mpi:
      return "mpirun of Open MPI";
    case ProcessManager::hydra:
      return "mpiexec of MPICH";
    case ProcessManager::slurm:
      return "srun of Slurm";
    default:
      return "no process manager";
  }
}

LaunchEnvironment read_environment(const Getenv& get) {
  const Reader read(get);
  const auto found = managed(read);
  check_torchrun(read, found);
  if (!found) check_slurm(read);
  return found.value_or(LaunchEnvironment{});
}

LaunchEnvironment read_environment() {
  return read_environment([](const char* variable) { return std::getenv(variable); });
}

void check_world(const LaunchEnvironment& environment, int mpi_rank, int mpi_size,
                 std::string_view mpi_library) {
  if (environment.manager == ProcessManager::none || environment.processes == mpi_size) return;
  const bool slurm = environment.manager == ProcessManager::slurm;
  fail({.op = kOp,
        .where = text("process ", environment.process, " of ", environment.processes),
        .what = text("was started by ", name(environment.manager), ", but is linked with ",
                     mpi_library, ", which counts it as rank ", mpi_rank, " of ", mpi_size),
        .remedy = slurm ? "try another PMI: `srun --mpi=pmix` or `--mpi=pmi2`"
                        : "start it by the mpirun of the MPI it is linked with, or by `meshtorch "
                          "launch -n P -- program`"});
}

int cores_of_process() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
  return static_cast<int>(std::thread::hardware_concurrency());  // more than a cpu_set_t holds
}

}  // namespace meshtorch
