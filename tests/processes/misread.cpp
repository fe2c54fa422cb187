// SPDX-License-Identifier: Apache-2.0
//
//   misread KIND    one process of several, of which the last reads other data than it should
//
// misread_test.cpp holds what the processes must say of each kind.
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>

#include <torch/torch.h>

#include <meshtorch/meshtorch.h>

namespace mt = meshtorch;
using mt::P;

namespace {

struct Self {
  mt::Runtime& runtime;
  bool odd;  // the one that misreads
};

// One device a process, rows over dp, replicas over tp.
mt::Mesh grid(const Self& self) {
  return self.runtime.make_mesh({{"dp", self.runtime.processes() / 2}, {"tp", 2}});
}

void train(const Self& self, const mt::Mesh& mesh, const mt::RowSource& source) {
  auto w = mt::device_put(torch::ones({3, 5}), {mesh, P()}).requires_grad_();
  for (const auto& micro : mt::microbatches(source, 2, {mesh, P("dp")})) {
    const auto loss = torch::nn::functional::cross_entropy(micro.inputs.matmul(w), micro.targets);
    (loss * micro.weight()).backward();
  }
  self.runtime.out() << "gradient " << w.grad().sum().item<double>() << std::endl;
}

mt::RowSource rows(std::function<mt::Batch(std::int64_t, std::int64_t)> read) {
  return {.rows = 8, .read = std::move(read)};
}

mt::Batch numbers(std::int64_t begin, std::int64_t end) {
  return {torch::arange(begin * 3, end * 3, torch::kFloat).view({-1, 3}),
          torch::arange(begin, end).remainder(5)};
}

const std::map<std::string, std::function<void(const Self&)>> kinds{
    {"nothing", [](const Self& self) { train(self, grid(self), rows(numbers)); }},
    {"other-inputs",
     [](const Self& self) {
       train(self, grid(self), rows([&](std::int64_t begin, std::int64_t end) {
               mt::Batch batch = numbers(begin, end);
               if (self.odd) batch.inputs = batch.inputs + 1;
               return batch;
             }));
     }},
    {"other-width",
     [](const Self& self) {
       train(self, self.runtime.make_mesh({{"dp", self.runtime.processes()}}),
             rows([&](std::int64_t begin, std::int64_t end) {
               mt::Batch batch = numbers(begin, end);
               if (self.odd) batch.inputs = batch.inputs.slice(1, 0, 2);
               return batch;
             }));
     }},
    {"other-rows",
     [](const Self& self) {
       mt::RowSource source = rows(numbers);
       if (self.odd) source.rows = 6;
       train(self, self.runtime.make_mesh({{"dp", self.runtime.processes()}}), source);
     }},
    {"no-file",
     [](const Self& self) {
       train(self, self.runtime.make_mesh({{"dp", self.runtime.processes()}}),
             rows([&](std::int64_t begin, std::int64_t end) {
               if (self.odd) throw std::runtime_error("the file is gone");
               return numbers(begin, end);
             }));
     }},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || kinds.count(argv[1]) == 0) return std::cerr << "which kind?\n", 2;
  try {
    mt::Runtime runtime({.check_inputs = std::getenv("MISREAD_UNCHECKED") == nullptr});
    kinds.at(argv[1])({runtime, runtime.process() == runtime.processes() - 1});
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
