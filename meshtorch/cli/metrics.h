// SPDX-License-Identifier: Apache-2.0
//
// What a run leaves behind: metrics.jsonl, one object a line, and loss.svg.
//
//   {"step":1,"loss":5.56,"gradient_norm":1.9,"learning_rate":0.0002,"tokens_per_second":25110.0}
//   {"step":100,"validation_loss":2.1}
//
// A step whose update was left out has "skipped":true, and null for a norm that is not finite.
#pragma once

#include <fstream>
#include <string>

#include <meshtorch/base/chart.h>
#include <meshtorch/train/train_step.h>

namespace meshtorch {

class Metrics {
 public:
  // Makes the folder; a metrics.jsonl that is there is overwritten. Throws Error where that fails. With
  // `writes` false nothing is left behind: of several processes, one writes.
  explicit Metrics(const std::string& folder, bool writes = true);

  void step(std::int64_t step, const StepMetrics& metrics, double rate, double tokens_per_second);
  void validation(std::int64_t step, double loss);
  // Draws what was added so far.
  void draw() const;

  std::string lines_path() const { return folder_ + "/metrics.jsonl"; }
  std::string chart_path() const { return folder_ + "/loss.svg"; }

 private:
  std::string folder_;
  bool writes_;
  std::ofstream lines_;
  Series train_{.name = "train"};
  Series validation_{.name = "validation"};
};

}  // namespace meshtorch
