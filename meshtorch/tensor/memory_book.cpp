// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/memory_book.h>

#include <algorithm>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/device_scope.h>

namespace meshtorch {

void MemoryBook::check(std::int64_t device) const {
  if (has(device)) return;
  fail({.op = "MemoryAccount",
        .where = "device",
        .what = text("got ", device, ", expected one of ", devices()),
        .remedy = "give a global device number, or MemoryAccount::kHost"});
}

const DeviceMemory& MemoryBook::memory(std::int64_t device) const {
  check(device);
  return at(device).memory;
}

void MemoryBook::allocated(const void* address, std::int64_t bytes) {
  const std::int64_t device = device_scope::current();
  const Block block{bytes, has(device) ? device : MemoryAccount::kHost, use_scope::current()};
  const auto [entry, fresh] = blocks_.emplace(address, block);
  if (!fresh) {  // its owner freed it behind libtorch's back
    remove(entry->second);
    entry->second = block;
  }
  add(block);
}

void MemoryBook::freed(const void* address) {
  const auto entry = blocks_.find(address);
  if (entry == blocks_.end()) return;
  remove(entry->second);
  blocks_.erase(entry);
}

void MemoryBook::adopt(const void* address, std::int64_t device) {
  const auto entry = blocks_.find(address);
  if (entry == blocks_.end() || entry->second.device != MemoryAccount::kHost) return;
  assign(address, device, entry->second.use);
}

void MemoryBook::assign(const void* address, std::int64_t device, Use use) {
  check(device);
  const auto entry = blocks_.find(address);
  if (entry == blocks_.end()) return;
  Block& block = entry->second;
  if (block.device == device) {
    take(block);
  } else {
    remove(block);
  }
  block.device = device;
  block.use = use;
  add(block);
}

void MemoryBook::add(const Block& block) {
  State& state = at(block.device);
  DeviceMemory& memory = state.memory;
  std::int64_t& live = of(memory.live, block.use) += block.bytes;
  std::int64_t& largest = of(memory.largest, block.use);
  largest = std::max(largest, live);
  memory.total += block.bytes;
  if (memory.total < memory.peak) return;
  if (memory.total > memory.peak) {
    state.climbing = true;
    state.top = std::chrono::steady_clock::now();
  }
  memory.peak = memory.total;
  memory.at_peak = memory.live;
}

void MemoryBook::take(const Block& block) {
  DeviceMemory& memory = at(block.device).memory;
  of(memory.live, block.use) -= block.bytes;
  memory.total -= block.bytes;
}

void MemoryBook::remove(const Block& block) {
  if (at(block.device).climbing) end_climb(block.device);
  take(block);
}

void MemoryBook::reset_peaks() {
  for (std::int64_t device = MemoryAccount::kHost; device < devices(); ++device) {
    if (at(device).climbing) end_climb(device);
    DeviceMemory& memory = at(device).memory;
    memory.largest = memory.at_peak = memory.live;
    memory.peak = memory.total;
  }
}

void MemoryBook::mark(const std::string& mark) {
  const auto now = std::chrono::steady_clock::now();
  for (std::int64_t device = MemoryAccount::kHost; device < devices(); ++device) {
    keep({now, device, at(device).memory.live, mark});
  }
}

std::vector<MemorySample> MemoryBook::timeline() const {
  std::vector<MemorySample> samples(samples_.begin(), samples_.end());
  for (std::int64_t device = MemoryAccount::kHost; device < devices(); ++device) {
    if (at(device).climbing) samples.push_back(top_of(device));
  }
  // A climb is kept when it is over, after what came in meanwhile.
  std::stable_sort(samples.begin(), samples.end(),
                   [](const auto& a, const auto& b) { return a.time < b.time; });
  return samples;
}

MemorySample MemoryBook::top_of(std::int64_t device) const {
  return {at(device).top, device, at(device).memory.at_peak, ""};
}

void MemoryBook::end_climb(std::int64_t device) {
  at(device).climbing = false;
  keep(top_of(device));
}

void MemoryBook::keep(MemorySample sample) {
  samples_.push_back(std::move(sample));
  if (samples_.size() <= capacity_) return;
  samples_.pop_front();
  ++dropped_;
}

}  // namespace meshtorch
