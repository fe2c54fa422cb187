// SPDX-License-Identifier: Apache-2.0
//
// The memory account: bytes live and at most on each virtual device, by what they are for. It counts
// what libtorch asks of its CPU allocator, to the byte, in the run that is made and not in a model of it.
//
//   mt::MemoryAccount account(8);             // counts while it lives
//   ... shard the model, make the optimizer ...
//   account.mark("step 1");
//   account.reset_peaks();
//   ... a step ...
//   std::cout << account.to_string();
//   account.at_peak(0, mt::Use::activations); // of the moment when device 0 held the most
//
// Of which device and use a block is: those of the device_scope and use_scope that its thread is in when
// it is allocated, until `assign` says otherwise. A storage counts once, however many tensors view it.
// A block that was there before the account is unknown to it, and stays so.
//
// Not counted: memory that is not libtorch's CPU allocator's (from_blob, buffers of a transport, packed
// panels of a BLAS), and what the system adds to a block (rounding, caches). Threads of an op have no
// device: what a kernel allocates in them is the host's.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace meshtorch {

class MemoryBook;  // memory.cpp

enum class Use { parameters, gradients, optimizer, activations, communication };

inline constexpr std::array kUses{Use::parameters, Use::gradients, Use::optimizer, Use::activations,
                                  Use::communication};

std::string_view name(Use use);  // "parameters", ...

// What this thread allocates inside is for `use`; outside of any it is activations.
class use_scope {
 public:
  explicit use_scope(Use use) : outer_(std::exchange(current_, use)) {}
  ~use_scope() { current_ = outer_; }
  use_scope(const use_scope&) = delete;
  use_scope& operator=(const use_scope&) = delete;

  static Use current() { return current_; }

 private:
  Use outer_;
  inline static thread_local Use current_ = Use::activations;
};

using UseBytes = std::array<std::int64_t, kUses.size()>;  // in the order of kUses

// What a device held at a moment.
struct MemorySample {
  std::chrono::steady_clock::time_point time;
  std::int64_t device;
  UseBytes live;
  std::string mark;  // the name given to mark(); empty: the device's total reached a new maximum
};

// All members may be called from any thread, but the account must outlive every such call. Freeing a
// block after its account is right, and so is a second account after the first.
class MemoryAccount {
 public:
  static constexpr std::int64_t kHost = -1;  // the device of what was allocated outside of any

  // `devices`: of all processes, as a block's device is its global number; those of other processes stay
  // empty here. `samples`: how many the timeline keeps, the latest.
  // Installs a counting allocator before libtorch's own, once in a process and for good: make the first
  // account before other threads use libtorch. Throws Error where an account lives, where `devices` is
  // not positive, and where the allocator in place cannot be counted.
  explicit MemoryAccount(std::int64_t devices, std::size_t samples = 65536);
  ~MemoryAccount();
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  // The account that lives; null where none does.
  static MemoryAccount* active() noexcept { return active_.load(std::memory_order_acquire); }

  // From now on the block behind `local`, all of it, is of this device and use. Nothing happens where
  // the account does not know the block: undefined and meta tensors, and what is older than the account.
  void assign(const at::Tensor& local, std::int64_t device, Use use);

  // As assign, where the block is the host's: of the use that it has.
  void adopt(const at::Tensor& local, std::int64_t device);

  // Bytes. `device`: a global number, or kHost; Error where there is no such device.
  std::int64_t live(std::int64_t device) const;
  std::int64_t live(std::int64_t device, Use use) const;
  // The largest total, and the largest of one use: at other moments, so they need not add up.
  std::int64_t peak(std::int64_t device) const;
  std::int64_t peak(std::int64_t device, Use use) const;
  // Of this use, when the total was last at its peak: these add up to it.
  std::int64_t at_peak(std::int64_t device, Use use) const;
  // Peaks are counted from what is live now.
  void reset_peaks();

  // A sample of every device, in any case.
  void mark(const std::string& name);
  // In order of time: of each mark, and of the top of every climb above all before it (since
  // reset_peaks).
  std::vector<MemorySample> timeline() const;
  std::int64_t dropped_samples() const;  // older ones, that the timeline had no room for

  // Three rows a device; `largest` is peak(device, use). Neighbours of equal numbers share theirs, and
  // devices that held nothing are left out:
  //
  //   device           parameters  gradients  optimizer  activations  communication  total
  //   ------  -------  ----------  ---------  ---------  -----------  -------------  -----
  //   0-3     live            400        400        800            0              0  1,600
  //           at peak         400          0        800        1,024             64  2,288
  //           largest         400        400        800        1,024            128
  std::string to_string() const;

 private:
  std::unique_ptr<MemoryBook> book_;

  inline static std::atomic<MemoryAccount*> active_{nullptr};
};

// What the devices hold of a sharded tensor is for `use` from now on. Nothing happens where no account
// lives, and for a plain or undefined tensor.
void account_for(const at::Tensor& tensor, Use use);

}  // namespace meshtorch
