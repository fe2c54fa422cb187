// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/checkpoint/state.h>

#include <torch/torch.h>

#include <optional>

#include <meshtorch/base/error.h>
#include <meshtorch/checkpoint/safetensors.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

const std::string kKindOf = "kind of ";  // a path; the metadata's keys

Kind kind_named(const std::string& named, const std::string& path, const std::string& file) {
  for (const Kind kind :
       {Kind::parameter, Kind::buffer, Kind::batch_statistic, Kind::random_state}) {
    if (name(kind) == named) return kind;
  }
  fail({.op = "load_state",
        .where = path,
        .what = "is of kind \"" + named + "\" in " + file + ", and there is no such kind",
        .remedy = "load a file that save() wrote"});
}

}  // namespace

void save(const State& state, const std::string& path) {
  torch::NoGradGuard no_grad;
  std::vector<SafetensorsEntry> entries;
  SafetensorsMetadata metadata{{"format", "pt"}};
  for (const StateEntry& entry : state) {
    entries.push_back({entry.path, entry.tensor.scalar_type(), entry.tensor.sizes().vec()});
    metadata[kKindOf + entry.path] = name(entry.kind);
  }
  Runtime* runtime = Runtime::find();
  std::optional<SafetensorsWriter> writer;
  if (runtime == nullptr || runtime->process() == 0) writer.emplace(path, entries, metadata);
  for (const StateEntry& entry : state) {
    const at::Tensor whole = full(entry.tensor.detach()).contiguous();
    if (writer) writer->write(entry.path, whole);
  }
  if (writer) writer->close();
  if (runtime != nullptr) runtime->communicator().barrier();
}

State load_state(const std::string& path) {
  const SafetensorsFile file(path);
  std::vector<StateEntry> entries;
  for (const SafetensorsEntry& entry : file.entries()) {
    const auto kind = file.metadata().find(kKindOf + entry.name);
    entries.push_back({.path = entry.name,
                       .kind = kind == file.metadata().end()
                                   ? Kind::parameter
                                   : kind_named(kind->second, entry.name, path),
                       .tensor = file.read(entry.name)});
  }
  return State(std::move(entries));
}

}  // namespace meshtorch
