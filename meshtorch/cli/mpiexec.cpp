// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/mpiexec.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <initializer_list>

#include <meshtorch/base/error.h>
#include <meshtorch/cli/subprocess.h>

namespace meshtorch {
namespace {

std::string version_of(const std::string& path) {
  Pipe pipe = make_pipe();
  const Fd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const pid_t child = spawn({.command = {path, "--version"},
                             .in = null.get(),
                             .out = pipe.write.get(),
                             .err = pipe.write.get(),
                             .death_signal = SIGKILL});
  pipe.write.reset();
  std::string out;
  char bytes[4096];
  for (ssize_t got; (got = read(pipe.read.get(), bytes, sizeof bytes)) > 0;) out.append(bytes, got);
  waitpid(child, nullptr, 0);
  return out;
}

std::string locate(const std::string& name) {
  const auto path = find_program(name);
  if (!path)
    fail({.op = "launch",
          .where = name,
          .what = "there is no such program",
          .remedy = "install the MPI that meshtorch was built with, or name another mpirun by "
                    "--mpiexec"});
  return *path;
}

std::string locate_any() {
  for (const char* name : {"mpiexec", "mpirun"})
    if (const auto path = find_program(name)) return *path;
  fail({.op = "launch",
        .where = "PATH",
        .what = "has no mpiexec and no mpirun",
        .remedy = "install an MPI (Debian: openmpi-bin), or name one by --mpiexec"});
}

}  // namespace

MpiexecKind mpiexec_kind(const std::string& version) {
  const auto says = [&](const char* word) { return version.find(word) != std::string::npos; };
  if (says("Open MPI") || says("OpenRTE")) return MpiexecKind::open_mpi;
  if (says("HYDRA")) return MpiexecKind::hydra;
  return MpiexecKind::other;
}

Mpiexec find_mpiexec(const std::string& wanted, const std::string& built_with) {
  const std::string& name = wanted.empty() ? built_with : wanted;
  const std::string path = name.empty() ? locate_any() : locate(name);
  return {path, mpiexec_kind(version_of(path))};
}

std::vector<std::string> mpiexec_command(const Mpiexec& mpiexec, int processes, bool root) {
  std::vector<std::string> command = {mpiexec.path};
  const auto add = [&](std::initializer_list<const char*> flags) {
    command.insert(command.end(), flags.begin(), flags.end());
  };
  if (mpiexec.kind == MpiexecKind::open_mpi) {
    if (root) add({"--allow-run-as-root"});
    add({"--oversubscribe", "--bind-to", "none"});
  }
  if (mpiexec.kind == MpiexecKind::hydra)
    add({"-rmk", "user", "-launcher", "fork", "-bind-to", "none"});
  add({"-n"});
  command.push_back(std::to_string(processes));
  return command;
}

void keep_to_this_machine(MpiexecKind kind) {
  if (kind != MpiexecKind::open_mpi) return;
  for (const char* variable : {"OMPI_MCA_ras", "PRTE_MCA_ras"})
    setenv(variable, "^slurm,tm,lsf,gridengine", 0);
  setenv("OMPI_MCA_plm", "isolated", 0);  // else mpirun of 4.1 refuses where there is no ssh
}

}  // namespace meshtorch
