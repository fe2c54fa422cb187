// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/metrics.h>

#include <filesystem>

#include <nlohmann/json.hpp>

#include <meshtorch/base/error.h>

namespace meshtorch {

// Keys in the order they are given.
using Json = nlohmann::ordered_json;

Metrics::Metrics(const std::string& folder, bool writes) : folder_(folder), writes_(writes) {
  if (!writes) return;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  lines_.open(lines_path());
  if (!lines_) fail({"train", "--out " + folder_, "cannot be written", "use a folder of your own"});
}

void Metrics::step(std::int64_t step, const StepMetrics& metrics, double rate,
                   double tokens_per_second) {
  Json line{{"step", step},
            {"loss", metrics.loss.value()},
            {"gradient_norm", metrics.gradient_norm.value()},
            {"learning_rate", rate},
            {"tokens_per_second", tokens_per_second}};
  if (metrics.skipped) line["skipped"] = true;
  lines_ << line << std::endl;
  train_.x.push_back(static_cast<double>(step));
  train_.y.push_back(metrics.loss.value());
}

void Metrics::validation(std::int64_t step, double loss) {
  lines_ << Json{{"step", step}, {"validation_loss", loss}} << std::endl;
  validation_.x.push_back(static_cast<double>(step));
  validation_.y.push_back(loss);
}

void Metrics::draw() const {
  if (!writes_) return;
  write_svg({.title = "loss",
             .x_label = "step",
             .y_label = "nats per byte",
             .series = {train_, validation_}},
            chart_path());
}

}  // namespace meshtorch
