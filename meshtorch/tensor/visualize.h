// SPDX-License-Identifier: Apache-2.0
//
// Pictures of where a tensor's elements are, as JAX's visualize_array_sharding draws them:
//
//   float [8, 4], P(dp, tp) on (dp=2, tp=2)
//             0:2              2:4
//       ┌────────────────┬────────────────┐
//   0:4 │     CPU 0      │     CPU 1      │
//       ├────────────────┼────────────────┤
//   4:8 │     CPU 2      │     CPU 3      │
//       └────────────────┴────────────────┘
//
// Rows are dim 0, columns dim 1 (the columns of a vector are dim 0); labels are half-open ranges of
// elements. A cell names the devices of the whole mesh, other processes' included, that hold it:
//
//   CPU 0,2        each holds the piece
//   CPU 0+2        unreduced: each holds a summand of the piece
//   CPU 0,1+2,3    two summands, two devices hold each
//
// Of more than two dims it shows the first two that are sharded, the others at index 0, and says so
// in the caption. More than 16 pieces along a dim are abridged. Devices that hold nothing (uneven
// shards) are listed below. No data is read and none moves.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace meshtorch {

struct VisualizeOptions {
  bool color = false;  // ANSI backgrounds
  int width = 60;  // columns of the terminal to fill; exceeded where the devices' names need more
};

// The picture. Throws Error where x is plain, or width is not positive.
std::string sharding_text(const at::Tensor& x, VisualizeOptions options = {});

// The same as an SVG image, cells in proportion to their sizes. Throws Error where x is plain.
std::string sharding_svg(const at::Tensor& x);

// Prints it to Runtime::out, in colours where that is a terminal.
void visualize_sharding(const at::Tensor& x);

}  // namespace meshtorch
