// SPDX-License-Identifier: Apache-2.0
//
// `meshtorch train`: a GPT on the bytes of a text, on a mesh.
#pragma once

#include <iosfwd>
#include <string>

#include <meshtorch/cli/options.h>

namespace meshtorch {

struct TrainOutcome {
  double train_loss = 0;       // of the last step
  double validation_loss = 0;  // over the last 10% of the text
  double seconds = 0;          // in the training loop
  std::string sample;
};

// Makes a Runtime, trains, and tells about it on `out`; `terminal` says whether the progress line
// may be rewritten there. Throws Error on bad options and data (options.h, data/text.h).
TrainOutcome train(const TrainOptions& options, std::ostream& out, bool terminal = false);

}  // namespace meshtorch
