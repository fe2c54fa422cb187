// SPDX-License-Identifier: Apache-2.0
//
// What the suite runs on: the communicator that this program's processes have together (local where it
// was started alone), with 1 to 4 devices a process; and the simulated one.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "expected.h"

namespace meshtorch::suite {

struct World {
  std::int64_t devices = 1;  // of each process
  bool simulated = false;
};

std::string name(const testing::TestParamInfo<World>& info);
// Alone: more devices, and the simulated ones.
std::vector<World> real_worlds();
std::vector<World> worlds();

class CommunicatorTest : public testing::TestWithParam<World> {
 protected:
  void SetUp() override;
  void TearDown() override { communicator_.reset(); }

  int processes() const { return processes_; }
  std::int64_t devices() const { return communicator_->devices(); }

  // Meshes over all devices or some, every process with a part, in whose order the devices of a process
  // are neighbours, alternate with others' or lie anyhow.
  std::vector<Mesh> meshes() const;

  // One of every kind, over groups along `axes` of `mesh`, of a tensor of two dims.
  static std::vector<Case> every_kind(const Mesh& mesh, AxisList axes, const Shape& shape,
                                      at::ScalarType dtype);

  // The inputs that are this process's.
  Shards mine(const Case& test) const;
  // Runs it and asserts everything that communicator.h says of the results.
  void check(const Case& test);
  // The same of results that are there.
  void check(const Case& test, const Shards& inputs, Pending& pending);

  std::unique_ptr<Communicator> communicator_;
  int processes_ = 1;
};

// Each axis alone, all of them, and all of them minor to major.
std::vector<AxisList> axis_lists(const Mesh& mesh);

// Values of any dtype, the same for equal seeds: on every process.
at::Tensor values(const Shape& shape, at::ScalarType dtype, std::uint64_t seed);

// Of a size along `dim` that differs from rank to rank; some are empty.
Case uneven_gather(const Mesh& mesh, AxisList axes, const Shape& shape, std::int64_t dim,
                   at::ScalarType dtype);

}  // namespace meshtorch::suite
