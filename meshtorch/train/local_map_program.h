// SPDX-License-Identifier: Apache-2.0
//
// What local_map.h does apart from types: arguments as lists of leaves in, results as lists of leaves out.
// Internal to local_map.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <meshtorch/mesh/mesh.h>
#include <meshtorch/mesh/partition_spec.h>
#include <meshtorch/tensor/tree.h>

namespace meshtorch {

struct RankGrid;

enum class RankRandom {
  split,  // each rank draws from a stream of its own
  same,   // all ranks draw the same numbers
};

// What becomes of a module's buffer that fn writes.
enum class RankWrites {
  refuse,  // Error, where ranks share it; each rank's part is its own where they do not
  mean,    // the mean over the ranks that share it (integers: the largest)
  keep,    // what each rank wrote, where nothing is shared
};

struct RankLeaf {
  std::string path;
  at::Tensor tensor;
  PartitionSpec spec;
  bool of_module = false;
  bool buffer = false;  // of a module
  RankWrites writes = RankWrites::refuse;
  // Its leading dim, of size one on each rank, is dropped there. Of a buffer.
  bool row = false;
};

// The code of all ranks; each function is called in the rank's thread.
class RankCode {
 public:
  virtual ~RankCode() = default;
  // Takes the rank's values of the leaves; those of modules' have them while the rank has its turn.
  virtual void bind(std::size_t rank, const std::vector<at::Tensor>& values) = 0;
  // Runs fn; the results' leaves, which nobody holds but the result itself.
  virtual std::vector<RankLeaf> run(std::size_t rank) = 0;
};

struct RankProgramOptions {
  std::vector<std::string> manual_axes;
  bool check_equal = false;
  RankRandom random = RankRandom::split;
};

class RankProgram {
 public:
  RankProgram(const Mesh& mesh, RankProgramOptions options);

  std::size_t ranks() const;  // of this process
  const RankGrid& grid() const { return *grid_; }
  std::vector<at::Tensor> run(const std::vector<RankLeaf>& arguments, RankCode& code) const;

 private:
  std::shared_ptr<const RankGrid> grid_;
  RankProgramOptions options_;
};

}  // namespace meshtorch
