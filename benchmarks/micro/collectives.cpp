// SPDX-License-Identifier: Apache-2.0
//
// Our collectives beside MPI's own, on the same buffers, alternating, in one run:
//
//   mpirun -n 2 collectives
//
// For each size: the fastest of `kRounds`, and the ratio of the plain call's time to ours (1.00 is as
// fast; above it, faster). Sizes are of one process's input; an all-gather's, of its result.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <iostream>
#include <limits>

#include <torch/torch.h>

#include <meshtorch/meshtorch.h>

namespace mt = meshtorch;

namespace {

constexpr int kRounds = 25;

// A program in its steady state has touched its memory before: malloc of glibc before 2.38 gives repeated
// aligned allocations of one size ever new addresses, and their first touch costs more than the collective.
void touch_memory() { torch::ones({200 << 20}); }

double slowest(double seconds) {
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

double timed(const std::function<void()>& call) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  call();
  return slowest(MPI_Wtime() - begin);
}

struct Pair {
  const char* name;
  std::function<void()> plain, ours;
};

void compare(const Pair& pair, std::int64_t bytes, std::ostream& out) {
  double plain = std::numeric_limits<double>::infinity(), ours = plain;
  for (int round = 0; round < kRounds; ++round) {
    plain = std::min(plain, timed(pair.plain));
    ours = std::min(ours, timed(pair.ours));
  }
  std::array<char, 120> line{};
  std::snprintf(line.data(), line.size(), "%-15s %8.2f KB  plain %9.3f ms  ours %9.3f ms  %5.2f\n",
                pair.name, static_cast<double>(bytes) / 1024, plain * 1e3, ours * 1e3,
                plain / ours);
  out << line.data() << std::flush;
}

}  // namespace

int main() {
  mt::Runtime runtime({.devices = 1});
  const auto mesh = runtime.make_mesh({{"dp", runtime.processes()}});
  const mt::AxisList dp = mt::AxisList::of(0);
  mt::Communicator& comm = runtime.communicator();
  touch_memory();
  for (std::int64_t kb : {1, 16, 64, 1024, 4096, 16384, 65536}) {
    const std::int64_t n = kb * 1024 / 4, part = n / runtime.processes();
    const auto x = torch::rand({n});
    auto y = torch::empty({n});
    const float* from = x.const_data_ptr<float>();
    float* to = y.mutable_data_ptr<float>();
    const auto run = [&](mt::Request request, const at::Tensor& input) {
      request.even = true;
      comm.run(std::move(request), {input});
    };
    const Pair pairs[] = {
        {"all-reduce",
         [&] { MPI_Allreduce(from, to, static_cast<int>(n), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); },
         [&] { run(mt::Request::all_reduce(mesh, dp), x); }},
        {"reduce-scatter",
         [&] {
           MPI_Reduce_scatter_block(from, to, static_cast<int>(part), MPI_FLOAT, MPI_SUM,
                                    MPI_COMM_WORLD);
         },
         [&] { run(mt::Request::reduce_scatter(mesh, dp, 0), x); }},
        {"all-gather",
         [&] {
           MPI_Allgather(from, static_cast<int>(part), MPI_FLOAT, to, static_cast<int>(part),
                         MPI_FLOAT, MPI_COMM_WORLD);
         },
         [&] { run(mt::Request::all_gather(mesh, dp, 0), x.narrow(0, 0, part)); }}};
    for (const Pair& pair : pairs) compare(pair, kb * 1024, runtime.out());
  }
}
