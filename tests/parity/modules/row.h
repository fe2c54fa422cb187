// SPDX-License-Identifier: Apache-2.0
//
// A row of the table of modules: how a torch::nn module is built, what it is given, and how its
// parameters may be laid out. The rows are data (rows_*.cpp, by family); run.h runs them.
//
//   row([] { return nn::Conv2d(nn::Conv2dOptions(4, 6, 3)); }, real({B, 4, 7, 7}))
//       .sharded("columns", {{"weight|bias", P("tp")}})
//
// The class a row is for is the type of what it builds.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

#include <c10/util/Type.h>

#include <meshtorch/meshtorch.h>

namespace meshtorch::modules {

namespace nn = torch::nn;
using Tensors = std::vector<at::Tensor>;
using Sizes = std::vector<std::int64_t>;

inline constexpr std::int64_t B = -1;  // the batch's size, in a shape

// An argument of forward.
struct Input {
  std::function<at::Tensor(std::int64_t batch)> draw;
  int batch_dim = 0;  // -1: whole on every device
  bool differentiable = true;

  // No gradient is asked for: targets that the loss takes as constants.
  Input constant() const { return {draw, batch_dim, false}; }
};

Input values(std::function<at::Tensor(std::int64_t batch)> draw, int batch_dim = 0);
Input real(Sizes shape);                     // normal
Input unit(Sizes shape);                     // in (0.05, 0.95)
Input distinct(Sizes shape);                 // no two close: maxima without ties
Input sign(Sizes shape);                     // 1 and -1, constant
Input index(std::int64_t end, Sizes shape);  // in [0, end)

// A layout of parameters over the axis tp; the dim of each input that goes with it (-1: none).
struct Layout {
  std::string name;
  std::vector<PathRule> rules;
  std::vector<int> input_dims;
};

struct Bound {
  std::shared_ptr<nn::Module> module;
  std::function<Tensors(const Tensors&)> forward;
};

// What must hold of plain inputs and outputs of a module that draws random numbers.
using Property = std::function<void(const Tensors& inputs, const Tensors& outputs)>;

struct Row {
  std::string module;   // the class, without torch::nn
  std::string options;  // what tells the row from others of the class
  std::function<Bound()> make;
  std::vector<Input> inputs;
  std::vector<Layout> layouts = {};
  // Draws on the library's own generator in training: equal on all meshes, not equal to plain.
  Property property = {};
  bool each_parameter = true;  // false: its parameters are those of modules with rows of their own

  Row with(std::string what) &&;
  Row sharded(std::string name, std::vector<PathRule> rules, std::vector<int> input_dims = {}) &&;
  Row random(Property what) &&;
  Row composed() &&;
};

inline Tensors collect(const at::Tensor& output) { return {output}; }
inline Tensors collect(const nn::ASMoutput& output) {
  return {output.output, torch::tensor(output.loss, torch::kDouble)};
}
template <class... Parts>
Tensors collect(const std::tuple<Parts...>& output) {
  Tensors all;
  const auto append = [&](const Tensors& part) { all.insert(all.end(), part.begin(), part.end()); };
  std::apply([&](const auto&... parts) { (append(collect(parts)), ...); }, output);
  return all;
}

// "Conv2d" of torch::nn::Conv2dImpl.
std::string class_name(const std::type_info& implementation);

// A module and what to do with it: forward(module, inputs).
template <class Make, class Forward>
Row row_of(Make make, Forward forward, std::vector<Input> inputs) {
  using Implementation = typename decltype(make())::ContainedType;
  return {class_name(typeid(Implementation)), "",
          [make, forward] {
            auto module = make();
            return Bound{module.ptr(), [module, forward](const Tensors& inputs) mutable {
                           return collect(forward(module, inputs));
                         }};
          },
          std::move(inputs)};
}

// A module whose forward takes the inputs as they are.
template <class Make, class... Inputs>
Row row(Make make, Inputs... inputs) {
  return row_of(make,
                [](auto& module, const Tensors& x) {
                  return [&]<std::size_t... I>(std::index_sequence<I...>) {
                    return module->forward(x[I]...);
                  }
                  (std::index_sequence_for<Inputs...>());
                },
                {inputs...});
}

using Rows = std::vector<Row>;

Rows activations();
Rows convolutions();
Rows containers();
Rows dropouts();
Rows embeddings();
Rows linears();
Rows losses();
Rows norms();
Rows pads_and_reorderings();
Rows pools();
Rows recurrences();
Rows transformers();

// All of them, by family.
const std::vector<std::pair<std::string, Rows>>& table();

}  // namespace meshtorch::modules
