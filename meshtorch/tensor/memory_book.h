// SPDX-License-Identifier: Apache-2.0
//
// The numbers of one memory account (memory.h): which blocks there are, what each device holds, the
// largest it held, and when. Knows no allocator, and no threads: whoever uses it has the only access.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include <c10/util/flat_hash_map.h>

#include <meshtorch/tensor/memory.h>

namespace meshtorch {

// What one device holds and held.
struct DeviceMemory {
  UseBytes live{};     // now
  UseBytes largest{};  // each use for itself
  UseBytes at_peak{};  // when the total was last at its peak
  std::int64_t total = 0, peak = 0;

  bool operator==(const DeviceMemory&) const = default;
};

template <class Array>
auto& of(Array& array, Use use) {
  return array[static_cast<std::size_t>(use)];
}

class MemoryBook {
 public:
  MemoryBook(std::int64_t devices, std::size_t samples)
      : devices_(static_cast<std::size_t>(devices) + 1), capacity_(samples) {}

  std::int64_t devices() const { return static_cast<std::int64_t>(devices_.size()) - 1; }
  // Throws Error where there is no such device.
  const DeviceMemory& memory(std::int64_t device) const;

  // By this thread's device_scope and use_scope; the host's where there is no such device.
  void allocated(const void* address, std::int64_t bytes);
  void freed(const void* address);  // nothing where the block is unknown; neither does assign
  void assign(const void* address, std::int64_t device, Use use);
  void adopt(const void* address, std::int64_t device);  // where it is the host's

  void reset_peaks();
  void mark(const std::string& mark);
  std::vector<MemorySample> timeline() const;
  std::int64_t dropped_samples() const { return dropped_; }

 private:
  struct Block {
    std::int64_t bytes;
    std::int64_t device;
    Use use;
  };
  struct State {
    DeviceMemory memory;
    bool climbing = false;  // above all before, and nothing was given back since
    std::chrono::steady_clock::time_point top;
  };

  bool has(std::int64_t device) const {
    return device >= MemoryAccount::kHost && device < devices();
  }
  void check(std::int64_t device) const;
  const State& at(std::int64_t device) const {
    return devices_[static_cast<std::size_t>(device + 1)];
  }
  State& at(std::int64_t device) { return devices_[static_cast<std::size_t>(device + 1)]; }

  void add(const Block& block);
  void take(const Block& block);
  void remove(const Block& block);  // take, which ends a climb

  MemorySample top_of(std::int64_t device) const;
  void end_climb(std::int64_t device);
  void keep(MemorySample sample);

  std::vector<State> devices_;  // the host first
  ska::flat_hash_map<const void*, Block> blocks_;
  std::deque<MemorySample> samples_;
  std::size_t capacity_;
  std::int64_t dropped_ = 0;
};

}  // namespace meshtorch
