// SPDX-License-Identifier: Apache-2.0
//
// Weights saved from one mesh load into another, exactly; a module that does not fit says which leaf.
#include <meshtorch/checkpoint/module.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include <meshtorch/base/error.h>
#include <meshtorch/checkpoint/safetensors.h>
#include <meshtorch/tensor/module.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

struct Net : torch::nn::Module {
  explicit Net(std::int64_t hidden = 6) {
    up = register_module("up", torch::nn::Linear(5, hidden));
    norm = register_module("norm", torch::nn::BatchNorm1d(hidden));
    down = register_module("down", torch::nn::Linear(hidden, 5));
  }
  torch::nn::Linear up{nullptr}, down{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

class ModuleFile : public testing::Test {
 protected:
  Runtime runtime{{.devices = 8}};
  std::string path =
      (std::filesystem::temp_directory_path() / "meshtorch_module_test.safetensors").string();
  ~ModuleFile() override { std::remove(path.c_str()); }

  PathRules rules(const std::string& axis) {
    return PathRules({{"up", P(axis)}, {"down.weight", P(whole, axis)}})
        .otherwise(Unmatched::replicate);
  }
  std::string error(const std::function<void()>& run) {
    try {
      run();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
};

TEST_F(ModuleFile, AnyMeshLoadsWhatAnyMeshSaved) {
  // Case 5: six rows over four devices leave the last shard empty.
  Net saved, loaded;
  const auto before = saved.up->weight.detach().clone();
  shard(saved, runtime.make_mesh({{"tp", 4}}), rules("tp"));
  save(saved, path);
  shard(loaded, runtime.make_mesh({{"dp", 3}, {"tp", 2}}), rules("tp"));
  load(loaded, path);
  EXPECT_TRUE(full(loaded.up->weight.detach()).equal(before));
  for (const auto& item : saved.named_parameters()) {
    EXPECT_TRUE(
        full(loaded.named_parameters()[item.key()].detach()).equal(full(item.value().detach())))
        << item.key();
  }
  EXPECT_EQ(sharding_of(loaded.up->weight).spec, P("tp"));
  Net plain;
  load(plain, path);
  EXPECT_TRUE(plain.down->weight.equal(full(saved.down->weight.detach())));
}

TEST_F(ModuleFile, WhatDoesNotFitIsNamed) {
  Net net;
  save(net, path);
  Net wider(7);
  EXPECT_EQ(error([&] { load(wider, path); }),
            "[load] up.weight: has shape [6, 5] in " + path +
                ", expected [7, 5]; make the module with the options it was saved with");
  torch::nn::Linear other(5, 6);
  EXPECT_EQ(error([&] { load(*other, path); }),
            "[load] weight: is not in " + path + "; load a file saved from the same module");
}

TEST_F(ModuleFile, ATruncatedFileChangesNothing) {
  Net net;
  save(net, path);
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 1);
  const auto before = net.up->weight.detach().clone();
  EXPECT_NE(error([&] { load(net, path); }), "no error");
  EXPECT_TRUE(net.up->weight.equal(before));
}

}  // namespace
}  // namespace meshtorch
